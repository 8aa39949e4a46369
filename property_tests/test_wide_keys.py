"""A few rows into many, whatever the key: nothing is lost, and the changelog tells of all of it.

Keys of one to four columns are drawn from hundreds of values, into levels of many row groups and
files, so that look-ups and windows meet the ends of both. The rows of a table, and those that its
changelog comes to, must be what the model says.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.io.files.file_format import WriteFormat
from lakecore.testing import Model, apply_changes, assert_same_rows
from property_tests.profile import sized
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[Any, ...]

NUMBERED: dict[str, Callable[[int], Any]] = {
    "INT": lambda number: number * 3 - 700,
    "BIGINT": lambda number: (number - 250) * 2**45,
    "BOOLEAN": lambda number: number % 2 == 1,
    "DECIMAL(20, 3)": lambda number: Decimal(number * 7 - 1500).scaleb(-3),
    "DOUBLE": lambda number: (number - 200) / 8,
    "DATE": lambda number: date(1969, 6, 1) + timedelta(days=number),
    "TIMESTAMP(6)": lambda number: datetime(1969, 12, 31) + timedelta(microseconds=number * 7919),
    "STRING": lambda number: f"{'prefix/' * 6}{number:x}",
    "BINARY(4)": lambda number: (number * 2_654_435_761 % 2**32).to_bytes(4),
}
"""For each type, a value of each number."""
ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {"changelog_producer": "lookup"},
    "partial-update": {"changelog_producer": "lookup", "merge_engine": "partial-update"},
    "aggregation": {
        "changelog_producer": "lookup",
        "merge_engine": "aggregation",
        "fields__v__aggregate_function": "sum",
    },
    "first-row": {"merge_engine": "first-row", "changelog_producer": "lookup"},
    "full-compaction": {"changelog_producer": "full-compaction"},
    "force-lookup": {"force_lookup": "true", "merge_engine": "partial-update"},
}
SHAPES = st.fixed_dictionaries(
    {
        "types": st.lists(st.sampled_from([*NUMBERED]), min_size=1, max_size=4),
        "group_rows": st.sampled_from([3, 20, 150]),
        "target-file-size": st.sampled_from(["1 kb", "8 kb", "128 mb"]),
        "num-sorted-run.compaction-trigger": st.sampled_from(["2", "5"]),
        "num-levels": st.sampled_from(["3", "6"]),
        "upserts": st.integers(2, 6),
        "seed": st.integers(0, 2**32),
    }
)


@pytest.mark.parametrize("engine", ENGINES)
@given(drawn=SHAPES)
@settings(max_examples=settings().max_examples // 3)
def test_few_rows_into_many(engine: str, drawn: dict[str, Any]) -> None:
    chance = random.Random(drawn["seed"])
    kinds: list[str] = drawn["types"]
    names = [f"k{number}" for number in range(len(kinds))]
    columns = {name: f"{kind} NOT NULL" for name, kind in zip(names, kinds, strict=True)}
    stated = ("target-file-size", "num-sorted-run.compaction-trigger", "num-levels")
    table = new_table(
        {**columns, "v": "BIGINT", "w": "STRING"},
        keys=names,
        write_only="true",
        **ENGINES[engine],
        **{name: drawn[name] for name in stated},
    )
    pool = _pool(kinds, chance)
    model = Model(table.schema)
    with pytest.MonkeyPatch.context() as patch:
        small = partial(WriteFormat, row_group_rows=drawn["group_rows"])
        patch.setattr("lakecore.table.run_writer.file_shape.WriteFormat", small)
        for number in range(drawn["upserts"]):
            count = len(pool) // 2 if number == 0 else chance.choice([1, 3, 20])
            keys = chance.sample(pool, min(count, len(pool)))
            rows = model.arrow(_written(engine, keys, names, chance))
            table.write(rows)
            model.write(rows)
            table.compact(full=number == 0 or engine == "full-compaction")

    assert_same_rows(table, model)
    if engine != "force-lookup":
        assert_same_rows(apply_changes(table.changes(), names), model)


def _pool(kinds: list[str], chance: random.Random) -> list[Key]:
    """Keys whose columns take few values at first, and many at last."""
    sizes = [*[3] * (len(kinds) - 1), sized(400, quick=200)]
    chance.shuffle(sizes)
    keys = {
        tuple(
            NUMBERED[kind](chance.randrange(size)) for kind, size in zip(kinds, sizes, strict=True)
        )
        for _ in range(sized(600, quick=300))
    }
    return sorted(keys)


def _written(engine: str, keys: list[Key], names: list[str], chance: random.Random) -> list[Any]:
    takes_deletions = engine in ("deduplicate", "full-compaction")
    return [
        {
            **dict(zip(names, key, strict=True)),
            "v": chance.choice([None, 1, 2, 3]),
            "w": chance.choice([None, "a", "b"]),
            "_row_kind": "-D" if takes_deletions and chance.random() < 0.2 else "+I",
        }
        for key in keys
    ]
