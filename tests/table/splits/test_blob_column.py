"""BLOB values, which are read from separate files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import CorruptTable
from lakecore.table.splits.read import BlobColumn
from tests.blob_files import SAME, put_blobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.handle import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Six rows in two files, with a BLOB column that has no values yet."""
    columns = {"k": "INT", "v": "STRING", "b": "INT"}
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    made = lc.open_table(tmp_path / "t", create=True, schema=columns, options=options)
    for first in (0, 3):
        made.write([{"k": key, "v": f"v{key}"} for key in range(first, first + 3)])
    # These files lack the BLOB column, because lakecore writes none.
    schema = tmp_path / "t" / "schema" / "schema-0"
    stated = json.loads(schema.read_text())
    stated["fields"][2] |= {"id": 3, "type": "BLOB"}
    stated["highestFieldId"] = 3
    stated["id"] = 1
    schema.with_name("schema-1").write_text(json.dumps(stated))
    return lc.open_table(tmp_path / "t")


def blobs(table: Table) -> list[bytes | None]:
    return table.to_polars().sort("k")["b"].to_list()


def test_values_are_those_of_the_newest_file(table: Table) -> None:
    put_blobs(table, "b", [b"a", None], 0)
    put_blobs(table, "b", [b"c"], 2)
    put_blobs(table, "b", [b"d", b"e" * 100_000, b""], 3)
    assert blobs(table) == [b"a", None, b"c", b"d", b"e" * 100_000, b""]

    put_blobs(table, "b", [SAME, b"B", None], 0)
    put_blobs(table, "b", [b"D", SAME, SAME], 3)
    assert blobs(table) == [b"a", b"B", None, b"D", b"e" * 100_000, b""]
    assert table.to_polars(where="k = 3").rows() == [(3, "v3", b"D")]
    assert table.to_polars(["v"])["v"].sort().to_list() == [f"v{key}" for key in range(6)]
    assert table.to_arrow(["b"], "k >= 4")["b"].null_count == 0
    assert table.count() == 6


def test_values_of_any_size_that_adjoin_are_read_at_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges, values = list[tuple[int, int]](), BlobColumn._values  # noqa: SLF001

    def noted(self: BlobColumn, begin: int, end: int) -> Iterator[object]:
        ranges.append((begin, end))
        return values(self, begin, end)

    put_blobs(table, "b", [b"a", b"bcd", b"ef"], 0)
    put_blobs(table, "b", [b"g", None, b"h"], 3)
    monkeypatch.setattr(BlobColumn, "_values", noted)

    assert blobs(table) == [b"a", b"bcd", b"ef", b"g", None, b"h"]
    assert sorted(end - begin for begin, end in ranges) == [1, 1, 3]


def test_descriptors_say_where_values_are(table: Table) -> None:
    path = put_blobs(table, "b", [b"abc", None, b"de"], 0)
    put_blobs(table, "b", [b"", b"", b""], 3)

    view = table.copy({"blob-as-descriptor": "true"})
    found = view.to_polars(where="k < 3").sort("k")["b"].to_list()
    assert found[1] is None
    data = Path(path).read_bytes()
    for descriptor, value in ((found[0], b"abc"), (found[2], b"de")):
        (length,) = struct.unpack("<i", descriptor[9:13])
        offset, size = struct.unpack("<qq", descriptor[13 + length :])
        assert descriptor[13 : 13 + length].decode() == path
        assert data[offset : offset + size] == value


def test_a_value_that_no_file_has_is_null(table: Table) -> None:
    put_blobs(table, "b", [b"a", SAME], 0)

    assert blobs(table) == [b"a", None, None, None, None, None]


def test_damaged_values_and_lost_files_are_found(table: Table) -> None:
    path = Path(put_blobs(table, "b", [b"a", b"b", b"c"], 0))
    put_blobs(table, "b", [b"", b"", b""], 3)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"z" + data[5:])
    with pytest.raises(CorruptTable, match="a BLOB value is damaged"):
        table.to_polars()
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptTable, match="size of a data file differs"):
        table.to_polars()
    path.unlink()
    with pytest.raises(CorruptTable, match="missing"):
        table.to_polars()
    assert table.to_polars(["k"]).height == 6
