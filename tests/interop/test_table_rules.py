"""Which tables may be: lakecore creates those that Java takes, and refuses those that it does not.

Tables of random keys, partitions and options, each created by both. Where lakecore refuses more,
`STRICTER` says why.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TYPES = {
    "k": "INT NOT NULL",
    "p": "STRING NOT NULL",
    "v": "INT",
    "w": "BIGINT",
    "s": "STRING",
    "ts": "TIMESTAMP(3)",
    "d": "DECIMAL(10, 2)",
    "b": "BYTES",
    "bo": "BOOLEAN",
    "g": "INT",
}
KEYS: tuple[tuple[str, ...], ...] = ((), ("k",), ("k",), ("k", "p"), ("p", "k"))
PARTITIONS: tuple[tuple[str, ...], ...] = ((), (), ("p",), ("k",), ("v",))
OPTIONS = {
    "bucket": ("1", "2", "-1", "0"),
    "bucket-key": ("k", "v", "p", "k,p", "zz", "k,k"),
    "bucket-function.type": ("default", "mod", "hive"),
    "merge-engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "changelog-producer": ("none", "input", "lookup", "full-compaction"),
    "sequence.field": ("v", "w,v", "zz", "ts", "k", "v,v", "s"),
    "sequence.field.sort-order": ("ascending", "descending"),
    "rowkind.field": ("s", "v", "zz"),
    "ignore-delete": ("true", "false"),
    "ignore-update-before": ("true", "false"),
    "partial-update.remove-record-on-delete": ("true",),
    "partial-update.remove-record-on-sequence-group": ("g", "v", "zz"),
    "aggregation.remove-record-on-delete": ("true",),
    "fields.g.sequence-group": ("v", "v,w", "zz", "s"),
    "fields.w.sequence-group": ("s", "v", "d,b"),
    "fields.v.aggregate-function": ("sum", "max", "last_value", "listagg", "zz", "collect"),
    "fields.s.aggregate-function": ("sum", "listagg", "max", "last_non_null_value"),
    "fields.bo.aggregate-function": ("bool_or", "sum", "max"),
    "fields.default-aggregate-function": ("last_value", "sum", "max", "zz"),
    "fields.v.ignore-retract": ("true",),
    "deletion-vectors.enabled": ("true", "false"),
    "force-lookup": ("true",),
    "write-only": ("true", "false"),
    "file.format": ("parquet", "orc", "avro", "zz"),
    "full-compaction.delta-commits": ("1", "5"),
    "num-sorted-run.compaction-trigger": ("5",),
    "target-file-size": ("1 mb",),
    "metadata.stats-mode": ("none", "full", "truncate(4)"),
    "data-file.thin-mode": ("true",),
    "lookup-wait": ("false",),
    "delete.force-produce-changelog": ("true",),
    "snapshot.num-retained.min": ("1", "10", "20"),
    "snapshot.num-retained.max": ("5", "100"),
    "dynamic-bucket.target-row-num": ("100",),
}
STRICTER = (
    # Java fails with the first rows.
    "the aggregate function does not support the column's type",
    "a primary-key column cannot be in a sequence group",
    # Java follows one of the two.
    "two options contradict each other",
    # They would do nothing.
    "the merge engine of the table ignores the option",
    "needs a primary key",
    "must contain every partition key",
)
TABLES = 400


@pytest.mark.parametrize("seed", range(4))
def test_both_take_the_same_tables(
    peers: Callable[[str], PeerEngine], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    tables = [_drawn(chance) for _ in range(TABLES)]
    peer = peers(limits.JAVA).peer
    theirs = cast(
        "list[str | None]",
        peer.ask("refusals", path=str(tmp_path), tables=[table.schema() for table in tables]),
    )

    others = []
    for table, refused in zip(tables, theirs, strict=True):
        error = _refusal(table)
        if (error is None) == (refused is None):
            continue
        if isinstance(error, lc.Unsupported) or any(reason in str(error) for reason in STRICTER):
            continue
        others.append(
            f"{table.primary_keys} {table.partition_keys} {dict(table.options)}\n"
            f"  Java: {refused}\n  lakecore: {error}"
        )
    assert not others, "\n".join(others)
    assert 0 < sum(refused is None for refused in theirs) < TABLES, "some of both"


def _drawn(chance: random.Random) -> Case:
    options: dict[str, Any] = {}
    if chance.random() < 0.7:
        options["bucket"] = chance.choice(("1", "2", "-1"))
    for key in chance.sample(sorted(OPTIONS), chance.randint(1, 4)):
        options[key] = chance.choice(OPTIONS[key])
    return Case(
        name="t",
        columns=tuple(Column(name, parse_type(kind)) for name, kind in TYPES.items()),
        commits=(),
        primary_keys=chance.choice(KEYS),
        partition_keys=chance.choice(PARTITIONS),
        options=options,
    )


def _refusal(table: Case) -> lc.LakecoreError | None:
    catalog = lc.connect(f"memory://{random.randrange(1 << 60)}", create=True)
    catalog.create_database("x")
    try:
        catalog.create_table(
            "x.t",
            TYPES,
            primary_keys=list(table.primary_keys),
            partition_keys=list(table.partition_keys),
            options=table.options,
        )
    except lc.LakecoreError as error:
        return error
    return None
