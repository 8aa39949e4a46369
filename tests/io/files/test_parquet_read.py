"""Of a row group that is larger than a batch, no more is in memory than some batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.variant import json_of_variants
from lakecore.io.files import parquet_read
from lakecore.io.files.data_files import open_writer, read_file, read_positions
from lakecore.io.files.file_checks import check_files, unchecked_bytes
from lakecore.io.files.file_format import BatchSize, Checks, WriteFormat
from lakecore.io.files.parquet_open import open_parquet
from lakecore.io.files.parquet_read import _Known, _Pieces, check_chunks
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import process_budget
from lakecore.model.types import Field, arrow_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MEBIBYTE = 1 << 20
FIELDS = (
    Field(id=0, name="k", type=parse_type("BIGINT NOT NULL")),
    Field(id=1, name="v", type=parse_type("BYTES")),
)


class OpenedFiles(LocalStore):
    """Counts how often a file is opened."""

    count = 0

    def open_input(self, path: str) -> pa.NativeFile:
        self.count += 1
        return super().open_input(path)


class CountedReads:
    """A file in memory, and the reads from it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.reads: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self._data)

    def read_at(self, size_bytes: int, start: int) -> bytes:
        self.reads.append((size_bytes, start))
        return self._data[start : start + size_bytes]


def payload(rows: int, width: int) -> pa.Array:
    ends = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    data = np.random.default_rng(1).bytes(rows * width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def read(path: Path, batch_bytes: int, fields: Sequence[Field] = FIELDS) -> tuple[int, int, int]:
    """Rows read, the greatest batch, and what Arrow held at most while reading."""
    before, held, greatest, seen = pa.total_allocated_bytes(), 0, 0, 0
    found = read_positions(LocalStore(), str(path), fields=fields, batch_bytes=batch_bytes)
    for at, batch in found:
        assert at == seen
        assert batch.column(0)[0].as_py() == at
        seen += batch.num_rows
        greatest = max(greatest, batch.nbytes)
        held = max(held, pa.total_allocated_bytes() - before)
        del batch
    return seen, greatest, held


def test_row_group_of_256_mib_is_read_in_batches_of_4(tmp_path: Path) -> None:
    rows = 256 << 10
    table = pa.table({"k": np.arange(rows), "v": payload(rows, 1 << 10)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False, compression="none")
    del table
    seen, greatest, held = read(path, 4 * MEBIBYTE)

    assert seen == rows
    assert greatest <= 4 * MEBIBYTE
    assert held <= 16 * MEBIBYTE


def test_text_that_a_dictionary_makes_small_is_measured_before_it_is_read(tmp_path: Path) -> None:
    rows = 100_000
    texts = pa.array([b"a" * 1_000, b"b" * 1_000]).take(pa.array(np.arange(rows) % 2))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(rows), "v": texts}), path, row_group_size=rows)
    assert path.stat().st_size < MEBIBYTE
    del texts
    seen, greatest, held = read(path, 2 * MEBIBYTE)

    assert seen == rows
    assert greatest <= 2 * MEBIBYTE
    assert held <= 12 * MEBIBYTE


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ARRAY<INT>", [7] * 250),
        ("ARRAY<STRING>", ["x" * 100] * 10),
        ("MAP<INT, STRING>", [(1, "x" * 500), (2, "y" * 500)]),
        ("ROW<a INT, b STRING>", {"a": 1, "b": "x" * 1_000}),
    ],
)
def test_nested_values_that_are_small_on_disk_are_read_in_small_batches(
    tmp_path: Path, kind: str, value: object
) -> None:
    rows = 50_000
    field = Field(id=1, name="v", type=parse_type(kind))
    path = tmp_path / "a.parquet"
    values = pa.array([value], arrow_type(field.type)).take(pa.array(np.zeros(rows, np.int64)))
    pq.write_table(pa.table({"k": np.arange(rows), "v": values}), path, row_group_size=rows)
    assert path.stat().st_size < MEBIBYTE
    del values
    seen, greatest, held = read(path, 2 * MEBIBYTE, (FIELDS[0], field))

    assert seen == rows
    assert greatest <= 2 * MEBIBYTE
    assert held <= 12 * MEBIBYTE


