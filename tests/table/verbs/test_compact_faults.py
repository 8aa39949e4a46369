"""What goes wrong under a compaction: one clear error, the table as it was, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.stores.guarded import unguarded
from lakecore.model.snapshot import CommitKind
from lakecore.table.verbs.compaction import PLANS_MAX
from tests.stores import MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "n": "INT", "v": "STRING"}


class Hurried(MeddledStore):
    """Another acts, once each, before a call of the method `before` on a path that holds `part`."""

    def __init__(self, table: Table, before: str, part: str, *deeds: Callable[[], object]) -> None:
        super().__init__(table.context.store, *deeds)
        self._before, self._part = before, part

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._act("put_if_absent", path)
        return self.inner.put_if_absent(path, data)

    def read(self, path: str) -> bytes:
        self._act("read", path)
        return super().read(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self._act("open_input", path)
        return super().open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self._act("open_output", path)
        with super().open_output(path) as sink:
            yield sink

    def _act(self, call: str, path: str) -> None:
        if self.deeds and call == self._before and self._part in path:
            self.deeds.pop(0)()


class Mute(MeddledStore):
    """COMPACT snapshots are written, and nobody is told: no reply and no look gets through."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = self.inner.put_if_absent(path, data)
        if "/snapshot/" in path and b'"COMPACT"' in data:
            self.deaf = path
            raise StorageError("timed out", path=path)
        return made

    def read(self, path: str) -> bytes:
        if path == getattr(self, "deaf", None):
            raise StorageError("timed out", path=path)
        return super().read(path)


@pytest.mark.parametrize("inline", [True, False])
def test_files_stay_where_the_snapshot_may_be_there(*, inline: bool) -> None:
    table = new_table(num_sorted_run__compaction_trigger="3")
    for text in ("1 a", "2 b"):
        put(table, text)
    muted = reopened(table, store=Mute(table.context.store))
    with suppress(CommitUnknown):
        if inline:
            put(muted, "3 c")
        else:
            muted.compact(full=True)

    last = table.context.history.latest_snapshot()
    assert last is not None
    assert last.commit_kind is CommitKind.COMPACT
    assert held(reopened(table)) == ("1 a | 2 b | 3 c" if inline else "1 a | 2 b")


def three_runs(**options: Any) -> Table:
    table = new_table(COLUMNS, write_only="true", **options)
    for text in ("1 1 a | 2 2 b", "1 5 A | 3 3 c", "1 3 _ | 2 7 B"):
        put(table, text)
    return table


def data_files(table: Table) -> set[str]:
    return in_directory(table, "bucket-0")


def kinds(table: Table) -> list[str]:
    return [str(kind) for kind in reopened(table).inspect.snapshots()["commit_kind"]]


# --- data files and disks -------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("kept", [None, 0, 0.01, 0.5, 0.99])
def test_data_file_that_is_missing_or_cut_short_is_named(stored: str, kept: float | None) -> None:
    table = three_runs(file__format=stored)
    lost = max(data_files(table))
    path = f"{table.path}/bucket-0/{lost}"
    whole = table.context.store.read(path)
    table.context.store.delete(path)
    if kept is not None:
        table.context.store.put(path, whole[: int(kept * len(whole))])
    names = data_files(table)

    with pytest.raises(CorruptTable, match=lost):
        table.compact(full=True)

    assert kinds(table) == ["APPEND"] * 3
    assert data_files(table) == names
    table.context.store.put(path, whole)
    assert table.compact(full=True).files_after == 1
    assert held(table) == "1 3 _ | 2 7 B | 3 3 c"


FULL_DISK = """
import resource, signal, sys
import lakecore as lc

table = lc.open_table(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    table.compact(full=True)
except lc.LakecoreError as error:
    print(type(error).__name__, error)
"""


def test_disk_that_is_full_in_the_middle_leaves_the_table_and_no_file(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", "file.compression": "none"},
    )
    for turn in range(4):  # 60 KB each
        table.write([{"id": 4 * n + turn, "v": f"{n:050}"} for n in range(1000)])
    before = table.to_polars().sort("id")
    bucket = tmp_path / "d.db" / "t" / "bucket-0"
    names = sorted(bucket.iterdir())

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, table.path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.startswith("StorageError "), done.stdout + done.stderr
    assert "File too large" in done.stdout
    assert sorted(bucket.iterdir()) == names
    assert table.to_polars().sort("id").equals(before)
    assert table.compact(full=True).files_after == 1
    assert table.to_polars().sort("id").equals(before)


# --- metadata that others take away ---------------------------------------------------------------


def expire(table: Table) -> None:
    """Others compact, write, and expire all snapshots but the newest, with their manifests."""
    other = reopened(table)
    store, history = other.context.store, other.context.history
    for turn in range(2):
        put(other, f"9 {turn} z")
    other.compact(full=True)
    put(other, "8 8 y")
    *old, newest = [history.snapshot(number) for number in history.snapshot_ids()]
    live = {manifest.name for manifest in history.manifests(newest)}
    live |= {newest.base_manifest_list, newest.delta_manifest_list}
    for snapshot in old:
        names = {manifest.name for manifest in history.manifests(snapshot)}
        names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        for name in names - live:
            store.delete(other.context.layout.manifest(name))
        store.delete(other.context.layout.snapshot(snapshot.id))
    store.put(other.context.layout.earliest_hint, str(newest.id).encode())


