"""What every store does: one suite over memory, local files, fsspec and S3."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import AlreadyExists, NotFound
from lakecore.io.ambient import Clock, seeded
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.open import open_store
from lakecore.io.stores.remote import RemoteStore
from lakecore.io.stores.services import Service
from lakecore.io.stores.store import FileStatus, MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.io.stores.store import Store

THREADS = 8
FOLDERS = itertools.count()


@dataclass(frozen=True)
class Place:
    """A store, and a folder of it that nothing else uses."""

    store: Store
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


# The tests over servers import all of this module but names with an underscore.
@pytest.fixture(name="place", params=["memory", "local", "local-uri", "fsspec", "s3"])
def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "memory":
            return Place(MemoryStore(), "memory://tests/w")
        case "local":
            return Place(LocalStore(), str(tmp_path))
        case "local-uri":
            return Place(open_store(f"file://{tmp_path}", {}), f"file://{tmp_path}")
        case "fsspec":
            service = Service(protocol="memory", package="fsspec")
            folder = f"memory://tests/{next(FOLDERS)}"
            options = {"commit.single-writer": "true"}
            return Place(RemoteStore(service, folder, options), folder)
        case _:
            s3: Any = request.getfixturevalue("s3")
            folder = f"s3://warehouse/{next(FOLDERS)}"
            return Place(open_store(folder, s3.options), folder)


def names(listing: tuple[FileStatus, ...], folder: str) -> list[str]:
    return [
        status.path.removeprefix(folder + "/") + ("/" if status.is_directory else "")
        for status in listing
    ]


def test_file_that_was_put_is_read_with_its_size(place: Place) -> None:
    place.store.put(place.path("a/b/file"), b"bytes")

    assert place.store.read(place.path("a/b/file")) == b"bytes"
    assert place.store.size(place.path("a/b/file")) == 5
    assert place.store.exists(place.path("a/b/file"))
    assert place.store.exists(place.path("a/b"))


def test_put_replaces_the_file(place: Place) -> None:
    place.store.put(place.path("hint"), b"longer than the next")
    place.store.put(place.path("hint"), b"2")

    assert place.store.read(place.path("hint")) == b"2"
    assert names(place.store.list(place.folder), place.folder) == ["hint"]


def test_empty_file_is_a_file(place: Place) -> None:
    place.store.put(place.path("empty"), b"")

    assert place.store.read(place.path("empty")) == b""
    assert place.store.size(place.path("empty")) == 0
    assert place.store.open_input(place.path("empty")).read() == b""


def test_absent_file_is_not_found(place: Place) -> None:
    path = place.path("absent")

    assert not place.store.exists(path)
    for call in (place.store.read, place.store.size, place.store.open_input):
        with pytest.raises(NotFound, match="absent"):
            call(path)


def test_directory_is_not_a_file(place: Place) -> None:
    place.store.put(place.path("directory/file"), b"")

    for call in (place.store.read, place.store.size, place.store.open_input):
        with pytest.raises(NotFound):
            call(place.path("directory"))


def test_listing_is_the_direct_children_by_name(place: Place) -> None:
    for name in ("t/snapshot/snapshot-2", "t/b", "t/snapshot/snapshot-1", "t/a b=%2F", "t/.x", "u"):
        place.store.put(place.path(name), b"123")

    listing = place.store.list(place.path("t"))
    assert names(listing, place.path("t")) == [".x", "a b=%2F", "b", "snapshot/"]
    assert [status.size_bytes for status in listing] == [3, 3, 3, 0]
    assert place.store.list(place.path("t") + "/") == listing


def test_listing_states_when_a_file_changed(place: Place) -> None:
    place.store.put(place.path("file"), b"")

    (status,) = place.store.list(place.folder)
    assert status.modified_ms is not None
    assert status.modified_ms > 1_600_000_000_000


def test_listing_of_what_is_no_directory_is_empty(place: Place) -> None:
    place.store.put(place.path("file"), b"")

    assert place.store.list(place.path("absent")) == ()
    assert place.store.list(place.path("file")) == ()


def test_listing_is_never_stale(place: Place) -> None:
    for name in ("1", "2"):
        place.store.put(place.path(f"t/{name}"), b"")
        assert names(place.store.list(place.path("t")), place.path("t"))[-1] == name
    place.store.delete(place.path("t/1"))

    assert names(place.store.list(place.path("t")), place.path("t")) == ["2"]


def test_second_put_if_absent_changes_nothing(place: Place) -> None:
    path = place.path("t/snapshot/snapshot-1")

    assert place.store.put_if_absent(path, b"first")
    assert not place.store.put_if_absent(path, b"second")
    assert place.store.read(path) == b"first"
    assert names(place.store.list(place.path("t/snapshot")), place.path("t/snapshot")) == [
        "snapshot-1"
    ]


def test_one_of_many_threads_puts_if_absent(place: Place) -> None:
    if isinstance(place.store, RemoteStore) and place.folder.startswith("memory://"):
        racers = 1  # the option says that there is a single writer
    else:
        racers = THREADS
    starts = Barrier(racers)

    def race(racer: int, path: str) -> bool:
        starts.wait()
        return place.store.put_if_absent(path, b"%d" % racer)

    with ThreadPoolExecutor(racers) as pool:
        for number in range(5):
            path = place.path(f"snapshot/snapshot-{number}")
            won = list(pool.map(race, range(racers), [path] * racers))

            assert won.count(True) == 1
            assert place.store.read(path) == b"%d" % won.index(True)


def test_delete_removes_a_file_and_minds_no_absent_one(place: Place) -> None:
    place.store.put(place.path("t/file"), b"")
    place.store.put(place.path("t/other"), b"")

    place.store.delete(place.path("t/file"))
    place.store.delete(place.path("t/file"))
    place.store.delete(place.path("nowhere/file"))

    assert names(place.store.list(place.path("t")), place.path("t")) == ["other"]


def test_delete_directory_removes_what_is_below_it_alone(place: Place) -> None:
    for name in ("t/a", "t/b/c", "t/b/[d]*", "t2/a"):
        place.store.put(place.path(name), b"")
    place.store.make_directory(place.path("t/empty"))

    place.store.delete_directory(place.path("t"))
    place.store.delete_directory(place.path("t"))

    assert names(place.store.list(place.folder), place.folder) == ["t2/"]


def test_made_directory_is_there_and_empty(place: Place) -> None:
    place.store.make_directory(place.path("shop.db/empty"))
    place.store.make_directory(place.path("shop.db/empty"))

    assert place.store.exists(place.path("shop.db/empty"))
    assert names(place.store.list(place.path("shop.db")), place.path("shop.db")) == ["empty/"]
    assert place.store.list(place.path("shop.db/empty")) == ()


def test_renamed_directory_keeps_its_files(place: Place) -> None:
    for name in ("t/a", "t/b/c", "t2/d"):
        place.store.put(place.path(name), name.encode())

    place.store.rename_directory(place.path("t"), place.path("u"))

    assert names(place.store.list(place.folder), place.folder) == ["t2/", "u/"]
    assert place.store.read(place.path("u/b/c")) == b"t/b/c"
    assert not place.store.exists(place.path("t"))


def test_renamed_empty_directory_is_there(place: Place) -> None:
    place.store.make_directory(place.path("t"))

    place.store.rename_directory(place.path("t"), place.path("u"))

    assert names(place.store.list(place.folder), place.folder) == ["u/"]


def test_copied_directory_is_there_twice(place: Place) -> None:
    for name in ("t/a", "t/b/c", "t2/d"):
        place.store.put(place.path(name), name.encode())

    place.store.copy_directory(place.path("t"), place.path("u"))
    assert names(place.store.list(place.folder), place.folder) == ["t/", "t2/", "u/"]
    assert place.store.read(place.path("u/b/c")) == place.store.read(place.path("t/b/c"))


def test_rename_needs_a_source_and_a_free_target(place: Place) -> None:
    place.store.put(place.path("t/a"), b"t")
    place.store.put(place.path("u/a"), b"u")

    with pytest.raises(NotFound):
        place.store.rename_directory(place.path("absent"), place.path("v"))
    with pytest.raises(AlreadyExists):
        place.store.rename_directory(place.path("t"), place.path("u"))

    assert place.store.read(place.path("t/a")) == b"t"
    assert place.store.read(place.path("u/a")) == b"u"


def test_parquet_is_written_and_read_in_place(place: Place) -> None:
    table = pa.table({"k": list(range(10_000)), "v": ["x" * (i % 7) for i in range(10_000)]})
    path = place.path("t/bucket-0/data.parquet")

    with place.store.open_output(path) as sink:
        pq.write_table(table, sink, row_group_size=1000)

    with place.store.open_input(path) as source:
        file = pq.ParquetFile(source)
        assert file.num_row_groups == 10
        assert file.read_row_group(7, columns=["k"])["k"][0].as_py() == 7000
        assert file.read() == table
    assert place.store.size(path) == place.store.list(place.path("t/bucket-0"))[0].size_bytes


def test_output_larger_than_one_upload_part_is_whole(place: Place) -> None:
    part = bytes(range(256)) * 4096

    with place.store.open_output(place.path("large")) as sink:
        for _ in range(17):
            sink.write(part)

    assert place.store.size(place.path("large")) == 17 << 20
    source = place.store.open_input(place.path("large"))
    source.seek(9 << 20)
    assert source.read(1 << 20) == part
    source.close()


@pytest.mark.parametrize("size_bytes", [10, 9 << 20])
def test_output_of_a_failed_block_is_removed(place: Place, size_bytes: int) -> None:
    def write() -> None:
        with place.store.open_output(place.path("t/file")) as sink:
            sink.write(bytes(size_bytes))
            message = "the writer failed"
            raise ZeroDivisionError(message)

    with pytest.raises(ZeroDivisionError, match="the writer failed"):
        write()

    assert place.store.list(place.path("t")) == ()


def test_output_that_the_block_closed_is_whole(place: Place) -> None:
    with place.store.open_output(place.path("file")) as sink:
        sink.write(b"bytes")
        sink.close()

    assert place.store.read(place.path("file")) == b"bytes"


def test_local_path_opens_the_file_itself_or_is_none(place: Place) -> None:
    place.store.put(place.path("file"), b"bytes")

    local = place.store.local_path(place.path("file"))

    assert (local is not None) == isinstance(place.store, LocalStore)
    if local is not None:
        assert pa.memory_map(local).read() == b"bytes"


def test_memory_store_takes_its_times_from_the_ambient() -> None:
    ambient = seeded(1, Clock(5_000))
    store = MemoryStore(ambient)
    store.put("memory://x/a", b"")
    ambient.sleep(2.5)
    store.put("memory://x/b", b"")

    assert store.list("memory://x") == (
        FileStatus("memory://x/a", 0, 5_000, is_directory=False),
        FileStatus("memory://x/b", 0, 7_500, is_directory=False),
    )