def test_texts_without_a_dictionary_are_decoded_once(tmp_path: Path) -> None:
    rows = 20_000
    table = pa.table({"k": np.arange(rows), "v": payload(rows, 100)})
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False)
    pq.write_table(table, tmp_path / "shared.parquet", use_dictionary=["v"])
    opened = {}
    for path in tmp_path.iterdir():
        store = OpenedFiles()
        list(read_positions(store, str(path), fields=FIELDS))
        opened[path.stem] = store.count

    assert opened == {"plain": 1, "shared": 2}


@pytest.mark.parametrize("batch_bytes", [1, 1_000, 1 << 30])
def test_batches_of_any_bytes_are_all_rows(tmp_path: Path, batch_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(500), "v": payload(500, 100)}), path)

    assert read(path, batch_bytes)[0] == 500


def _starts(
    path: Path, groups: Iterable[int] | None = None, *, rows: int = 1 << 20, size: int = 1 << 20
) -> list[tuple[int, int]]:
    """Where each batch begins, and its rows."""
    found = read_positions(
        LocalStore(),
        str(path),
        fields=FIELDS[:1],
        row_groups=groups,
        batch_rows=rows,
        batch_bytes=size,
    )
    return [(at, batch.num_rows) for at, batch in found]


def test_row_groups_that_are_neighbours_and_fit_a_batch_come_together(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"k": np.arange(6_000)})
    pq.write_table(table, path, row_group_size=1_000, use_dictionary=False)
    pairs = [(0, 2_000), (2_000, 2_000), (4_000, 2_000)]

    assert _starts(path) == [(0, 6_000)]
    assert _starts(path, [0, 1, 3, 5]) == [(0, 2_000), (3_000, 1_000), (5_000, 1_000)]
    assert _starts(path, rows=2_500) == pairs
    assert _starts(path, size=2_500 * 8) == pairs
    assert _starts(path, rows=700) == [(at, 500) for at in range(0, 6_000, 500)]


def test_row_groups_whose_texts_share_a_dictionary_stay_apart(tmp_path: Path) -> None:
    path, groups = tmp_path / "a.parquet", 40
    small = pa.table({"k": np.arange(5_000), "v": pa.array([b"a", b"b"] * 2_500)})
    with pq.ParquetWriter(path, small.schema) as writer:
        writer.write_table(small)
        for at in range(5_000, 5_000 + 100 * groups, 100):
            values = pa.array([b"x" * 50_000, b"y" * 50_000] * 50)
            writer.write_table(pa.table({"k": np.arange(at, at + 100), "v": values}))

    seen, greatest, _ = read(path, 16 * MEBIBYTE)

    assert seen == 5_000 + 100 * groups
    # One row group has 5 MB, and all of them less than 1 on disk.
    assert greatest <= 6 * MEBIBYTE


def test_row_group_is_not_asked_for_before_the_rows_of_the_last_are_given(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(60)}), path, row_group_size=10)
    asked: list[int] = []

    def wanted() -> Iterator[int]:
        for index in range(6):
            asked.append(index)
            yield index

    found = read_positions(LocalStore(), str(path), fields=FIELDS[:1], row_groups=wanted())

    assert [(at, asked[-1]) for at, _ in found] == [(10 * index, index) for index in range(6)]


