"""BLOB values are written to files of their own, and read back."""

from __future__ import annotations

import random
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.blob_file import encode_entry, encode_index
from lakecore.io.stores.store import MemoryStore
from lakecore.table.run_writer.blobs import BlobOutput
from tests.blob_files import SAME, blob_file
from tests.stores import FailingStore
from tests.tables import in_directory, new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

COLUMNS = {"k": "INT", "b": "BLOB", "v": "STRING", "c": "BLOB"}
VALUES = [b"ab", None, b"", b"x" * 300, b"\x00\xff"]


def with_blobs(columns: dict[str, str] | None = None, **options: Any) -> Table:
    options = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"} | options
    return new_table(columns or COLUMNS, keys=(), **options)


def source(values: list[bytes | None], first: int = 0) -> list[dict[str, object]]:
    return [
        {"k": first + at, "b": value, "v": f"v{first + at}", "c": b"c%d" % (first + at)}
        for at, value in enumerate(values)
    ]


def read(table: Table, **arguments: Any) -> list[dict[str, object]]:
    return table.to_polars(**arguments).sort("k").rows(named=True)


def files(table: Table, suffix: str) -> list[tuple[object, ...]]:
    shown = table.inspect.files().sort("first_row_id", "file_path")
    rows = shown.select("file_path", "write_cols", "first_row_id", "record_count").rows()
    return [row[1:] for row in rows if str(row[0]).endswith(suffix)]


def test_bytes_of_a_file_are_those_of_java() -> None:
    values = [b"ab", None, b"", SAME, b"x" * 300]
    entries = [
        each for value in values if isinstance(value, bytes) for each in encode_entry([value])
    ]
    written = b"".join(entries) + encode_index([18, -1, 16, -2, 316])

    assert written == blob_file(values)


def test_values_are_read_as_they_were_written() -> None:
    table = with_blobs()
    table.write(source(VALUES))
    table.write(source([b"more"], 5))

    assert read(table) == source([*VALUES, b"more"])
    assert read(table, where="k = 3") == source(VALUES)[3:4]
    assert table.to_polars(["v"])["v"].sort().to_list() == [f"v{at}" for at in range(6)]
    assert (table.count(), table.count("b is null")) == (6, 1)
    assert files(table, ".blob") == [
        (["b"], 0, 5),
        (["c"], 0, 5),
        (["b"], 5, 1),
        (["c"], 5, 1),
    ]
    assert files(table, ".parquet") == [(["k", "v"], 0, 5), (["k", "v"], 5, 1)]
    ids = table.inspect.system_table("row_tracking").to_polars().sort("k")
    assert ids["_ROW_ID"].to_list() == [0, 1, 2, 3, 4, 5]
    assert ids["_SEQUENCE_NUMBER"].to_list() == [1, 1, 1, 1, 1, 2]


def test_files_of_values_have_the_target_size() -> None:
    table = with_blobs(blob__target_file_size="1 kb")
    values: list[bytes | None] = [b"x" * 600, None, b"y" * 600, b"z", b"w" * 2000, b"last"]
    table.write(source(values))

    assert read(table) == source(values)
    assert [row for row in files(table, ".blob") if row[0] == ["b"]] == [
        (["b"], 0, 3),
        (["b"], 3, 2),
        (["b"], 5, 1),
    ]
    assert files(table, ".parquet") == [(["k", "v"], 0, 6)]


def test_rows_of_several_files_have_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakecore.table.run_writer.file_shape._LOOK_BYTES_MIN", 1 << 12)
    table = with_blobs(target_file_size="16 kb", blob__target_file_size="40 kb")
    values: list[bytes | None] = [bytes([at % 251]) * 900 for at in range(2000)]
    rows = source(values)
    drawn = random.Random(1)
    for row in rows:
        row["v"] = drawn.randbytes(50).hex()
    table.write(rows)

    assert len(files(table, ".parquet")) > 2
    assert read(table) == rows
    assert table.copy({"target-file-size": "100 mb"}).compact(full=True).files_after == 1
    assert read(table) == rows
    assert files(table, ".parquet") == [(["k", "v"], 0, 2000)]


