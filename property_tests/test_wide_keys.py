"""A few rows into many, whatever the key: nothing is lost, and the changelog tells of all of it.

Keys of one to four columns are drawn from hundreds of values, into levels of many row groups and
files, so that look-ups and windows meet the ends of both. The rows of a table, and those that its
changelog comes to, must be what a dict says.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.io.files.file_format import WriteFormat
from property_tests.profile import sized
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

Key = tuple[Any, ...]
Row = tuple[int | None, str | None]

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
    model: dict[Key, Row] = {}
    with pytest.MonkeyPatch.context() as patch:
        small = partial(WriteFormat, row_group_rows=drawn["group_rows"])
        patch.setattr("lakecore.table.run_writer.file_shape.WriteFormat", small)
        for number in range(drawn["upserts"]):
            count = len(pool) // 2 if number == 0 else chance.choice([1, 3, 20])
            _write(table, engine, chance.sample(pool, min(count, len(pool))), model, chance)
            table.compact(full=number == 0 or engine == "full-compaction")

    assert _rows(table.to_arrow(), names) == model
    if engine != "force-lookup":
        assert _replayed(table, names) == model


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


def _write(
    table: Table, engine: str, keys: list[Key], model: dict[Key, Row], chance: random.Random
) -> None:
    takes_deletions = engine in ("deduplicate", "full-compaction")
    rows, kinds = [], []
    for key in keys:
        row: Row = (chance.choice([None, 1, 2, 3]), chance.choice([None, "a", "b"]))
        kind = "-D" if takes_deletions and chance.random() < 0.2 else "+I"
        rows.append((*key, *row))
        kinds.append(kind)
        before = model.get(key)
        if kind == "-D":
            model.pop(key, None)
        elif before is None or takes_deletions:
            model[key] = row
        elif engine != "first-row":
            model[key] = _folded(engine, before, row)
    schema = table.schema.arrow
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    arrow = pa.Table.from_arrays(arrays, schema=schema)
    table.write(arrow.append_column("_row_kind", pa.array(kinds)))


def _folded(engine: str, before: Row, row: Row) -> Row:
    text = before[1] if row[1] is None else row[1]
    if before[0] is None or row[0] is None:
        return (before[0] if row[0] is None else row[0]), text
    return (before[0] + row[0] if engine == "aggregation" else row[0]), text


def _rows(rows: pa.Table, names: list[str]) -> dict[Key, Row]:
    found = {tuple(row[name] for name in names): (row["v"], row["w"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key comes twice"
    return found


def _replayed(table: Table, names: list[str]) -> dict[Key, Row]:
    """What the changelog comes to; each row that goes must be the one that was there."""
    found: dict[Key, Row] = {}
    for row in table.changes().collect().to_arrow().to_pylist():
        key = tuple(row[name] for name in names)
        if row["_row_kind"] in ("-U", "-D"):
            assert found.pop(key) == (row["v"], row["w"])
        else:
            assert key not in found
            found[key] = (row["v"], row["w"])
    return found
