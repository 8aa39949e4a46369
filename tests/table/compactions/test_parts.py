"""A compaction in parts between keys makes the rows that the whole makes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.model.rows import ROW_KIND
from lakecore.plan.predicate.language import keys_between
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.compactions.compact_plan import BucketCompaction
from lakecore.table.compactions.compact_work import WorkKind, do_work, plan_work
from tests.tables import held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"k": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT", "w": "STRING"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "input": {"changelog_producer": "input"},
    "partial_update": {"merge_engine": "partial-update"},
    "aggregation": {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"},
}


def table_of(seed: int, **options: str) -> Table:
    """A table of one bucket with a run in the last level and several above."""
    chance = random.Random(seed)
    stated: dict[str, Any] = {"write_only": "true", **options}
    table = new_table(COLUMNS, keys=("k", "id"), **stated)
    deletes = "merge_engine" not in options
    for number in range(4):
        rows = [
            {
                "k": chance.choice(["a", "b", "ü"]),
                "id": chance.randrange(60),
                "v": chance.randrange(9),
                "w": chance.choice(["x", None]),
                ROW_KIND: chance.choice(["+I", "+I", "-D"]) if deletes else "+I",
            }
            for _ in range(150)
        ]
        table.write(rows)
        if number == 1:
            table.compact(full=True)
    return table


def planned(table: Table) -> BucketCompaction:
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    entries = context.history.live_entries(snapshot)
    (work,) = plan_work(context, snapshot, entries, WorkKind(full=True))
    assert isinstance(work, BucketCompaction)
    return work


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_parts_make_together_what_the_whole_makes(engine: str, seed: int) -> None:
    whole, table = (table_of(seed, **ENGINES[engine]) for _ in range(2))
    whole.compact(full=True)
    work = planned(table)
    assert work.can_be_cut(table.options)
    names = {file.name for file in work.files}
    texts = [("a", 30), ("b", 0), ("b", 0), ("b", 59), ("z", 1)]
    cuts = [(pa.scalar(text), pa.scalar(number, pa.int32())) for text, number in texts]
    bounds = zip([None, *cuts], [*cuts, None], strict=True)
    parts = [work.part(keys_between(("k", "id"), *each), names) for each in bounds]
    messages = [do_work(table.context, part, lambda _: None) for part in parts]
    assert messages[2].compact_after == ()
    joined = replace(
        work.joined(messages), base_snapshot_uuid=table.context.history.snapshot(5).uuid
    )
    commit(table.context, CommitRequest(messages=[joined], user="job"))

    table = reopened(table)
    assert held(table) == held(whole)
    assert set(table.inspect.files()["level"]) == {5}
    assert (
        table.inspect.files()["record_count"].sum() == whole.inspect.files()["record_count"].sum()
    )
    put(table, "a 1 7 z | b 59 8 z")
    table.compact(full=True)
    put(whole, "a 1 7 z | b 59 8 z")
    assert held(table) == held(whole)


@pytest.mark.parametrize(
    "options",
    [
        {"changelog_producer": "lookup"},
        {"changelog_producer": "full-compaction"},
        {"merge_engine": "first-row"},
        {"deletion_vectors__enabled": "true"},
    ],
)
def test_what_looks_up_marks_or_tells_is_not_cut(options: dict[str, str]) -> None:
    table = table_of(0, **{"merge_engine": "deduplicate", **options})

    assert not planned(table).can_be_cut(table.options)


def test_newer_runs_above_older_ones_are_not_cut() -> None:
    table = table_of(0)
    work = planned(table)
    deeper = replace(work.files[0], level=work.level + 1)

    assert work.can_be_cut(table.options)
    assert not replace(work, others=(deeper,)).can_be_cut(table.options)
