"""Of a row group that is larger than a batch, no more is in memory than some batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.io.files.data_files import read_positions
from lakecore.io.stores.local import LocalStore
from lakecore.model.types import Field, arrow_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

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
