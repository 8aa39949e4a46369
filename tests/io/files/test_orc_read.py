from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from lakecore.errors import Unsupported
from lakecore.io.files import orc_files
from lakecore.io.files.data_files import WriteFormat, open_writer, read_file, read_positions
from lakecore.io.files.file_format import BatchSize
from lakecore.io.files.orc_files import _Known
from lakecore.io.stores.local import LocalStore
from lakecore.model.schema import number_fields
from lakecore.model.types import Field, arrow_schema, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_BYTES = 4 << 20
ROOT = Path(__file__).parents[3]


def fields_of(*types: str) -> tuple[Field, ...]:
    """Columns c0, c1, ... of these types."""
    return number_fields(
        [Field(id=0, name=f"c{at}", type=parse_type(text)) for at, text in enumerate(types)]
    )[0]


def table_of(rows: int, text_bytes: int = 16) -> pa.Table:
    """A number that counts, and a text that is never the same."""
    random = np.random.default_rng(rows)
    texts = [random.bytes(text_bytes // 2).hex() for _ in range(rows)]
    schema = arrow_schema(fields_of("BIGINT", "STRING"))
    return pa.table({"c0": np.arange(rows), "c1": texts}).cast(schema)


def written(path: Path, table: pa.Table, row_group_bytes: int) -> str:
    """A file of these rows."""
    file = str(path / "a.orc")
    layout = WriteFormat(format="orc", row_group_bytes=row_group_bytes)
    writer = open_writer(LocalStore(), file, fields_of("BIGINT", "STRING"), layout)
    writer.write(table)
    writer.close()
    return file


def read(file: str, batch_bytes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    return read_positions(
        LocalStore(), file, fields=fields_of("BIGINT", "STRING"), batch_bytes=batch_bytes
    )


@pytest.mark.parametrize("row_group_bytes", [1 << 20, 256 << 20], ids=["many stripes", "one"])
@pytest.mark.parametrize("batch_bytes", [1 << 14, 1 << 20, 256 << 20])
def test_rows_are_those_of_the_file_however_its_stripes_and_batches_lie(
    tmp_path: Path, row_group_bytes: int, batch_bytes: int
) -> None:
    table = table_of(50_000)
    file = written(tmp_path, table, row_group_bytes)
    batches = list(read(file, batch_bytes))

    assert pa.Table.from_batches([batch for _, batch in batches]).equals(table)
    assert [at for at, _ in batches] == [batch.column(0)[0].as_py() for _, batch in batches]
    assert max(batch.nbytes for _, batch in batches) <= batch_bytes


@pytest.mark.parametrize("row_group_bytes", [1 << 20, 256 << 20], ids=["many stripes", "one"])
def test_memory_follows_the_batch_however_slowly_batches_are_taken(
    tmp_path: Path, row_group_bytes: int
) -> None:
    table = table_of(400_000, 64)
    file = written(tmp_path, table, row_group_bytes)
    before, held = pa.total_allocated_bytes(), 0
    for _, batch in read(file, BATCH_BYTES):
        time.sleep(0.005)  # Time to read ahead, which is what is looked at.
        held = max(held, pa.total_allocated_bytes() - before)
        del batch

    assert table.nbytes > 5 * BATCH_BYTES
    assert held <= 2 * BATCH_BYTES


HELD = """
import sys, time
import pyarrow as pa
from tests.io.files.test_orc_read import read

before = pa.total_allocated_bytes()
batches = read(sys.argv[1], 1 << 20)
_, first = next(batches)
rows = first.num_rows
del first
batches.close()
# A thread of Arrow's may still be letting go of what it read last.
deadline = time.monotonic() + 10
while pa.total_allocated_bytes() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print(rows, pa.total_allocated_bytes() - before)
"""


def test_nothing_is_held_for_who_takes_no_more(tmp_path: Path) -> None:
    """In a fresh process, where no thread of another test takes memory meanwhile."""
    table = table_of(400_000, 64)
    file = written(tmp_path, table, 256 << 20)
    done = subprocess.run(
        [sys.executable, "-c", HELD, file], capture_output=True, text=True, check=True, cwd=ROOT
    )
    rows, held_bytes = map(int, done.stdout.split())

    assert rows < table.num_rows / 20
    assert held_bytes == 0


def test_large_rows_are_stripes_of_their_own(tmp_path: Path) -> None:
    file = written(tmp_path, table_of(12, 2 << 20), 1 << 20)

    assert orc.ORCFile(file).nstripes == 12


def test_rows_are_counted_by_one_column(tmp_path: Path) -> None:
    file = written(tmp_path, table_of(3), 1 << 20)
    ((_, rows),) = orc_files.read_orc(LocalStore(), file, [], BatchSize(10), None)

    assert (rows.num_rows, rows.schema.names) == (3, ["c0"])


@pytest.mark.parametrize("rows", [2, 3])
def test_rows_larger_than_a_batch_come_one_by_one(tmp_path: Path, rows: int) -> None:
    file = written(tmp_path, table_of(rows), 1 << 20)

    assert [batch.num_rows for _, batch in read(file, 1)] == [1] * rows


@pytest.mark.parametrize("rows", [3, 40_000])
@pytest.mark.parametrize("first", ["a.b", "a"])
def test_column_with_a_dot_is_no_part_of_another(tmp_path: Path, first: str, rows: int) -> None:
    columns = {"a.b": "STRING", "id": "BIGINT", "a": "ROW<b STRING, c STRING>"}
    names = list(columns) if first == "a.b" else [*columns][::-1]
    fields = [Field(id=i, name=n, type=parse_type(columns[n])) for i, n in enumerate(names)]
    values = {
        "a.b": pa.array([f"dot {at}" for at in range(rows)]),
        "id": pa.array(np.arange(rows)),
        "a": pa.array([{"b": "part", "c": "other"}] * rows),
    }
    path = str(tmp_path / "a.orc")
    writer = open_writer(LocalStore(), path, fields, WriteFormat(format="orc"))
    writer.write(pa.table({name: values[name] for name in names}))
    writer.close()

    for wanted in (fields, fields[::-1], [field for field in fields if field.name == "a.b"]):
        read = pa.Table.from_batches(read_file(LocalStore(), path, fields=wanted, batch_rows=9_000))

        assert read.to_pydict() == {f.name: values[f.name].to_pylist() for f in wanted}


def test_times_that_nanoseconds_do_not_count_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"c0": pa.array([-(10**17)], pa.timestamp("us"))}), path)

    with pytest.raises(Unsupported, match=f"1677 to 2262 cannot be read.*path={path}"):
        list(read_file(LocalStore(), str(path), fields=fields_of("TIMESTAMP(6)")))


def test_checked_files_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orc_files, "_KNOWN_MAX", 2)
    known = _Known()
    for name in "abc":
        known.add((name,))

    assert [(name,) in known for name in "abc"] == [False, True, True]
