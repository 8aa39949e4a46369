from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import StorageError
from lakecore.io import spill
from lakecore.io.spill import SpillDirectory

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


CHILD = """
import os, sys, time, tempfile
import pyarrow as pa
from lakecore.io.spill import SpillDirectory
tempfile.tempdir = sys.argv[1]
spills = SpillDirectory()
spills.write(pa.schema([("a", pa.int64())]), [pa.table({"a": [1]})], 0, 0)
print("spilled", flush=True)
time.sleep(600)
"""


def _spilling(place: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "spilled\n"
    return process


def _spill_here() -> None:
    spill.sweep.cache_clear()
    spills = SpillDirectory()
    spills.write(TABLE.schema, [TABLE], 0, 0)
    spills.close()


def test_directories_of_killed_processes_are_removed_and_of_living_ones_are_not(
    place: Path,
) -> None:
    killed, living = _spilling(place), _spilling(place)
    try:
        killed.kill()
        killed.wait()
        assert len([*place.iterdir()]) == 2
        _spill_here()

        (left,) = place.iterdir()
        assert f"-{living.pid}-" in left.name
        assert len([*left.glob("*.arrow")]) == 1
    finally:
        living.kill()
        living.wait()
        assert killed.stdout
        assert living.stdout
        killed.stdout.close()
        living.stdout.close()
    _spill_here()
    assert not [*place.iterdir()]


def test_directory_of_another_start_of_the_machine_is_removed_unless_it_is_locked(
    place: Path,
) -> None:
    for name in ("free", "held"):
        directory = place / f"lakecore-spill-{name}-{os.getpid()}-x"
        directory.mkdir()
        (directory / "owner").touch()
    with (place / f"lakecore-spill-held-{os.getpid()}-x" / "owner").open("r+") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        _spill_here()

        assert [path.name for path in place.iterdir()] == [f"lakecore-spill-held-{os.getpid()}-x"]


@pytest.mark.parametrize(
    "name", ["lakecore-spill-", "lakecore-spill-a", "lakecore-spill-a-b-c", "lakecore-spill-a-1-c"]
)
def test_directory_that_names_no_owner_stays(place: Path, name: str) -> None:
    (place / name).mkdir()
    _spill_here()

    assert (place / name).exists()


def test_array_is_mapped_and_may_be_changed(place: Path) -> None:
    spills = SpillDirectory()
    numbers = np.arange(5)
    copy = spills.mapped(numbers)
    copy[0] = 7

    assert copy.tolist() == [7, 1, 2, 3, 4]
    assert numbers[0] == 0
    nothing = spills.mapped(np.empty(0, np.int32))
    assert (nothing.tolist(), nothing.dtype) == ([], np.dtype(np.int32))
    spills.close()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "left"),
    [("lakecore-spill-{boot}-1-x", False), ("lakecore-spill-other-1-x", True)],
)
def test_directory_of_the_first_process_of_all_is_of_a_living_one(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    directory = place / name.format(boot=boot)
    directory.mkdir()
    (directory / "owner").touch()

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    spill.sweep.cache_clear()
    spill.sweep()
    assert directory.exists() is not left


def test_directory_of_a_living_process_stays_without_its_lock(place: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    directory = place / f"lakecore-spill-{boot}-{os.getpid()}-x"
    directory.mkdir()
    (directory / "owner").touch()

    spill.sweep.cache_clear()
    spill.sweep()
    assert directory.exists()


def test_a_process_of_another_user_is_a_living_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = _spilling(place)
    killed.kill()
    killed.communicate()

    def refused(_pid: int, _signal: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refused)
        _spill_here()
        assert len([*place.iterdir()]) == 1
    _spill_here()
    assert not [*place.iterdir()]