def test_values_are_updated_by_placeholders() -> None:
    table = with_blobs(deletion_vectors__enabled="true")
    table.write(source(VALUES))
    table.update({"b": b"new", "v": "w"}, "k in (1, 3)")
    table.delete("k = 0")
    table.update({"c": None}, "k = 4")
    merge = table.merge([{"k": 2, "b": b"merged"}, {"k": 9, "b": b"nine"}], on="k")
    merge.when_matched_update({"b": pl.col("source.b")}).when_not_matched_insert(
        {"k": pl.col("source.k"), "b": pl.col("source.b")}
    ).execute()

    assert read(table) == [
        {"k": 1, "b": b"new", "v": "w", "c": b"c1"},
        {"k": 2, "b": b"merged", "v": "v2", "c": b"c2"},
        {"k": 3, "b": b"new", "v": "w", "c": b"c3"},
        {"k": 4, "b": VALUES[4], "v": "v4", "c": None},
        {"k": 9, "b": b"nine", "v": None, "c": None},
    ]
    assert (["c"], 0, 5) in files(table, ".blob")
    before = read(table)
    assert table.compact(full=True).files_before > 1
    assert read(table) == before


def test_descriptors_of_written_values() -> None:
    table = with_blobs()
    table.write(source(VALUES))
    found = table.copy({"blob-as-descriptor": "true"}).to_polars().sort("k")["b"].to_list()
    (length,) = struct.unpack("<i", found[3][9:13])
    path = found[3][13 : 13 + length].decode()
    offset, size = struct.unpack("<qq", found[3][13 + length :])

    assert table.context.store.read(path)[offset : offset + size] == VALUES[3]
    assert found[1] is None
    table.write([{"k": 9, "b": found[3], "c": found[0]}])
    assert read(table, where="k = 9")[0]["b"] == VALUES[3]
    assert len(files(table, ".blob")) == 4


def test_binary_columns_that_the_option_names_are_blobs() -> None:
    columns = {"k": "INT", "b": "BYTES", "n": "BYTES"}
    table = with_blobs(columns, blob_field="b")
    table.write([{"k": 1, "b": b"a", "n": b"b"}])

    assert [str(field.type) for field in table.schema.fields] == ["INT", "BLOB", "BYTES"]
    assert read(table) == [{"k": 1, "b": b"a", "n": b"b"}]
    with pytest.raises(InvalidRequest, match="blob-field names a column that is not a BLOB"):
        with_blobs(columns, blob_field="k")
    with pytest.raises(InvalidRequest, match="blob-field names a column that is not a BLOB"):
        with_blobs(columns, blob_field="x")


def test_tables_that_may_not_have_blob_columns() -> None:
    for columns, options, error, match in (
        ({"b": "BLOB"}, {}, InvalidRequest, "needs another column"),
        ({"k": "INT", "b": "ROW<a BLOB>"}, {}, InvalidRequest, "elements of a list"),
        ({"k": "INT", "b": "BLOB"}, {"data_evolution__enabled": "false"}, InvalidRequest, "needs"),
        ({"k": "INT", "b": "BLOB"}, {"partitions": ["b"]}, InvalidRequest, "partition key"),
    ):
        with pytest.raises(error, match=match):
            with_blobs(columns, **options)


class OneRefusal(FailingStore):
    """Refuses the opening of one output, and works again."""

    def __init__(self, inner: Store, refused: int) -> None:
        super().__init__(inner)
        self.refused = refused
        self.opened = 0

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self.opened += 1
        if self.opened == self.refused:
            raise OSError("refused")
        with super().open_output(path) as output:
            yield output


@pytest.mark.parametrize("refused", range(1, 7))
def test_failed_write_leaves_no_file(refused: int) -> None:
    table = with_blobs(blob__target_file_size="1 kb")
    store = OneRefusal(table.context.store, refused)
    with pytest.raises(OSError, match="refused"):
        reopened(table, store=store).write(source([b"x" * 700] * 7))

    assert in_directory(table, "bucket-0") == set()
    table.write(source([b"x" * 700] * 7))
    assert table.count() == 7


def test_rows_larger_than_memory_are_written_one_by_one() -> None:
    table = with_blobs(budget_bytes=1 << 20)

    def batches() -> Any:
        for at in range(8):
            value = bytes([at]) * (1 << 19)
            yield pa.table({"k": pa.array([at], pa.int32()), "b": pa.array([value], pa.binary())})

    table.write(batches())
    found = {row["k"]: row["b"] for row in read(table, columns=["k", "b"])}
    assert found == {at: bytes([at]) * (1 << 19) for at in range(8)}
    assert table.context.budget.used_bytes == 0


def test_held_bytes_are_what_waits_and_an_open_file() -> None:
    output = BlobOutput(MemoryStore(), "memory://w/data-0.blob")
    output.add([b"abc"])
    assert 3 < output.held_bytes < 100

    output.add([b"x" * (1 << 20)])

    assert output.held_bytes == 4 << 20  # nothing waits: the file is open
    output.abort()
