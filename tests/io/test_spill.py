from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.errors import StorageError
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "text": pa.array(["a", None, ""], pa.string()),
        "map": pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "price": pa.array([None, 1, 2], pa.decimal128(38, 10)),
    }
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which directories for temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_run_comes_back_as_it_was(place: Path) -> None:
    spills = SpillDirectory()
    run = spills.write(TABLE.schema, [TABLE, TABLE.slice(0, 0), TABLE.slice(1, 1)], 5, 9)
    rows = pa.Table.from_batches(spills.read(run), TABLE.schema)

    assert rows.equals(pa.concat_tables([TABLE, TABLE.slice(1, 1)]))
    assert (run.row_count, run.sequence_min, run.sequence_max) == (4, 5, 9)
    assert run.size_bytes == sum(file.stat().st_size for file in place.rglob("*.arrow"))
    assert spills.schema(run) == TABLE.schema
    spills.close()


def test_run_without_rows_has_no_batches(place: Path) -> None:
    spills = SpillDirectory()
    run = spills.write(TABLE.schema, [], 0, 0)

    assert list(spills.read(run)) == []
    assert spills.schema(run) == TABLE.schema
    spills.close()
    assert list(place.iterdir()) == []


def test_directory_is_made_at_the_first_spill_and_gone_at_the_end(place: Path) -> None:
    spills = SpillDirectory()
    spills.close()
    assert list(place.iterdir()) == []
    first, second = (spills.write(TABLE.schema, [TABLE], 0, 2) for _ in range(2))
    assert len(list(place.rglob("*.arrow"))) == 2
    spills.remove(first)
    spills.remove(first)
    assert len(list(place.rglob("*.arrow"))) == 1
    assert pa.Table.from_batches(spills.read(second)).equals(TABLE)
    spills.close()
    spills.close()

    assert list(place.iterdir()) == []


def test_closed_directory_can_be_spilled_to_again(place: Path) -> None:
    spills = SpillDirectory()
    spills.write(TABLE.schema, [TABLE], 0, 2)
    spills.close()
    run = spills.write(TABLE.schema, [TABLE], 0, 2)

    assert pa.Table.from_batches(spills.read(run)).equals(TABLE)
    spills.close()
    assert list(place.iterdir()) == []


def test_disk_that_refuses_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    with pytest.raises(StorageError, match="cannot spill a write buffer"):
        SpillDirectory().write(TABLE.schema, [TABLE], 0, 2)
