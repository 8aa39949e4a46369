from __future__ import annotations

import itertools
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
import s3fs
from fsspec.implementations.memory import MemoryFileSystem

from lakecore.errors import (
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.ambient import Ambient, Clock, seeded
from lakecore.io.parallel import delete_files
from lakecore.io.stores.open import open_store
from lakecore.io.stores.remote import DIRECTORY_MARKER, TAIL_BYTES, RemoteStore, _modified_ms
from lakecore.io.stores.services import SERVICES, Service, Setting

if TYPE_CHECKING:
    from tests.stores import S3Service

FOLDERS = itertools.count()


def s3_store(s3: S3Service, ambient: Ambient | None = None) -> RemoteStore:
    return RemoteStore(SERVICES["s3"], "s3://warehouse", s3.options, ambient or seeded(1))


def fresh(name: str = "snapshot-1") -> str:
    return f"s3://warehouse/remote/{next(FOLDERS)}/{name}"


def ready(store: RemoteStore) -> RemoteStore:
    """The store, after it has found that the service keeps the promise."""
    assert store.put_if_absent(fresh("ready"), b"")
    return store


def test_a_pickled_store_reaches_the_same_files(s3: S3Service) -> None:
    store, path = RemoteStore(SERVICES["s3"], "s3://warehouse", s3.options), fresh()
    store.put(path, b"ours")
    copy = pickle.loads(pickle.dumps(store))

    assert copy.read(path) == b"ours"


def test_lost_reply_of_our_put_is_found_to_be_ours(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.lost_replies = 1

    assert store.put_if_absent(path, b"ours")
    assert s3.lost_replies == 0
    assert store.read(path) == b"ours"


def test_same_bytes_again_count_as_a_repetition(s3: S3Service) -> None:
    store, path = s3_store(s3), fresh()

    assert store.put_if_absent(path, b"ours")
    assert store.put_if_absent(path, b"ours")
    assert not store.put_if_absent(path, b"theirs")


def test_lost_reply_to_a_losing_put_is_found_to_be_anothers(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    store.put(path, b"theirs")
    s3.lost_replies = 1

    assert not store.put_if_absent(path, b"ours")
    assert store.read(path) == b"theirs"


def test_put_that_was_lost_on_the_way_is_sent_again(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.lost_requests = 2

    assert store.put_if_absent(path, b"ours")
    assert store.read(path) == b"ours"


def test_no_reply_at_all_is_found_to_be_ours_when_the_file_is_there(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.lost_replies = 1000

    assert store.put_if_absent(path, b"ours")


def test_no_reply_and_no_file_is_unknown(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.lost_requests = 1000

    with pytest.raises(CommitUnknown) as caught:
        store.put_if_absent(path, b"ours")

    assert caught.value.facts["path"] == path
    assert caught.value.__cause__ is not None
    assert not isinstance(caught.value.__cause__, LakecoreError)


def test_server_error_leaves_a_doubt(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.refusal = "500 Internal Server Error"

    with pytest.raises(CommitUnknown):
        store.put_if_absent(path, b"ours")


def test_waits_between_attempts_are_the_ambients(s3: S3Service) -> None:
    ambient = seeded(1, Clock(0))
    store, path = ready(s3_store(s3, ambient)), fresh()
    s3.lost_requests = 3

    assert store.put_if_absent(path, b"ours")
    assert ambient.now_ms() >= 200  # half of the wait without jitter


def test_refused_permission_is_certain(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()
    s3.refusal = "403 Forbidden"

    with pytest.raises(StorageError, match="refused"):
        store.put_if_absent(path, b"ours")
    s3.be_well()
    assert not store.exists(path)


def test_conflict_of_two_puts_is_tried_again_and_then_certain(s3: S3Service) -> None:
    ambient = seeded(1, Clock(0))
    store, path = ready(s3_store(s3, ambient)), fresh()
    s3.refusal = "409 Conflict"

    with pytest.raises(StorageError, match="refused"):
        store.put_if_absent(path, b"ours")
    assert ambient.now_ms() > 0


def test_absent_bucket_is_not_found(s3: S3Service) -> None:
    store = ready(s3_store(s3))

    with pytest.raises(NotFound, match="bucket"):
        store.put_if_absent("s3://no-such-bucket/w/snapshot-1", b"")
    with pytest.raises(NotFound, match="bucket"):
        store.put("s3://no-such-bucket/w/snapshot-1", b"")


def test_service_that_ignores_the_condition_is_refused(s3: S3Service) -> None:
    s3.ignores_conditions = True
    path = fresh()

    with pytest.raises(Unsupported, match=r"commit\.single-writer"):
        s3_store(s3).put_if_absent(path, b"")
    assert s3_store(s3).list(path.rpartition("/")[0]) == ()


def test_service_that_knows_no_condition_is_refused(s3: S3Service) -> None:
    s3.refusal = "501 Not Implemented"

    with pytest.raises(Unsupported, match=r"commit\.single-writer"):
        s3_store(s3).put_if_absent(fresh(), b"")


def test_single_writer_may_use_a_service_that_ignores_the_condition(s3: S3Service) -> None:
    s3.ignores_conditions = True
    path = fresh()
    store = RemoteStore(SERVICES["s3"], path, {**s3.options, "commit.single-writer": "true"})

    assert store.put_if_absent(path, b"first")
    assert not store.put_if_absent(path, b"second")
    assert store.read(path) == b"first"


def test_file_system_without_promise_is_refused_unless_single_writer() -> None:
    service = Service(protocol="memory", package="fsspec")
    path = f"memory://remote-{next(FOLDERS)}/snapshot-1"

    with pytest.raises(Unsupported, match="no conditional put"):
        RemoteStore(service, path, {}).put_if_absent(path, b"")
    with pytest.raises(InvalidRequest, match="neither true nor false"):
        RemoteStore(service, path, {"commit.single-writer": "yes"})


def test_missing_package_is_named_with_the_way_to_install_it() -> None:
    absent = Service(protocol="gcs", package="no_such_package_gcsfs", extra="gcs")

    with pytest.raises(Unsupported, match=r"pip install 'lakecore\[gcs\]'"):
        RemoteStore(absent, "gs://b", {}).read("gs://b/file")


def test_wrong_address_is_a_storage_error() -> None:
    options = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "k", "s3.secret-key": "s"}
    once: dict[str, Setting] = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    service = replace(SERVICES["s3"], constants=once)

    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1"):
        RemoteStore(service, "s3://b", options).read("s3://b/file")


def test_marks_of_directories_are_no_files(s3: S3Service) -> None:
    folder = fresh("shop.db")
    store = s3_store(s3)
    store.make_directory(f"{folder}/t")
    with s3.client() as client:  # as Hadoop's S3 client marks a directory
        client.put_object(
            Bucket="warehouse", Key=f"{folder}/hadoop/".removeprefix("s3://warehouse/")
        )

    assert [(status.path, status.is_directory) for status in store.list(folder)] == [
        (f"{folder}/hadoop", True),
        (f"{folder}/t", True),
    ]
    assert store.list(f"{folder}/t") == ()
    assert store.list(f"{folder}/hadoop") == ()
    assert store.exists(f"{folder}/t/{DIRECTORY_MARKER}")

    store.delete_directory(folder)
    assert not store.exists(folder)


def test_whole_bucket_is_not_deleted(s3: S3Service) -> None:
    with pytest.raises(InvalidRequest, match="bucket"):
        s3_store(s3).delete_directory("s3://warehouse/")


def test_paths_of_a_listing_have_the_form_that_was_asked_for(s3: S3Service) -> None:
    path = fresh("file")
    hadoop = path.replace("s3://", "s3a://")
    store = open_store(hadoop, s3.options)
    store.put(path, b"")

    (status,) = store.list(hadoop.rpartition("/")[0])
    assert status.path == hadoop


def test_a_listing_is_one_request_a_page_and_none_of_the_parent(
    s3: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = fresh("table"), s3_store(s3)
    for number in range(5):
        store.put(f"{folder}/{number}/file", b"abc")
        store.put(f"{folder}/file{number}", b"ab")
    s3.listings = 0

    assert store.list(f"{folder}/tag") == ()
    assert store.list(f"{folder}/file1") == ()
    assert s3.listings == 2
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "4")
    found = [(status.path, status.size_bytes, status.is_directory) for status in store.list(folder)]
    assert s3.listings == 5
    assert found == [
        *((f"{folder}/{number}", 0, True) for number in range(5)),
        *((f"{folder}/file{number}", 2, False) for number in range(5)),
    ]


def test_a_small_file_is_opened_and_read_by_one_request(s3: S3Service) -> None:
    store, path = s3_store(s3), fresh()
    store.put(path, bytes(range(256)))
    s3.requests.clear()
    with store.open_input(path) as file:
        assert file.size() == 256
        assert file.read_at(3, 5) == bytes([5, 6, 7])
        assert file.read() == bytes(range(8, 256))

    assert dict(s3.requests) == {"GET": 1}


@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES - 1, TAIL_BYTES, TAIL_BYTES + 1, 3_000_000])
def test_any_part_of_a_file_is_read(s3: S3Service, size: int) -> None:
    chance = random.Random(size)
    data, store, path = chance.randbytes(size), s3_store(s3), fresh()
    store.put(path, data)
    with store.open_input(path) as file:
        assert file.size() == size
        for _ in range(20):
            start, count = chance.randint(0, size), chance.choice([0, 1, 1000, 70_000, 2_000_000])
            file.seek(start)
            assert file.read(count) == data[start : start + count]
            assert file.read(10) == data[start + count :][:10]
            assert file.tell() == min(size, max(start, start + count + 10))
        file.seek(0)
        assert b"".join(iter(partial(file.read, 50_000), b"")) == data


def test_a_large_file_is_read_ahead_only_in_order(s3: S3Service) -> None:
    store, path = s3_store(s3), fresh()
    store.put(path, bytes(8 << 20))
    s3.requests.clear()
    s3.sent_bytes = 0
    with store.open_input(path) as file:
        for number in range(1, 6):
            assert len(file.read_at(100_000, number << 20)) == 100_000
    assert s3.sent_bytes == TAIL_BYTES + 500_000
    s3.requests.clear()
    with store.open_input(path) as file:
        while file.read(100_000):
            pass
    assert s3.requests["GET"] <= 10


def test_many_files_are_deleted_by_few_requests(s3: S3Service) -> None:
    store, folder = s3_store(s3), fresh("many")
    paths = [f"{folder}/{number}" for number in range(1_200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: store.put(path, b"a"), paths[:40]))
    store.put(f"{folder}/kept", b"a")
    s3.requests.clear()

    assert delete_files(store, paths) == 1_200  # files that are not there are no error
    assert dict(s3.requests) == {"POST": 2}
    assert [status.path for status in store.list(folder)] == [f"{folder}/kept"]


def test_a_file_that_may_not_be_deleted_is_an_error(
    s3: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = s3_store(s3), fresh()
    refused = {"Errors": [{"Key": path, "Code": "AccessDenied", "Message": "no"}]}
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", AsyncMock(return_value=refused))

    with pytest.raises(StorageError, match="AccessDenied"):
        delete_files(store, [path])


def test_a_file_that_is_not_there_is_not_found(s3: S3Service) -> None:
    store = s3_store(s3)
    store.put(fresh("a/b"), b"")
    with pytest.raises(NotFound):
        store.open_input(fresh())


def test_store_works_in_a_forked_process(s3: S3Service) -> None:
    store, path = ready(s3_store(s3)), fresh()

    child = os.fork()
    if child == 0:
        won = False
        try:
            won = store.put_if_absent(path, b"child")
        finally:
            os._exit(0 if won else 1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert store.read(path) == b"child"


def test_oss_is_read_and_written_by_its_s3_api_and_has_no_conditional_put(s3: S3Service) -> None:
    options = {
        "fs.oss.endpoint": s3.endpoint,
        "fs.oss.accessKeyId": "key",
        "fs.oss.accessKeySecret": "secret",
    }
    path = fresh().replace("s3://", "oss://")
    folder = path.rpartition("/")[0]
    store = open_store(path, options)
    store.put(path, b"bytes")
    with store.open_output(f"{folder}/large") as output:
        output.write(b"x" * (9 << 20))

    assert store.read(path) == b"bytes"
    assert store.size(f"{folder}/large") == 9 << 20
    with pytest.raises(Unsupported, match="no conditional put"):
        store.put_if_absent(f"{folder}/snapshot-2", b"")
    store.delete_directory(folder)
    assert store.list(folder) == ()


SECRETS = {
    "s3": {
        "s3.access-key": "AKIA-the-key-id",
        "s3.secret-key": "a+secret/key=",
        "s3.token": "tkn+5",
    },
    "oss": {"fs.oss.accessKeyId": "LTAI-the-key-id", "fs.oss.accessKeySecret": "a+secret/key="},
}


@pytest.mark.parametrize("scheme", [*SECRETS])
def test_no_message_representation_or_log_shows_a_secret(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="lakecore")
    secrets = SECRETS[scheme]
    place = {"s3": "s3.endpoint", "oss": "fs.oss.endpoint"}[scheme]
    options = {**secrets, place: "http://127.0.0.1:1"}
    uri = f"{scheme}://bucket/w"
    once: dict[str, Setting] = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    store = RemoteStore(replace(SERVICES[scheme], constants=once), uri, options, seeded(1))
    with pytest.raises(StorageError) as caught:
        store.put(f"{uri}/file", b"")
    shown = [repr(store), caplog.text, *(repr(each) for each in _chain(caught.value))]

    for secret in secrets.values():
        assert not [text for text in shown if secret in text]


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(cause)
    return found


MEMORY = Service(protocol="memory", package="fsspec")


def test_copies_are_removed_if_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "memory://copies/w"
    store = RemoteStore(MEMORY, place, {"commit.single-writer": "true"})
    for name in "abc":
        store.put(f"{place}/t/{name}", b"x")
    copy = MemoryFileSystem.cp_file

    def fails_at_b(files: MemoryFileSystem, source: str, target: str, **options: Any) -> None:
        if source.endswith("b"):
            raise PermissionError
        copy(files, source, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "cp_file", fails_at_b)
    with pytest.raises(StorageError):
        store.copy_directory(f"{place}/t", f"{place}/u")
    assert [child.path for child in store.list(place)] == [f"{place}/t"]
    assert len(store.list(f"{place}/t")) == 3


def test_directory_with_the_mark_of_another_alone_is_copied() -> None:
    place = "memory://marked/w"
    store = RemoteStore(MEMORY, place, {"commit.single-writer": "true"})
    MemoryFileSystem().makedirs("/marked/w/t")

    store.copy_directory(f"{place}/t", f"{place}/u")
    assert [child.path for child in store.list(place)] == [f"{place}/t", f"{place}/u"]


def test_directory_that_is_gone_has_no_files_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(MemoryFileSystem, "find", gone)
    store = RemoteStore(MEMORY, "memory://gone/w", {"commit.single-writer": "true"})

    store.delete_directory("memory://gone/w/t")


@pytest.mark.parametrize(
    ("info", "modified_ms"),
    [
        ({"LastModified": datetime(2024, 1, 1, tzinfo=UTC)}, 1_704_067_200_000),
        ({"updated": "2024-01-01T00:00:00.250Z"}, 1_704_067_200_250),
        ({"mtime": 1.5}, 1_500),
        ({"mtime": None, "created": 2}, 2_000),
        ({"updated": ""}, None),
        ({}, None),
    ],
)
def test_time_of_a_change_has_the_name_of_its_service(
    info: dict[str, object], modified_ms: int | None
) -> None:
    assert _modified_ms(info) == modified_ms
