"""Lost requests and replies of a commit on each storage, and an unreachable name node."""

from __future__ import annotations

import itertools
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import CommitUnknown, StorageError
from lakecore.io.stores import services
from lakecore.io.stores.hdfs import HdfsStore
from lakecore.io.stores.open import open_store
from lakecore.io.stores.services import SECONDS_MAX
from tests.services import storage_servers
from tests.services.lossy_proxy import Faults, lossy_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.io.stores.store import Store
    from tests.services.storage_servers import Lake

FILES = itertools.count()
OPTIONS: dict[str, Callable[[int], dict[str, str]]] = {
    "gcs": storage_servers.gcs_options,
    "azure": storage_servers.azure_options,
}


@pytest.fixture(params=["gcs", "azure"])
def lossy(request: pytest.FixtureRequest) -> Iterator[tuple[Store, Store, Faults, str]]:
    """A store behind a proxy, a store that bypasses it, the faults of the proxy, and a path."""
    lake: Lake = request.getfixturevalue(request.param)
    with lossy_proxy(lake.port) as faults:
        store = open_store(lake.root, OPTIONS[request.param](faults.port))
        assert store.put_if_absent(lake.folder(f"faults/{next(FILES)}"), b"")
        faults.seen = 0
        yield store, open_store(lake.root, lake.options), faults, lake.folder(f"f/{next(FILES)}")


def test_lost_reply_of_our_put_is_found_to_be_ours(
    lossy: tuple[Store, Store, Faults, str],
) -> None:
    store, direct, faults, path = lossy
    faults.lost_replies = 1

    assert store.put_if_absent(path, b"ours")
    assert faults.lost_replies == 0
    assert faults.seen > 1, "the put was repeated"
    assert direct.read(path) == b"ours"
    assert not store.put_if_absent(path, b"theirs")
    assert direct.read(path) == b"ours"


def test_put_that_was_lost_on_the_way_is_sent_again(
    lossy: tuple[Store, Store, Faults, str],
) -> None:
    store, direct, faults, path = lossy
    faults.lost_requests = 1

    assert store.put_if_absent(path, b"ours")
    assert direct.read(path) == b"ours"


@pytest.fixture
def store(hdfs: Lake) -> HdfsStore:
    store = open_store(hdfs.root, hdfs.options)
    assert isinstance(store, HdfsStore)
    return store


def doubt(patch: pytest.MonkeyPatch, *, happens: bool, also_dies: bool = False) -> None:
    """The next rename raises an error before or after it happens; the name node may be gone."""
    import hdfs_native

    rename = hdfs_native.Client.rename

    def lose(*_: object) -> None:
        message = "connection lost"
        raise RuntimeError(message)

    def doubtful(client: Any, source: str, target: str, *, overwrite: bool = False) -> None:
        if happens:
            rename(client, source, target, overwrite)
        if also_dies:
            for name in ("delete", "get_file_info", "read"):
                patch.setattr(hdfs_native.Client, name, lose)
        lose()

    patch.setattr(hdfs_native.Client, "rename", doubtful)


def test_rename_whose_reply_is_lost_is_found_to_be_ours(
    store: HdfsStore, hdfs: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hdfs.folder(f"f/{next(FILES)}")
    with monkeypatch.context() as patch:
        doubt(patch, happens=True)
        assert store.put_if_absent(path, b"ours")

    assert store.read(path) == b"ours"
    assert [each.path for each in store.list(hdfs.folder("f"))].count(path) == 1


def test_rename_that_did_not_happen_never_will(
    store: HdfsStore, hdfs: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hdfs.folder(f"g{next(FILES)}/file")
    with monkeypatch.context() as patch:
        doubt(patch, happens=False)
        with pytest.raises(StorageError, match="connection lost"):
            store.put_if_absent(path, b"ours")

    assert store.list(path.rpartition("/")[0]) == ()


@pytest.mark.parametrize("happens", [False, True])
def test_rename_of_a_name_node_that_is_gone_is_unknown(
    store: HdfsStore, hdfs: Lake, monkeypatch: pytest.MonkeyPatch, *, happens: bool
) -> None:
    path = hdfs.folder(f"f/{next(FILES)}")
    with monkeypatch.context() as patch:
        doubt(patch, happens=happens, also_dies=True)
        with pytest.raises(CommitUnknown):
            store.put_if_absent(path, b"ours")

    assert store.exists(path) == happens


def test_name_node_that_does_not_answer_is_a_storage_error() -> None:
    with pytest.raises(StorageError) as caught:
        open_store("hdfs://127.0.0.1:1/w", {}).read("hdfs://127.0.0.1:1/w/file")

    assert "\n" not in str(caught.value), "no stack of Java"


def test_writes_go_on_when_the_other_name_node_takes_over() -> None:
    with storage_servers.mini_hdfs_pair() as (lake, cluster):
        session = lc.connect({"warehouse": f"{lake.root}/w", **lake.options}, create=True)
        session.create_database("d")
        table = session.create_table("d.t", {"id": "INT"})
        for number in range(4):
            table.write([{"id": number}])
            cluster.switch()

        assert sorted(session.get_table("d.t").to_polars()["id"].to_list()) == [0, 1, 2, 3]


@pytest.fixture(params=["refused", "silent"])
def dead_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port that refuses connections, or one whose queue of connections is full."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        if request.param == "refused":
            yield port
            return
        held.listen(0)
        with ExitStack() as queue:
            for _ in range(4):
                waiting = queue.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.1", port))
            yield port


@pytest.mark.parametrize("kind", ["gcs", "azure", "hdfs"])
@pytest.mark.sampled(2)
def test_storage_that_is_down_is_reported_in_seconds(kind: str, dead_port: int) -> None:
    root, options = {
        "gcs": ("gs://lake/w", storage_servers.gcs_options(dead_port)),
        "azure": (
            f"abfss://lake@{storage_servers.ACCOUNT}.dfs.core.windows.net/w",
            storage_servers.azure_options(dead_port),
        ),
        "hdfs": (f"hdfs://127.0.0.1:{dead_port}/w", {}),
    }[kind]
    with pytest.raises(StorageError, match="cannot be reached") as raised:
        lc.connect({"warehouse": root, **options})

    assert float(str(raised.value.facts["waited_seconds"])) <= SECONDS_MAX + 2


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_request_that_cannot_connect_any_more_is_given_up_in_seconds(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "check_reachable", lambda _address: None)  # as if it was up then
    root = {
        "gcs": "gs://lake",
        "azure": f"abfss://lake@{storage_servers.ACCOUNT}.dfs.core.windows.net",
    }[kind]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        store = open_store(root, OPTIONS[kind](held.getsockname()[1]))
        with pytest.raises(StorageError):
            store.exists(f"{root}/x")  # the first request also loads the client
        began = time.monotonic()
        with pytest.raises(StorageError):
            store.read(f"{root}/x")

    assert time.monotonic() - began < 20
