"""How a snapshot becomes visible: the outcomes of a store, and what a commit makes of each."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitConflict, CommitUnknown, NotFound, StorageError
from lakecore.format import metadata
from lakecore.io.history import History
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import (
    EXCLUSIVE_CREATE,
    ExclusiveCreate,
    LostRace,
    Published,
    Refused,
    SnapshotProposal,
    Unknown,
)
from tests.stores import FailingStore
from tests.tables import held, in_directory, new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.publication import Outcome, Publication, SchemaProposal


class Answering(FailingStore):
    """Carries out a creation or not, and then says something else about it."""

    def __init__(self, inner: Store, *, done: bool, says: Exception, readable: bool = True) -> None:
        super().__init__(inner)
        self.done, self.says, self.readable = done, says, readable

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.done:
            self.inner.put_if_absent(path, data)
        raise self.says

    def read(self, path: str) -> bytes:
        if not self.readable:
            raise StorageError("no network", path=path)
        return super().read(path)


def proposed(table: Table, *, uuid: str = "mine") -> SnapshotProposal:
    """A snapshot 2 after the only one of a table."""
    base = table.context.history.snapshot(1)
    snapshot = replace(base, id=2, uuid=uuid)
    data = metadata.encode_snapshot(snapshot)
    return SnapshotProposal(snapshot=snapshot, data=data, base=base, delta=())


def one_snapshot() -> Table:
    table = new_table()
    put(table, "1 a")
    return reopened(table)


def published_by(table: Table, store: Store, proposal: SnapshotProposal) -> Outcome:
    return EXCLUSIVE_CREATE.publish_snapshot(store, table.context.layout, proposal)


def test_of_two_proposals_for_a_number_one_is_published() -> None:
    table = one_snapshot()
    store = table.context.store

    assert published_by(table, store, proposed(table)) == Published()
    assert published_by(table, store, proposed(table, uuid="other")) == LostRace()


REFUSAL = StorageError("no permission")
NO_REPLY = CommitUnknown("no reply")
CUT_OFF = OSError("cut off")


@pytest.mark.parametrize(
    ("done", "says", "readable", "outcome"),
    [
        (True, NO_REPLY, True, Published()),
        (True, REFUSAL, True, Published()),
        (True, CUT_OFF, True, Published()),
        (False, REFUSAL, True, Refused(REFUSAL)),
        (False, NO_REPLY, True, Unknown(NO_REPLY)),
        (False, CUT_OFF, True, Unknown(CUT_OFF)),
        (True, NO_REPLY, False, Unknown(NO_REPLY)),
        (False, REFUSAL, False, Unknown(REFUSAL)),
    ],
)
def test_after_an_error_the_file_decides(
    done: bool,  # noqa: FBT001
    says: Exception,
    readable: bool,  # noqa: FBT001
    outcome: Outcome,
) -> None:
    table = one_snapshot()
    store = Answering(table.context.store, done=done, says=says, readable=readable)

    assert published_by(table, store, proposed(table)) == outcome


def test_after_an_error_the_snapshot_of_another_is_a_lost_race() -> None:
    table = one_snapshot()
    published_by(table, table.context.store, proposed(table, uuid="other"))
    store = Answering(table.context.store, done=False, says=NO_REPLY)

    assert published_by(table, store, proposed(table)) == LostRace()


class Slow(FailingStore):
    """Others act just before a snapshot is created; its deletion fails if that is said."""

    def __init__(self, table: Table, meanwhile: Callable[[], object], *, stuck: bool) -> None:
        super().__init__(table.context.store)
        self._meanwhile: Callable[[], object] | None = meanwhile
        self._stuck = stuck

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super().put_if_absent(path, data)

    def delete(self, path: str) -> None:
        if self._stuck and "snapshot-" in path:
            raise NO_ACCESS
        super().delete(path)


NO_ACCESS = StorageError("no permission")


@pytest.mark.parametrize(
    ("stuck", "outcome"), [(False, LostRace(was_stored=True)), (True, Unknown(NO_ACCESS))]
)
def test_a_number_whose_snapshot_has_expired_is_taken(
    stuck: bool,  # noqa: FBT001
    outcome: Outcome,
) -> None:
    table = one_snapshot()
    proposal = proposed(table)
    put(table, "2 b")
    put(table, "3 c")
    table.expire_snapshots(retain_max=1, retain_min=1)
    store = Slow(table, lambda: None, stuck=stuck)

    assert published_by(table, store, proposal) == outcome
    assert table.context.store.exists(table.context.layout.snapshot(2)) is stuck


@pytest.mark.parametrize("first", [True, False])
def test_a_commit_that_stood_still_until_its_number_expired_is_not_lost(
    first: bool,  # noqa: FBT001
) -> None:
    table = new_table() if first else one_snapshot()

    def meanwhile() -> None:
        put(reopened(table), "7 x")
        put(reopened(table), "8 y")
        reopened(table).expire_snapshots(retain_max=1, retain_min=1)

    put(reopened(table, store=Slow(table, meanwhile, stuck=False)), "9 z")

    assert held(reopened(table)) == ("" if first else "1 a | ") + "7 x | 8 y | 9 z"
    assert reopened(table).context.history.snapshot_ids() == ((2, 3) if first else (3, 4))
    reopened(table).expire_snapshots(retain_max=1, retain_min=1)
    assert held(reopened(table)).endswith("9 z")


def three_snapshots() -> Table:
    table = one_snapshot()
    put(table, "2 b")
    put(table, "3 c")
    return reopened(table)


@pytest.mark.parametrize("others", ["", "4 d", "4 d | 5 e"])
def test_a_commit_whose_base_is_rolled_back_meanwhile_is_made_on_the_target(others: str) -> None:
    table = three_snapshots()

    def meanwhile() -> None:
        other = reopened(table)
        other.rollback_to(snapshot_id=1)
        for line in filter(None, others.split(" | ")):
            put(other, line)

    put(reopened(table, store=Slow(table, meanwhile, stuck=False)), "9 z")

    ids = range(1, len([*filter(None, others.split(" | "))]) + 3)
    assert reopened(table).context.history.snapshot_ids() == tuple(ids)
    assert held(reopened(table)) == "1 a | " + (f"{others} | " if others else "") + "9 z"


def test_a_commit_into_a_table_that_is_dropped_meanwhile_leaves_no_snapshot() -> None:
    table = three_snapshots()
    store, layout = table.context.store, table.context.layout
    slow = Slow(table, lambda: unguarded(store).delete_directory(layout.root), stuck=False)

    with pytest.raises(NotFound, match="dropped"):
        put(reopened(table, store=slow), "9 z")
    assert not store.list(layout.snapshot_dir)


def test_a_base_that_has_expired_meanwhile_stays_the_base() -> None:
    table = three_snapshots()
    proposal = proposed(table)
    proposal = replace(
        proposal,
        base=table.context.history.snapshot(3),
        snapshot=replace(proposal.snapshot, id=4),
        data=metadata.encode_snapshot(replace(proposal.snapshot, id=4)),
    )
    store, layout = table.context.store, table.context.layout
    for number in (1, 2, 3):  # as other engines do, which move EARLIEST afterwards
        store.delete(layout.snapshot(number))

    assert published_by(table, store, proposal) == Published()


@dataclass(frozen=True)
class Scripted:
    """Has outcomes in store for the first proposals, and carries out the later ones."""

    outcomes: list[Outcome]
    proposals: list[SnapshotProposal] = field(default_factory=list)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        self.proposals.append(proposal)
        if self.outcomes:
            return self.outcomes.pop(0)
        return EXCLUSIVE_CREATE.publish_snapshot(store, layout, proposal)

    references = None
    access = None

    def history(self, store: Store, layout: Layout) -> History:
        return EXCLUSIVE_CREATE.history(store, layout)

    def publish_schema(self, store: Store, layout: Layout, proposal: SchemaProposal) -> bool:
        return EXCLUSIVE_CREATE.publish_schema(store, layout, proposal)

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """None: a server that owns the snapshots is asked for the newest."""

    def note_tags(
        self, history: History, *, made: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """None: tags are files."""


def published_through(table: Table, publication: Publication) -> Table:
    context = table.context
    return load_table(context.store, table.path, ambient=context.ambient, publication=publication)


def manifests_in(table: Table) -> set[str]:
    return set(in_directory(table, "manifest"))


def test_a_commit_proposes_its_snapshot_its_base_and_its_changes() -> None:
    script = Scripted([])
    table = published_through(one_snapshot(), script)
    put(table, "2 b")
    (proposal,) = script.proposals

    assert (proposal.snapshot.id, proposal.base) == (2, table.context.history.snapshot(1))
    assert [entry.file.row_count for entry in proposal.delta] == [1]
    assert metadata.decode_snapshot(proposal.data, "") == proposal.snapshot


def test_a_lost_race_is_tried_again() -> None:
    script = Scripted([LostRace(), LostRace()])
    table = published_through(one_snapshot(), script)
    put(table, "2 b")

    assert len(script.proposals) == 3
    assert held(reopened(table)) == "1 a | 2 b"


def test_losing_every_race_is_a_conflict() -> None:
    table = published_through(one_snapshot(), Scripted([LostRace()] * 100))
    before = manifests_in(table)

    with pytest.raises(CommitConflict, match="lost every race"):
        put(table, "2 b")

    assert manifests_in(table) == before


def test_a_refusal_is_raised_and_leaves_nothing() -> None:
    table = published_through(one_snapshot(), Scripted([Refused(REFUSAL)]))
    before = manifests_in(table)

    with pytest.raises(StorageError, match="no permission"):
        put(table, "2 b")

    assert manifests_in(table) == before
    assert held(reopened(table)) == "1 a"


def test_a_lost_reply_is_unknown_and_deletes_nothing() -> None:
    table = published_through(one_snapshot(), Scripted([Unknown(CUT_OFF)]))
    before = manifests_in(table)

    with pytest.raises(CommitUnknown, match="snapshot_id=2") as raised:
        put(table, "2 b")

    assert manifests_in(table) > before
    assert raised.value.__cause__ is CUT_OFF


@pytest.mark.parametrize(
    "again",
    [
        lambda table: table,
        lambda table: table.copy({"write-only": "true"}),
        lambda table: table.refresh(),
    ],
    ids=["handle", "copy", "refresh"],
)
def test_every_handle_of_a_table_publishes_in_the_same_way(again: Callable[[Table], Table]) -> None:
    script = Scripted([])
    table = published_through(one_snapshot(), script)
    put(again(table), "2 b")

    assert len(script.proposals) == 1


@dataclass(frozen=True)
class Locked(ExclusiveCreate):
    """Publishes while it holds a lock, on a store whose creations are two steps."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        with self.lock:
            return super().publish_snapshot(store, layout, proposal)


