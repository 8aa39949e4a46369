"""Of a row group that is larger than a batch, no more is in memory than some batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.io.data_files import read_positions
from lakecore.io.local import LocalStore
from lakecore.model.types import Field, parse_type

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1 << 20
FIELDS = (
    Field(id=0, name="k", type=parse_type("BIGINT NOT NULL")),
    Field(id=1, name="v", type=parse_type("BYTES")),
)


def payload(rows: int, width: int) -> pa.Array:
    ends = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    data = np.random.default_rng(1).bytes(rows * width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def read(path: Path, batch_bytes: int) -> tuple[int, int, int]:
    """Rows read, the greatest batch, and what Arrow held at most while reading."""
    before, held, greatest, seen = pa.total_allocated_bytes(), 0, 0, 0
    found = read_positions(LocalStore(), str(path), fields=FIELDS, batch_bytes=batch_bytes)
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


@pytest.mark.parametrize("batch_bytes", [1, 1_000, 1 << 30])
def test_batches_of_any_bytes_are_all_rows(tmp_path: Path, batch_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(500), "v": payload(500, 100)}), path)

    assert read(path, batch_bytes)[0] == 500
