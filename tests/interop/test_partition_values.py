"""Values of partitions that data files do not hold: the manifest alone knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TYPES = {"id": "INT", "v": "STRING", "added": "INT", "day": "DATE", "region": "STRING"}


def hive_files(folder: Path, file_format: str, first: int) -> None:
    """Two files without the columns of the partition and an added one, one of a single row."""
    folder.mkdir(parents=True)
    for number, rows in enumerate((1, 3)):
        ids = list(range(first + 10 * number, first + 10 * number + rows))
        table = pa.table({"id": pa.array(ids, pa.int32()), "v": [f"hive {i}" for i in ids]})
        path = str(folder / f"00000{number}_0")
        if file_format == "orc":
            orc.write_table(table, path)
        else:
            pq.write_table(table, path)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_columns_of_the_partition_come_from_the_manifest(
    file_format: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "t"
    case = Case(
        name="migrated",
        columns=tuple(Column(key, parse_type(kind)) for key, kind in TYPES.items()),
        commits=(),
        partition_keys=("day", "region"),
        options={"file.format": file_format, "partition.legacy-name": "false"},
    )
    java.create(path, case)
    for first, day, region in ((100, "2024-01-01", "north"), (200, "2024-01-02", None)):
        hive_files(tmp_path / str(first), file_format, first)
        java.adopt(path, [day, region], tmp_path / str(first), file_format)

    def same_rows() -> list[list[Any]]:
        rows = sorted(ours.read(path), key=str)
        assert rows == sorted(java.read(path), key=str)
        return rows

    assert len(same_rows()) == 8
    table = lc.open_table(path)
    north = "region = 'north' and day = date '2024-01-01'"
    assert table.to_polars(where=north)["id"].sort().to_list() == [100, 110, 111, 112]
    assert table.to_polars(["region"], "region is null")["region"].to_list() == [None] * 4
    assert table.to_polars(["id"], "id > 200")["id"].sort().to_list() == [210, 211, 212]
    assert table.to_polars(["id"], "region = 'north' or id = 210")["id"].len() == 5
    assert set(table.to_duckdb().select("region").fetchall()) == {("north",), (None,)}

    ours.write(path, (("+I", [1, "ours", 5, "2024-01-01", "north"]),))
    java.write(path, (("+I", [2, "theirs", 6, "2024-01-02", None]),))
    assert len(same_rows()) == 10
    assert table.to_polars(["id"], "added > 0")["id"].sort().to_list() == [1, 2]
    assert table.to_polars(["id"], "added is null").height == 8
    assert table.update({"v": "'new'"}, "id = 100").rows_updated == 1
    assert table.delete("id = 211").rows_deleted == 1
    assert len(same_rows()) == 9
    table.refresh().compact(full=True)
    assert len(same_rows()) == 9
    java.compact(path, full=True)
    assert len(same_rows()) == 9


@pytest.mark.parametrize("precision", [3, 9])
def test_partition_in_the_last_second_before_1970_is_not_what_orc_says(
    precision: int, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "t"
    kind = parse_type(f"TIMESTAMP({precision})")
    case = Case(
        name="before 1970",
        columns=(Column("id", parse_type("INT")), Column("p", kind), Column("v", kind)),
        commits=(),
        partition_keys=("p",),
        options={"file.format": "orc"},
    )
    digits = "123456789"[:precision]
    seconds = ("1969-12-31T23:59:58", "1969-12-31T23:59:59", "1970-01-01T00:00:00")
    times = [f"{second}.{digits}" for second in seconds]
    java.create(path, case)
    java.write(path, tuple(("+I", [i, time, None]) for i, time in enumerate(times)))

    assert sorted(LakecoreEngine().read(path)) == sorted(java.read(path))
    assert [row[1] for row in sorted(java.read(path))] == times


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_columns_that_migrated_files_lack_are_null_whatever_their_default(
    file_format: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, path = peers(limits.JAVA), LakecoreEngine(), tmp_path / "db.db" / "t"
    types = {"id": "INT", "v": "STRING", "d": "INT", "r": "ROW<a STRING, b STRING>"}
    case = Case(
        name="defaults",
        columns=tuple(Column(key, parse_type(kind)) for key, kind in types.items()),
        commits=(),
        options={"file.format": file_format},
    )
    java.create(path, case)

    def alter(*changes: Any) -> None:
        lc.connect(tmp_path).alter_table("db.t", list(changes))

    def adopt(name: str, **columns: list[Any]) -> None:
        (tmp_path / name).mkdir()
        table, file = pa.table(columns), str(tmp_path / name / name)
        if file_format == "orc":
            orc.write_table(table, file)
        else:
            pq.write_table(table, file)
        java.adopt(path, [], tmp_path / name, file_format)

    def same_rows() -> list[list[Any]]:
        rows = sorted(ours.read(path), key=str)
        assert rows == sorted(java.read(path), key=str)
        return rows

    change = lc.SchemaChange
    alter(change.update_column_default_value("d", "42"))
    adopt("first", v=["one"], r=[{"x": "x", "b": "b", "a": "a"}])
    assert same_rows() == [[None, "one", None, ["a", "b"]]]
    ours.write(path, (("+I", [1, "two", None, None]),))
    java.write(path, (("+I", [2, "two", None, None]),))
    assert [row[2] for row in same_rows()] == [42, 42, None]

    alter(change.drop_column("v"), change.rename_column("d", "e"))
    alter(change.add_column("v", "STRING"), change.add_column("z", "INT"))
    alter(change.update_column_default_value("z", "7"))
    assert [row[3:] for row in same_rows()] == [[None, None]] * 3
    adopt("second", v=["three"])
    assert [row[3:] for row in same_rows()].count(["three", None]) == 1
    table = lc.open_table(path)
    assert table.to_polars(where="z is null").height == 4
    assert table.to_polars(where="z = 7").height == 0
    assert table.to_polars(["e"], "e is null").height == 2
