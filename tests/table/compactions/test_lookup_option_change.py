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

    with pytest.raises(InvalidRequest, match="run a full compaction"):
        session.alter_table("d.t", [SET_LOOKUP])
    table.compact(full=True)
    session.alter_table("d.t", [SET_LOOKUP])

    assert sorted(session.get_table("d.t").to_polars().rows()) == rows


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_lookup_goes_only_after_a_full_compaction(engine: str, tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, engine, **LOOKUP)
    rows = sorted(table.to_polars().rows())

    with pytest.raises(InvalidRequest, match="run a full compaction"):
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


@pytest.mark.parametrize("engine", ["deduplicate by sequence", "partial-update", "aggregation"])
def test_no_single_object_looks_up_rows_otherwise(engine: str, tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, engine)
    table.compact(full=True)

    def refused(producer: str) -> None:
        options = {"changelog-producer": producer}
        with pytest.raises(InvalidRequest, match="alter the table"):
            session.get_table("d.t").copy(options)
        with pytest.raises(InvalidRequest, match="alter the table"):
            lc.open_table(table.path, options=options)

    refused("lookup")
    session.alter_table("d.t", [SET_LOOKUP])
    refused("none")


def test_one_object_may_look_up_rows_where_the_newest_counts_anyway(tmp_path: Path) -> None:
    _, table = in_two_levels(tmp_path, "deduplicate")

    assert table.copy(LOOKUP).to_polars().sort("id").equals(table.to_polars().sort("id"))


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@pytest.mark.parametrize("looked_up", [False, True])
def test_older_states_count_levels_as_they_did_then(
    engine: str, *, looked_up: bool, tmp_path: Path
) -> None:
    session, table = in_two_levels(tmp_path, engine, **(LOOKUP if looked_up else {}))
    rows = table.to_polars().sort("id")
    assert rows.row(1) == {"partial-update": (1, 2, "x"), "aggregation": (1, 5, "x")}[engine]
    (then,) = table.inspect.snapshots()["snapshot_id"].to_list()[-1:]
    table.compact(full=True)
    session.alter_table("d.t", [SET_NONE if looked_up else SET_LOOKUP])
    table = session.get_table("d.t")
    table.write([{"id": 2, "a": 7, "b": None}])
    table.copy({"write-only": "false"}).compact(full=True)
    now = table.inspect.snapshots()["snapshot_id"].to_list()[-1]

    assert table.scan(snapshot_id=then).collect().sort("id").equals(rows)
    by_options = table.copy({"scan.snapshot-id": str(then)})
    assert by_options.to_polars().sort("id").equals(rows)
    changed = table.copy({"incremental-between-scan-mode": "diff"}).changes(then, now).collect()
    assert changed["id"].unique().to_list() == [2]


def test_rows_that_an_overwrite_replaced_count_levels_as_they_did_then(tmp_path: Path) -> None:
    session, table = in_two_levels(tmp_path, "aggregation", **LOOKUP)
    rows = table.to_polars().sort("id")
    gone = table.overwrite([{"id": 2, "a": 7, "b": None}]).snapshot_id
    session.alter_table("d.t", [SET_NONE])
    table = session.get_table("d.t").copy({"streaming-read-overwrite": "true"})

    ((_, changes),) = table.stream(from_snapshot=gone, until=gone)
    told = changes.collect()
    deleted = told.filter(told["_row_kind"] == "-D").drop("_row_kind").sort("id")
    assert deleted.equals(rows)