def test_checked_files_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_read, "_KNOWN_CHUNKS_MAX", 14)
    known = _Known()
    first = known.of(("a",), (2, 3))
    known.of(("b",), (2, 3))
    assert known.of(("a",), (2, 3)) is first
    known.of(("c",), (1, 1))
    assert [known.find((name,)) is not None for name in "abc"] == [True, False, True]
    known.of(("d",), (1, 5))
    assert [known.find((name,)) is not None for name in "acd"] == [False, True, True]
    known.of(("e",), (1, 5))
    assert [known.find((name,)) is not None for name in "cde"] == [True, True, True]
    known.of(("f",), (100, 1))
    assert [known.find((name,)) is not None for name in "cdef"] == [False, False, False, True]


def with_page_checksums(path: Path) -> pq.FileMetaData:
    table = pa.table({"v": ["a text of many characters", "b"] * 50})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    return pq.read_metadata(path)


@pytest.mark.parametrize("header_bytes", [1, 4, 8 << 10])
def test_pages_are_checked_however_long_their_headers(
    header_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_read, "_HEADER_BYTES", header_bytes)
    path = tmp_path / "a.parquet"
    metadata = with_page_checksums(path)
    check_chunks(str(path), metadata, [0], [0], Checks.ALWAYS, pages=True)

    data = path.read_bytes()
    chunk = metadata.row_group(0).column(0)
    start = chunk.data_page_offset
    at = data.rindex(b"many", start, start + chunk.total_compressed_size)
    for damaged, what in (
        (data[:at] + b"some" + data[at + 4 :], "the checksum of a page"),
        (data[:start] + b"\xff" * 16 + data[start + 16 :], "the header of a page"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(CorruptTable, match=what):
            check_chunks(str(path), metadata, [0], [0], Checks.ALWAYS, pages=True)


def test_file_in_pieces_is_the_file() -> None:
    data = bytes(range(100))
    source = CountedReads(data)
    file = _Pieces(source, [(10, 20), (50, 10)])
    assert source.reads == [(20, 10), (10, 50)]
    assert file.tell() == 0
    source.reads.clear()

    for start in (0, 5, 9, 10, 20, 29, 30, 45, 50, 59, 60, 95, 100):
        for size in (0, 1, 5, 30, 1_000, -1):
            assert file.seek(start) == start
            end = 100 if size < 0 else min(100, start + size)
            assert file.read(size) == data[start:end]
            assert file.tell() == end
    source.reads.clear()
    file.seek(12)
    assert file.read(18) == data[12:30]
    assert source.reads == []
    file.seek(12)
    assert file.read(20) == data[12:32]
    assert source.reads == [(2, 30)]
    source.reads.clear()
    file.seek(95)
    assert file.read(1_000) == data[95:]
    assert source.reads == [(5, 95)]
    assert (file.seek(-3, 2), file.seek(1, 1), file.read()) == (97, 98, data[98:])
    assert not file.closed
    file.close()
    assert file.closed


@pytest.mark.parametrize(("large_bytes", "times"), [(0, 4), (1 << 30, 0)])
def test_memory_of_large_rows_is_given_back(
    large_bytes: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, budgets = tmp_path / "a.parquet", list[int]()
    rows = pa.table({"k": pa.array(range(40), pa.int64()), "v": payload(40, 10)})
    pq.write_table(rows, path, row_group_size=10)
    monkeypatch.setattr(parquet_read, "_LARGE_BYTES", large_bytes)
    monkeypatch.setattr(parquet_read, "release_freed", budgets.append)

    assert read(path, 100)[0] == 40
    assert len(budgets) >= times
    assert {*budgets} <= {process_budget().size_bytes}
    assert bool(budgets) is bool(times)


def test_batches_follow_the_size_of_the_rows_before(tmp_path: Path) -> None:
    path, texts = tmp_path / "a.parquet", [f"{at:01000}" for at in range(10)] * 400
    pq.write_table(pa.table({"v": [*texts, *texts]}), path, row_group_size=4_000)
    fields = [Field(id=0, name="v", type=parse_type("STRING"))]
    found = read_positions(LocalStore(), str(path), fields=fields, batch_bytes=1 << 20)

    sizes = [(at, rows.num_rows) for at, rows in found]
    assert sizes[0] == (0, 4_000)
    assert max(rows for at, rows in sizes if at >= 4_000) < 1_100


def test_rows_are_counted_by_one_column(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [1, 2, 3]}), path)
    ((_, rows),) = parquet_read.read_parquet(LocalStore(), path, [], BatchSize(10), None)

    assert (rows.num_rows, rows.schema.names) == (3, ["a"])


def test_bytes_in_memory_are_checked_unless_the_reader_forgoes_it() -> None:
    store, path, fields = MemoryStore(), "a.parquet", FIELDS[1:]
    writer = open_writer(store, path, fields, WriteFormat(compression="none"))
    writer.write(pa.table({"v": [b"first", b"second"]}))
    writer.close()
    store.put(path, store.read(path).replace(b"first", b"other", 1))

    def found(checks: Checks) -> pa.Table:
        batches = [rows for _, rows in read_positions(store, path, fields=fields, checks=checks)]
        return pa.Table.from_batches(batches)

    assert found(Checks.NEVER).column("v").to_pylist() == [b"other", b"second"]
    with pytest.raises(CorruptTable, match="checksum"):
        found(Checks.ONCE)


@pytest.mark.parametrize("columns", [255, 256])
def test_strings_of_many_columns_are_narrow(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, widths = tmp_path / "a.parquet", list[bool]()
    pq.write_table(pa.table({f"c{at}": ["x"] for at in range(columns)}), path)

    def noted(*given: Any, wide: bool = True, **named: Any) -> Any:
        widths.append(wide)
        return open_parquet(*given, wide=wide, **named)

    monkeypatch.setattr(parquet_read, "open_parquet", noted)
    fields = [Field(id=at, name=f"c{at}", type=parse_type("STRING")) for at in range(columns)]

    (batch,) = read_file(LocalStore(), str(path), fields=fields)
    assert batch.num_columns == columns
    assert (False in widths) is (columns >= 256)


def test_shredded_columns_are_read_whole(tmp_path: Path) -> None:
    kind = pa.struct(
        [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int32())]
    )
    names = bytes([1, 0, 0])
    values = [
        {"metadata": names, "value": None, "typed_value": 7},
        None,
        {"metadata": names, "value": b"\x04", "typed_value": None},
    ]
    path = tmp_path / "a.parquet"
    lists = pa.array([[value] for value in values], pa.list_(kind))
    pq.write_table(pa.table({"v": pa.array(values, kind), "l": lists, "n": [1, 2, 3]}), path)

    def batches(*types: tuple[str, str]) -> list[pa.RecordBatch]:
        fields = [
            Field(id=at, name=name, type=parse_type(kind)) for at, (name, kind) in enumerate(types)
        ]
        return list(read_file(LocalStore(), str(path), fields=fields))

    (batch,) = batches(("n", "BIGINT"), ("v", "VARIANT"))
    assert batch["n"].to_pylist() == [1, 2, 3]
    assert json_of_variants(batch["v"]).to_pylist() == ["7", None, "true"]
    with pytest.raises(Unsupported, match=r"shredded VARIANT is not read within.*column=l"):
        batches(("l", "ARRAY<VARIANT>"))


def test_bytes_to_check_are_those_of_files_not_yet_checked(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for path in paths:
        with_page_checksums(Path(path))
    store, size_bytes = LocalStore(), Path(paths[0]).stat().st_size

    assert unchecked_bytes(store, paths, ["v"], Checks.NEVER) == 0
    assert unchecked_bytes(store, paths, ["v"], Checks.ONCE) == 2 * size_bytes
    check_files(store, paths[:1], ["v"], Checks.ONCE)
    assert unchecked_bytes(store, paths, ["v"], Checks.ONCE) == size_bytes
    assert unchecked_bytes(store, paths, ["v", "w"], Checks.ONCE) == 2 * size_bytes
