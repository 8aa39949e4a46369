"""How levels count does not change under rows that lie in several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "a"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
}
LOOKUP = {"changelog-producer": "lookup"}
SET_LOOKUP = SchemaChange.set_option("changelog-producer", "lookup")
SET_NONE = SchemaChange.set_option("changelog-producer", "none")


def in_two_levels(path: Path, engine: str, **options: str) -> tuple[lc.Session, Table]:
    """A table with rows of one key in two levels above 0."""
    session = lc.connect(path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL", "a": "INT", "b": "STRING"},
        primary_keys=["id"],
        options={
            "bucket": "1",
            "write-only": "true",
            "num-sorted-run.compaction-trigger": "2",
            **ENGINES[engine],
            **options,
        },
    )
    table.write([{"id": key, "a": 1, "b": None} for key in range(3000)])
    table.compact(full=True)
    for _ in range(2):
        table.write([{"id": 1, "a": 2, "b": "x"}])
    table.compact()
    assert sorted(table.inspect.files()["level"]) == [1, 2]
    return session, table


@pytest.mark.parametrize("engine", ["deduplicate by sequence", "partial-update", "aggregation"])
def test_lookup_comes_only_after_a_full_compaction(engine: str, tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, engine)
    rows = sorted(table.to_polars().rows())

    with pytest.raises(InvalidRequest, match="compact the table in full first"):
        session.alter_table("d.t", [SET_LOOKUP])
    with pytest.raises(InvalidRequest, match="compact the table in full first"):
        table.copy(LOOKUP)
    table.compact(full=True)
    session.alter_table("d.t", [SET_LOOKUP])

    assert sorted(session.get_table("d.t").to_polars().rows()) == rows


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_lookup_goes_only_after_a_full_compaction(engine: str, tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, engine, **LOOKUP)
    rows = sorted(table.to_polars().rows())

    with pytest.raises(InvalidRequest, match="compact the table in full first"):
        session.alter_table("d.t", [SET_NONE])
    table.compact(full=True)
    session.alter_table("d.t", [SET_NONE])

    assert sorted(session.get_table("d.t").to_polars().rows()) == rows


def test_newest_rows_are_the_same_either_way(tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, "deduplicate")
    rows = sorted(table.to_polars().rows())
    for change in (SET_LOOKUP, SET_NONE):
        session.alter_table("d.t", [change])
        assert sorted(session.get_table("d.t").to_polars().rows()) == rows
