from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.table.lookups.bucket_rows import DiskBlocks

if TYPE_CHECKING:
    from lakecore.table.handle import Table

ROWS = pa.table({"k": range(1000)})


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def files() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("lakecore-spill-*/*.arrow"))


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Clock()


def twice(blocks: DiskBlocks, *names: str, rows: pa.Table = ROWS) -> None:
    for name in (*names, *names):
        blocks.offer(name, rows)


def test_rows_go_to_disk_when_they_are_read_again(clock: Clock) -> None:
    blocks = DiskBlocks(None, 10, clock)
    blocks.offer("a", ROWS)
    assert (blocks.get("a"), blocks.size_bytes, files()) == (None, 0, [])

    blocks.offer("a", ROWS)
    assert blocks.get("a") == ROWS
    assert blocks.size_bytes == files()[0].stat().st_size


def test_the_least_used_rows_go_where_the_disk_is_bounded(clock: Clock) -> None:
    blocks = DiskBlocks(27_000, 10, clock)
    twice(blocks, "a", "b", "c")
    assert blocks.get("a") == ROWS
    twice(blocks, "d")

    assert [name for name in "abcd" if blocks.get(name) is not None] == ["a", "c", "d"]
    assert blocks.size_bytes == sum(file.stat().st_size for file in files()) <= 27_000
    twice(blocks, "large", rows=pa.concat_tables([ROWS] * 4))
    assert blocks.get("large") is None
    assert len(files()) == 3


def test_a_limit_of_nothing_writes_nothing(clock: Clock) -> None:
    blocks = DiskBlocks(0, 10, clock)
    twice(blocks, "a")

    assert (blocks.get("a"), files()) == (None, [])


def test_unused_rows_expire(clock: Clock) -> None:
    blocks = DiskBlocks(None, 10, clock)
    twice(blocks, "a", "b")
    clock.now = 8
    assert blocks.get("b") == ROWS
    clock.now = 11

    assert blocks.get("a") is None
    assert blocks.get("b") == ROWS
    assert len(files()) == 1


def test_a_file_that_is_gone_is_read_again_from_the_table(clock: Clock) -> None:
    blocks = DiskBlocks(None, 10, clock)
    twice(blocks, "a")
    files()[0].unlink()

    assert (blocks.get("a"), blocks.size_bytes) == (None, 0)
    blocks.offer("a", ROWS)
    assert blocks.get("a") == ROWS


def test_a_disk_that_fails_is_not_used_any_more(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocks = DiskBlocks(None, 10, clock)
    tempfile.tempdir = str(tmp_path / "missing")
    twice(blocks, "a", "b")

    assert blocks.get("a") is None
    assert [record.message for record in caplog.records] == [caplog.messages[0]]
    assert "no local disk any more" in caplog.text


def test_rows_stay_usable_when_the_files_are_gone(clock: Clock) -> None:
    blocks = DiskBlocks(None, 10, clock)
    twice(blocks, "a")
    rows = blocks.get("a")
    blocks.close()

    assert rows == ROWS
    assert (files(), blocks.get("a"), blocks.size_bytes) == ([], None, 0)
    twice(blocks, "a")
    assert files() == []


def test_a_handle_that_nobody_closes_leaves_no_files(clock: Clock) -> None:
    blocks = DiskBlocks(None, 10, clock)
    twice(blocks, "a")
    assert files()
    del blocks

    assert files() == []


def table(path: Path, **options: str) -> Table:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    made = lc.open_table(
        path / "t",
        create=True,
        schema={"k": "BIGINT NOT NULL", "v": "STRING"},
        primary_keys=["k"],
        options={"bucket": "4", "lookup.cache-max-memory-size": "1 kb", **stated},
    )
    made.write({"k": range(4000), "v": [f"v{at}" for at in range(4000)]})
    made.write({"k": range(0, 4000, 3), "v": ["newer"] * len(range(0, 4000, 3))})
    return made


@pytest.mark.parametrize("disk", ["1 gb", "0 b"])
def test_lookups_that_memory_cannot_hold_find_the_rows(
    disk: str, clock: Clock, tmp_path: Path
) -> None:
    made = table(tmp_path, lookup__cache_max_disk_size=disk)
    with made.open_lookup() as handle:
        for number in range(12):
            keys = list(range(number, 4100, 97))
            wanted = made.to_polars(where=f"k in {tuple(keys)}").sort("k")
            found = handle.rows({"k": keys})
            assert found.sort("k").equals(wanted)
        assert bool(files()) == (disk != "0 b")
        made.delete("k >= 2000")
        handle.refresh()
        assert handle.rows({"k": [1, 2500, 2]})["v"].to_list() == ["v1", "v2"]

    assert clock.now == 0
    assert files() == []
