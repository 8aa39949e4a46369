from __future__ import annotations

import json
import re
import time
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest, NotFound, Unsupported
from lakecore.table.system.inspect import Inspect
from lakecore.table.system.system_columns import (
    SYSTEM_TABLES,
    UNSUPPORTED_SYSTEM_TABLES,
    system_schema,
)
from tests.tables import new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.handle import Table

GOLDEN = Path(__file__).parents[2] / "golden"
JAVA = json.loads((GOLDEN / "system_tables.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def golden_table(name: str) -> Table:
    path, _, option = name.partition("?")
    key, _, value = option.partition("=")
    return lc.open_table(GOLDEN / "fixtures" / path, options={key: value} if key else {})


def rows_of(table: Table, name: str) -> list[dict[str, Any]]:
    """The rows as the golden file has them: times as text, paths from the table on, no bytes."""
    rows: list[dict[str, Any]] = getattr(table.inspect, name)().to_dicts()
    for row in rows:
        for column, value in row.items():
            if isinstance(value, datetime):
                row[column] = value.isoformat(timespec="milliseconds")
        if name in ("files", "file_key_ranges"):
            row["file_path"] = row["file_path"].removeprefix(f"{table.path}/")
        if name == "branches":
            row["create_time"] = "<time>"
        if name == "files":
            for bound in ("min_value_stats", "max_value_stats"):
                row[bound] = re.sub(r"\b(bi|by|vb)=(?!null)[0-9a-f]*", r"\1=<bytes>", row[bound])
    return _settled(name, rows)


def rows_of_java(fixture: str, name: str) -> list[dict[str, Any]]:
    names = [column for column, _ in JAVA["columns"][name]]
    rows = [dict(zip(names, row, strict=True)) for row in JAVA["tables"][fixture][name]]
    for row in rows:
        for column, value in row.items():
            if isinstance(value, str) and column.endswith("_time") and value != "<time>":
                row[column] = datetime.fromisoformat(value).isoformat(timespec="milliseconds")
    return _settled(name, rows)


def _settled(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in an order of their own, where Java's is that of a hash map."""
    if name == "schemas":
        rows = [{**row, "options": json.loads(row["options"])} for row in rows]
    if name == "aggregation_fields":
        lists = ("function", "function_options")
        rows = [
            {**row, **{each: sorted(row[each][1:-1].split(", ")) for each in lists}} for row in rows
        ]
    key = {
        "files": "file_path",
        "file_key_ranges": "file_path",
        "options": "key",
        "schemas": "schema_id",
    }.get(name)
    return rows if key is None else sorted(rows, key=lambda row: row[key])


@pytest.mark.parametrize("name", SYSTEM_TABLES)
@pytest.mark.parametrize("fixture", JAVA["tables"])
def test_rows_are_those_of_java(fixture: str, name: str) -> None:
    if name == "buckets" and "scan." in fixture:
        fixture = fixture.partition("?")[0]  # Java's do not travel, ours do

    assert rows_of(golden_table(fixture), name) == rows_of_java(fixture, name)


def test_buckets_travel_with_the_files() -> None:
    then = golden_table("schema_evolution/table-head?scan.snapshot-id=3").inspect

    assert then.buckets()["record_count"].to_list() == [5]
    assert then.files()["record_count"].sum() == 5


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_columns_are_those_of_java_in_name_type_and_order(name: str) -> None:
    assert [[c.name, c.type] for c in SYSTEM_TABLES[name]] == JAVA["columns"][name]


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_docstring_names_every_column_and_its_type(name: str) -> None:
    text = " ".join((getattr(Inspect, name).__doc__ or "").split())
    items = [item.split(":")[0] for item in text.split(" - ")[1:]]
    documented = " ".join(items)

    for column in SYSTEM_TABLES[name]:
        base = column.type.removesuffix(" NOT NULL")
        assert re.search(rf"\b{column.name}\b[\w, ]*{re.escape(base)}", documented), column.name


def test_frames_have_the_types_that_are_declared() -> None:
    table = golden_table("pk_dedup_delete_avro/table-head")
    for name in SYSTEM_TABLES:
        frame = getattr(table.inspect, name)()

        assert frame.schema == pl.DataFrame(system_schema(name).arrow.empty_table()).schema


# --- tables made for a question -----------------------------------------------------------------


ONE_ROW = pl.DataFrame({"id": [1], "d": [date(2024, 1, 1)]})


@pytest.fixture
def empty(tmp_path: Path) -> Table:
    return lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT NOT NULL", "d": "DATE NOT NULL", "b": "BYTES", "f": "DOUBLE"},
        primary_keys=["id", "d"],
        partition_keys=["d"],
        options={"bucket": "2"},
    )


def test_empty_table_has_a_schema_and_options_and_nothing_else(empty: Table) -> None:
    counts = {name: getattr(empty.inspect, name)().height for name in SYSTEM_TABLES}

    assert counts == dict.fromkeys(SYSTEM_TABLES, 0) | {
        "schemas": 1,
        "options": 1,
        "aggregation_fields": 4,
    }


def test_files_partitions_and_buckets_count_the_same_rows(empty: Table) -> None:
    days = [date(1970, 1, 1)] * 3 + [date(2024, 10, 4)] * 2
    rows = pl.DataFrame({"id": range(5), "d": days})
    empty.write(rows)
    empty.write(rows.head(2))
    inspect = empty.inspect

    totals = {
        name: getattr(inspect, name)()["record_count"].sum()
        for name in ("files", "partitions", "buckets")
    }
    assert totals == {"files": 7, "partitions": 7, "buckets": 7}
    assert inspect.snapshots()["total_record_count"].to_list() == [5, 7]
    assert inspect.partitions()["partition"].to_list() == ["d=1970-01-01", "d=2024-10-04"]
    assert set(inspect.files()["partition"]) == {"{1970-01-01}", "{2024-10-04}"}
    assert inspect.manifests()["num_added_files"].sum() == inspect.files().height


def test_bounds_are_written_by_column_and_bytes_in_hex(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"n": "INT", "f": "FLOAT"})
    table.write(pl.DataFrame({"n": [3, None, 1], "f": [1.5, 1e10, None]}))
    (file,) = table.inspect.files().to_dicts()

    assert file["null_value_counts"] == "{f=1, n=1}"
    assert file["min_value_stats"] == "{f=1.5, n=1}"
    assert file["max_value_stats"] == "{f=1.0E10, n=3}"
    assert file["min_key"] is None


def test_bound_cut_so_that_it_is_no_value_of_the_new_type_is_not_shown(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"at": "STRING", "n": "STRING"})
    table.write([{"at": "2024-01-01 12:34:56.789", "n": "7"}])
    table.write([{"at": "2024-01-02", "n": "8"}])
    catalog.alter_table(
        "db.t",
        [
            lc.SchemaChange.update_column_type("at", "TIMESTAMP(3)"),
            lc.SchemaChange.update_column_type("n", "INT"),
        ],
    )

    files = catalog.get_table("db.t").inspect.files()

    assert files.select("min_value_stats", "max_value_stats").rows() == [
        ("{at=null, n=7}", "{at=null, n=7}"),
        ("{at=2024-01-02T00:00, n=8}", "{at=2024-01-02T00:00, n=8}"),
    ]


