"""Ingest: a stream of frames in, one commit for each interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import seeded
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, in_directory, new_table, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.table.handle import Table


def timed(table: Table, items: str) -> Iterator[Any]:
    """Frames in order: a number lets so many seconds pass, `-` is None, the rest is a row."""
    for item in items.split(";"):
        text = item.strip()
        if text.isdigit():
            table.context.ambient.sleep(int(text))
        else:
            yield None if text == "-" else rows(table.schema, text)


def snapshot_count(table: Table) -> int:
    return len(reopened(table).context.history.snapshot_ids())


def test_frames_are_committed_when_the_interval_has_passed_and_at_the_end() -> None:
    table = new_table(ambient=seeded(3))
    heard: list[lc.IngestResult] = []

    result = table.ingest(
        timed(table, "1 a; 6; 2 b; 6; 3 c; 1; 1 A; 5; 4 d"),
        every="10 s",
        commit_user="job",
        on_commit=heard.append,
    )

    assert held(table) == "1 A | 2 b | 3 c | 4 d"
    assert result == lc.IngestResult(
        commit_user="job", frames=5, rows=5, commits=2, checkpoint=2, snapshot_ids=(2,)
    )
    assert [(each.checkpoint, each.frames, each.snapshot_ids) for each in heard] == [
        (1, 3, (1,)),
        (2, 5, (2,)),
    ]


def test_none_lets_time_pass() -> None:
    table = new_table(ambient=seeded(3))
    heard: list[int] = []

    table.ingest(
        timed(table, "1 a; 11; -; 20; -; 2 b"), on_commit=lambda done: heard.append(done.frames)
    )

    assert heard == [1, 2]


def test_intervals_without_rows_make_snapshots_only_if_the_option_says_so() -> None:
    counts = []
    for stated in ("false", "true"):
        table = new_table(ambient=seeded(3), commit__force_create_snapshot=stated)
        table.ingest(timed(table, "1 a; 11; -; 11; -; 11; -"))
        counts.append(snapshot_count(table))

    assert counts == [1, 4]


def test_numbers_go_on_after_a_restart() -> None:
    table = new_table()
    table.ingest([rows(table.schema, "1 a")], every="0 s", commit_user="job")

    result = reopened(table).ingest([rows(table.schema, "2 b")], every="0 s", commit_user="job")

    assert result.checkpoint == 2
    assert table.last_identifier("job") == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_error_of_the_source_is_raised_after_its_frames_are_committed(
    error: type[BaseException],
) -> None:
    table = new_table()

    def source() -> Iterator[Any]:
        yield rows(table.schema, "1 a")
        yield rows(table.schema, "2 b")
        raise error

    with pytest.raises(error):
        table.ingest(source())

    assert held(table) == "1 a | 2 b"


def test_ctrl_c_in_the_middle_of_a_frame_drops_what_was_not_committed() -> None:
    table = new_table(ambient=seeded(3))

    def half() -> Iterator[Any]:
        yield rows(table.schema, "7 x")
        raise KeyboardInterrupt

    def source() -> Iterator[Any]:
        yield from timed(table, "1 a; 11; -; 2 b")
        yield half()

    with pytest.raises(KeyboardInterrupt):
        table.ingest(source())

    assert held(table) == "1 a"
    assert len(in_directory(table, "bucket-0")) == 1
    assert table.context.budget.used_bytes == 0


def test_frame_that_does_not_fit_is_named_and_drops_what_was_not_committed() -> None:
    table = new_table()

    with pytest.raises(InvalidRequest, match="null"):
        table.ingest([rows(table.schema, "1 a"), [{"id": None, "v": "x"}]])

    assert snapshot_count(table) == 0


def test_failed_commit_removes_its_files() -> None:
    table = new_table()
    calls = 0
    while True:
        calls += 1
        failing = FailingStore(table.context.store, fail_at=calls)
        try:
            reopened(table, store=failing).ingest([rows(table.schema, "1 a")], commit_user="job")
        except (StoreFailure, lc.LakecoreError):
            assert failing.is_dead
        else:
            break

    assert held(reopened(table)) == "1 a"


def test_source_of_one_process_may_be_the_stream_of_another_table() -> None:
    source, target = new_table(), new_table(path="memory://warehouse/shop.db/copy")
    for text in ("1 a | 2 b", "-D 1 a"):
        source.write(rows(source.schema, text))

    target.ingest(frame for _, frame in source.stream(from_snapshot=1, until="latest"))

    assert held(target) == held(source) == "2 b"


BAD: dict[str, Callable[[Table], object]] = {
    "one frame": lambda table: table.ingest({"id": [1]}),
    "no frames": lambda table: table.ingest(7),  # type: ignore[arg-type]
    "text": lambda table: table.ingest("rows"),
    "no unit": lambda table: table.ingest([], every="10 parsecs"),
    "no text": lambda table: table.ingest([], every=10),  # type: ignore[arg-type]
    "no function": lambda table: table.ingest([], on_commit=3),  # type: ignore[arg-type]
    "no user": lambda table: table.ingest([], commit_user=""),
}


@pytest.mark.parametrize("call", BAD.values(), ids=BAD.keys())
def test_wrong_argument_is_refused_before_anything_is_written(
    call: Callable[[Table], object],
) -> None:
    table = new_table()

    with pytest.raises(InvalidRequest):
        call(table)

    assert snapshot_count(table) == 0


@pytest.mark.parametrize("frame", [pl.DataFrame({"id": [1]}), pa.table({"id": [1]})], ids=type)
def test_a_single_frame_is_no_stream_of_frames(frame: pl.DataFrame | pa.Table) -> None:
    with pytest.raises(InvalidRequest, match="takes an iterable of frames; write takes a single"):
        new_table().ingest(frame)


@pytest.mark.parametrize(
    ("ids", "last"), [((), "nothing committed"), ((3,), "3"), ((3, 4), "3, 4")]
)
def test_result_is_shown(ids: tuple[int, ...], last: str) -> None:
    done = lc.IngestResult(commit_user="me", rows=12345, commits=2, snapshot_ids=ids)
    shown = str(done)

    assert "12,345" in shown
    assert last in shown