@pytest.mark.parametrize("part", ["manifest/manifest-list", "manifest/manifest-"])
def test_manifest_that_another_expired_is_planned_anew(part: str) -> None:
    table = three_runs()
    late = reopened(table, store=Hurried(table, "read", part, lambda: expire(table)))

    result = late.compact(full=True)

    assert (result.attempts, result.files_before) == (2, 2)
    assert held(reopened(table)) == "1 3 _ | 2 7 B | 3 3 c | 8 8 y | 9 1 z"
    assert reopened(table).explain().merged_files == 0


@pytest.mark.parametrize("part", ["list", "manifest"])
def test_manifest_that_is_missing_for_good_is_an_error(part: str) -> None:
    table = three_runs()
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    (manifest,) = context.history.delta_manifests(snapshot)
    lost = snapshot.delta_manifest_list if part == "list" else manifest.name
    context.store.delete(context.layout.manifest(lost))
    names = data_files(table)

    with pytest.raises(CorruptTable, match=f"metadata file is missing.*{lost}"):
        reopened(table).compact(full=True)

    assert data_files(table) == names
    assert len(context.history.snapshot_ids()) == 3


def test_table_that_is_dropped_meanwhile_is_not_there() -> None:
    table = three_runs()
    store = table.context.store
    late = reopened(
        table,
        store=Hurried(
            table, "open_input", "", lambda: unguarded(store).delete_directory(table.path)
        ),
    )

    with pytest.raises((NotFound, CorruptTable)):
        late.compact(full=True)

    assert in_directory(table, "snapshot") == set()


# --- options that others change -------------------------------------------------------------------


def changed_meanwhile(table: Table, **options: str | None) -> Table:
    """The table, whose options change when the first data file is written."""
    return reopened(
        table, store=Hurried(table, "open_output", "", lambda: with_options(table, **options))
    )


def test_order_of_rows_that_changes_between_plan_and_commit_is_the_new_one() -> None:
    table = three_runs()
    late = changed_meanwhile(table, sequence__field="n")

    result = late.compact(full=True)

    assert result.attempts == 2
    assert held(reopened(table)) == "1 5 A | 2 7 B | 3 3 c"
    assert len(data_files(table)) == 4, "what was merged in the old order is removed"


def test_function_that_changes_between_plan_and_commit_is_the_new_one() -> None:
    table = three_runs(merge_engine="aggregation", fields__n__aggregate_function="sum")
    late = changed_meanwhile(table, fields__n__aggregate_function="max")

    result = late.compact(full=True)

    assert result.attempts == 2
    assert held(reopened(table)) == "1 5 A | 2 7 B | 3 3 c"


def test_merge_engine_that_cannot_change_is_looked_at_all_the_same() -> None:
    table = three_runs()
    late = changed_meanwhile(table, merge_engine="aggregation", fields__n__aggregate_function="sum")

    assert late.compact(full=True).attempts == 2
    assert held(reopened(table)) == "1 9 A | 2 9 B | 3 3 c"


@pytest.mark.parametrize(
    "options",
    [
        {"snapshot__num_retained__max": "100"},
        {"num_sorted_run__compaction_trigger": "9"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_option_that_no_row_depends_on_may_change(options: dict[str, str]) -> None:
    table = three_runs()

    assert changed_meanwhile(table, **options).compact(full=True).attempts == 1


def test_number_of_buckets_that_changes_is_for_new_partitions() -> None:
    table = three_runs()
    late = changed_meanwhile(table, bucket="4")

    late.compact(full=True)

    assert held(reopened(table)) == "1 3 _ | 2 7 B | 3 3 c"
    assert set(reopened(table).inspect.files()["bucket"]) == {0}
    assert len(data_files(table)) == 4


def test_table_that_can_no_longer_be_compacted_is_refused_and_left_as_it_was() -> None:
    table = three_runs()
    names = data_files(table)
    late = changed_meanwhile(table, deletion_vectors__enabled="true", pk_bitmap__index__columns="n")

    with pytest.raises(Unsupported, match=r"pk-bitmap\.index\.columns"):
        late.compact(full=True)

    assert data_files(table) == names
    assert kinds(table) == ["APPEND"] * 3


def test_options_that_change_with_every_plan_are_a_conflict() -> None:
    table = three_runs()
    names = data_files(table)
    deeds = [
        lambda number=number: with_options(table, fields__n__aggregate_function=number)
        for number in islice(cycle(("sum", "max", "min", "product", "last_value")), PLANS_MAX)
    ]
    late = reopened(table, store=Hurried(table, "open_output", "", *deeds))

    with pytest.raises(CommitConflict, match="every plan"):
        late.compact(full=True)
    assert data_files(table) == names