def test_scan_options_choose_the_snapshot_of_files(empty: Table) -> None:
    empty.write(ONE_ROW)
    empty.write(ONE_ROW)

    assert empty.inspect.files().height == 2
    assert empty.copy({"scan.snapshot-id": "1"}).inspect.files().height == 1
    with pytest.raises(NotFound, match="snapshot"):
        empty.copy({"scan.snapshot-id": "9"}).inspect.files()


def test_each_call_sees_the_table_as_it_is_then(empty: Table) -> None:
    inspect = empty.inspect
    before = inspect.snapshots().height
    empty.write(ONE_ROW)

    assert (before, inspect.snapshots().height) == (0, 1)


# --- as tables ----------------------------------------------------------------------------------


def test_system_table_has_the_faces_of_a_table() -> None:
    table = golden_table("schema_evolution/table-head")
    snapshots = table.inspect.system_table("snapshots")
    expected = table.inspect.snapshots()

    assert snapshots.identifier == f"{table.identifier}$snapshots"
    assert snapshots.schema.names == tuple(expected.columns)
    assert snapshots.to_polars().equals(expected)
    assert snapshots.scan().collect().equals(expected)
    assert snapshots.to_arrow().schema == snapshots.schema.arrow
    assert snapshots.to_batches().read_all() == snapshots.to_arrow()
    assert pa.Table.from_pandas(snapshots.to_pandas()).num_rows == expected.height
    assert snapshots.to_arrow_dataset().to_table().num_rows == expected.height
    assert snapshots.to_duckdb().aggregate("count(*)").fetchall() == [(expected.height,)]