class TwoSteps(MemoryStore):
    """Looks whether a file exists, and then writes it: safe only for one caller at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.callers = threading.Semaphore(1)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        assert self.callers.acquire(blocking=False), "two callers at the same time"
        try:
            if self.exists(path):
                return False
            self.put(path, data)
            return True
        finally:
            self.callers.release()


def test_many_writers_under_a_lock_lose_nothing() -> None:
    table = new_table(store=TwoSteps())
    locked = Locked()
    handles = [published_through(table, locked) for _ in range(4)]
    threads = [
        threading.Thread(target=put, args=(handle, f"{number} a"))
        for number, handle in enumerate(handles)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert held(reopened(table)) == "0 a | 1 a | 2 a | 3 a"


@dataclass
class Server:
    """Owns the snapshots of a table: no file shows them."""

    snapshots: list[Snapshot] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class ByServer(ExclusiveCreate):
    """Publishes by a call to the server, and asks it for what was published."""

    server: Server = field(default_factory=Server)

    references = None
    access = None

    def history(self, store: Store, layout: Layout) -> History:
        return Asking(store, layout, self.server)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        del store, layout
        snapshots = self.server.snapshots
        with self.server.lock:
            if proposal.base != (snapshots[-1] if snapshots else None):
                return LostRace()
            snapshots.append(metadata.decode_snapshot(proposal.data, ""))
            return Published()

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """None: the server knows the newest snapshot."""


class Asking(History):
    """Reads snapshots from the server, and all else from files."""

    def __init__(self, store: Store, layout: Layout, server: Server) -> None:
        super().__init__(store, layout)
        self.server = server

    def snapshot_ids(self) -> tuple[int, ...]:
        return tuple(snapshot.id for snapshot in self.server.snapshots)

    def snapshot_if_there(self, snapshot_id: int) -> Snapshot | None:
        return next((each for each in self.server.snapshots if each.id == snapshot_id), None)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        found = self.snapshot_if_there(snapshot_id)
        assert found is not None
        return found

    def latest_snapshot_id(self) -> int | None:
        return max(self.snapshot_ids(), default=None)

    def latest_snapshot(self) -> Snapshot | None:
        return self.server.snapshots[-1] if self.server.snapshots else None


def test_table_whose_snapshots_a_server_owns_is_written_read_and_compacted() -> None:
    by_server = ByServer()
    table = published_through(new_table(), by_server)
    put(table, "1 a | 2 b")
    put(table.refresh(), "2 c | 3 d")
    table.delete("id = 1")
    table.compact(full=True)

    assert held(published_through(table, by_server)) == "2 c | 3 d"
    assert [each.commit_kind for each in by_server.server.snapshots][-1] == "COMPACT"
    assert not in_directory(table, "snapshot")


def test_writers_of_a_table_whose_snapshots_a_server_owns_lose_nothing() -> None:
    by_server = ByServer()
    table = published_through(new_table(), by_server)
    put(table, "1 a")
    handles = [table.refresh() for _ in range(3)]
    threads = [
        threading.Thread(target=put, args=(handle, f"{number} b"))
        for number, handle in enumerate(handles)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert held(table) == "0 b | 1 b | 2 b"
    assert [each.id for each in by_server.server.snapshots] == [1, 2, 3, 4]