def test_system_table_takes_columns_condition_and_limit() -> None:
    snapshots = golden_table("schema_evolution/table-head").inspect.system_table("snapshots")
    chosen = snapshots.to_polars(["snapshot_id"], "commit_kind = 'APPEND'", 2)

    assert chosen.to_dict(as_series=False) == {"snapshot_id": [1, 2]}
    assert snapshots.to_arrow(["snapshot_id"], pl.col("snapshot_id") > 4).to_pylist() == [
        {"snapshot_id": 5}
    ]
    with pytest.raises(InvalidRequest, match="a Polars frame cannot have a column twice"):
        snapshots.scan(["snapshot_id", "snapshot_id"])
    with pytest.raises(InvalidRequest, match="unknown column"):
        snapshots.scan(["snapshot"])
    with pytest.raises(InvalidRequest, match="unknown column"):
        snapshots.scan(where=pl.col("snapshot") > 4)


def test_system_table_cannot_be_written() -> None:
    files = golden_table("schema_evolution/table-head").inspect.system_table("files")
    with pytest.raises(InvalidRequest, match=r"can only be read.*verb=write"):
        files.write({})


@pytest.mark.parametrize("name", UNSUPPORTED_SYSTEM_TABLES)
def test_system_table_that_is_not_done_is_unsupported(name: str) -> None:
    table = golden_table("schema_evolution/table-head")
    with pytest.raises(
        Unsupported, match=r"is not supported\..*system_tables=\[snapshots, schemas"
    ):
        table.inspect.system_table(name)


@pytest.mark.parametrize("named", [{"snapshot_id": 1}, {"tag": "a"}, {"timestamp": 0}])
def test_system_table_of_another_time_is_refused(named: Any) -> None:
    snapshots: Any = golden_table("schema_evolution/table-head").inspect.system_table("snapshots")

    for face in (
        snapshots.scan,
        snapshots.to_batches,
        snapshots.to_arrow,
        snapshots.to_polars,
        snapshots.to_pandas,
        snapshots.to_arrow_dataset,
        snapshots.to_duckdb,
    ):
        with pytest.raises(InvalidRequest, match="a system table shows the present"):
            face(**named)
    assert snapshots.to_polars(snapshot_id=None).height > 0


def test_time_beyond_any_is_told_as_damage() -> None:
    table = new_table()
    put(table, "1 a")
    store, path = table.context.store, table.context.layout.snapshot(1)
    text = json.loads(store.read(path))
    store.put(path, json.dumps({**text, "timeMillis": 1 << 60}).encode())

    with pytest.raises(CorruptTable, match=f"time_ms={1 << 60}"):
        reopened(table).inspect.snapshots()
