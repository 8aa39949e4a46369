"""Two verbs at once, one interrupted by a part of the other: every state that is left is whole.

Each pair of verbs that make, move or delete snapshots, tags, branches, changelogs, consumers or
files: the first runs until a call of the store, the second until one of its own, then the first
ends, then the second. Or the second is at one of its calls, the first dies at one of its own, the
second ends, and the first is repeated.

Afterwards every snapshot, tag and branch that readers find has all its files; the table is as after
one verb and then the other, or an error says that one was not done; and a commit, an expiry and the
removal of orphan files lose nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.model.validation import create_schema
from lakecore.table.handle import Table, load_table
from lakecore.table.maintenance.deletion import is_removed
from lakecore.table.publication import write_schema
from lakecore.testing.stores import files_below
from property_tests.profile import calls_of
from property_tests.simulation.interleaving import (
    DAY_SECONDS,
    PATH,
    Footprint,
    Player,
    copy_of,
    open_at,
    play,
)
from property_tests.simulation.swarm import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.snapshot import Snapshot

Verb: TypeAlias = "Callable[[Table], object]"
Rows: TypeAlias = tuple[tuple[Any, ...], ...]

Outcome: TypeAlias = "dict[object, object]"

TRUE_ERRORS = (AlreadyExists, CommitConflict, InvalidRequest, NotFound, Unsupported)
"""What a verb may say beside another: not that the table is damaged, nor that the storage is."""


def _write(table: Table, number: int) -> None:
    table.write([{"p": 1, "id": number, "v": number}])


def _overwrite(table: Table, number: int) -> None:
    table.overwrite([{"p": 1, "id": number, "v": number}], {"p": 1})


def _expire(table: Table, least: int = 1) -> object:
    return table.expire_snapshots(retain_max=least, retain_min=least, max_deletes=99)


def _expiring(table: Table) -> Table:
    """The same table; each commit lets all others expire."""
    return table.copy({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})


def _rows(table: Table, **travel: Any) -> Rows:
    return tuple(sorted(tuple(row.values()) for row in table.to_arrow(**travel).to_pylist()))


def _built(options: dict[str, str]) -> MemoryStore:
    """Snapshots 4 to 8; of the older ones, tags keep 1 and 2; and two branches."""
    ambient = seeded(0)
    store = MemoryStore(ambient)
    schema = create_schema(
        {"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "INT"},
        primary_keys=("p", "id"),
        partition_keys=("p",),
        options={"bucket": "1", "file.format": "avro", "num-sorted-run.compaction-trigger": "3"}
        | options,
        now_ms=0,
    )
    write_schema(store, Layout(root=PATH), schema)
    table = load_table(store, PATH, ambient=ambient, budget=Budget(1 << 30))
    table = table.copy({"write-only": "true"})  # one snapshot for each call
    table.write([{"p": p, "id": 1, "v": 1} for p in (1, 2)])
    table.create_tag("first")
    table.create_branch("f", "first")
    forked = table.branch("f")
    _write(forked, 11)
    forked.create_tag("of branch")
    _overwrite(forked, 12)
    _overwrite(table, 2)
    table.create_tag("only")
    _write(table, 3)
    _overwrite(table, 4)
    table.create_tag("fourth")
    table.create_branch("g", "fourth")
    _overwrite(table, 5)
    _overwrite(table, 6)
    table.create_tag("sixth")
    _overwrite(table, 7)
    _write(table, 8)
    _expire(table, 5)
    table.reset_consumer("c", 8)
    store.put(f"{PATH}/p=1/bucket-0/data-nobody-0.avro", b"nothing")
    return store


WORLDS = {
    "plain": {},
    "told": {"changelog-producer": "input", "changelog.num-retained.max": "100"},
}
BRANCHED: dict[str, Verb] = {
    "expire the branch": lambda table: _expire(table.branch("f")),
    "write the branch": lambda table: _write(table.branch("f"), 19),
    "roll the branch back": lambda table: table.branch("f").rollback_to(2),
    "delete a tag of the branch": lambda table: table.branch("f").delete_tag("of branch"),
    "replace a tag of the branch": lambda table: table.branch("f").replace_tag("of branch", 3),
}
VERBS: dict[str, Verb] = {
    "expire": _expire,
    "expire one": lambda table: _expire(table, 3),
    "expire changelogs": lambda table: table.expire_changelogs(retain_max=1, retain_min=1),
    "expire tags": lambda table: table.expire_tags("2100-01-01"),
    "roll back": lambda table: table.rollback_to(5),
    "roll back to a tagged": lambda table: table.rollback_to(6),
    "roll back to a tag": lambda table: table.rollback_to(tag="fourth"),
    "roll back to an expired tag": lambda table: table.rollback_to(tag="only"),
    "create_tag": lambda table: table.create_tag("x", snapshot_id=5),
    "create_tag of a tag": lambda table: table.create_tag("x", snapshot_id=2),
    "replace_tag": lambda table: table.replace_tag("only", snapshot_id=5),
    "replace_tag by an older": lambda table: table.replace_tag("fourth", snapshot_id=2),
    "rename_tag": lambda table: table.rename_tag("only", "x"),
    "rename_tag of a snapshot": lambda table: table.rename_tag("sixth", "x"),
    "delete_tag": lambda table: table.delete_tag("only"),
    "delete_tag of a snapshot": lambda table: table.delete_tag("fourth"),
    "delete_tag of a branch": lambda table: table.delete_tag("first"),
    "create_branch": lambda table: table.create_branch("x", "only"),
    "create_branch of a snapshot": lambda table: table.create_branch("x", "sixth"),
    "create_branch without rows": lambda table: table.create_branch("x"),
    "delete_branch": lambda table: table.delete_branch("f"),
    "rename_branch": lambda table: table.rename_branch("f", "x"),
    "fast_forward": lambda table: table.fast_forward("f"),
    "fast_forward to a snapshot": lambda table: table.fast_forward("g"),
    **BRANCHED,
    "write": lambda table: _write(table, 21),
    "write and expire": lambda table: _write(_expiring(table), 22),
    "overwrite": lambda table: _overwrite(table, 23),
    "truncate": lambda table: table.truncate(),
    "drop_partition": lambda table: table.drop_partition({"p": 1}),
    "compact": lambda table: table.compact(full=True),
    "compact_manifests": lambda table: table.compact_manifests(),
    "remove orphans": lambda table: table.remove_orphan_files(),
    "purge": lambda table: table.purge_files(),
    "reset_consumer": lambda table: table.reset_consumer("c", 5),
    "delete a consumer": lambda table: table.reset_consumer("c"),
    "read": _rows,
    "follow": lambda table: [(n, frame.collect()) for n, frame in table.stream(4, "latest")],
}
LEADS_BACK = {name for name in VERBS if name.startswith(("roll", "fast_forward", "purge"))}
WRITES = {
    *("write", "write and expire", "overwrite", "truncate", "drop_partition"),
    *("compact", "compact_manifests", "write the branch"),
}
"""Writers stop before a verb that leads back: such pairs are left out."""
EXPIRES = {"expire", "expire one", "write and expire"}


def _digest(store: MemoryStore) -> int:
    """What tells apart two stores."""
    return hash(tuple((path, store.read(path)) for path in files_below(store, PATH)))


class Seen:
    """What readers find: the rows of every state, of which each must be whole."""

    def __init__(self, store: MemoryStore, files: dict[object, Rows]) -> None:
        table = open_at(store, 99)
        self._store, self._files = store, files
        self.states: set[Rows] = set()
        self.latest = self._of(table)
        self.stale_tags = [
            tag.name for tag in table.tags() if is_removed(table.context, tag.snapshot)
        ]
        self.branches = {each.name: self._of(table.branch(each.name)) for each in table.branches()}
        self.consumers = {each.consumer_id: each.next_snapshot for each in table.consumers()}

    @property
    def outcome(self) -> Outcome:
        """What is there, part by part."""
        parts: Outcome = {"rows": self.latest[0]}
        parts |= {("tag", name): rows for name, rows in self.latest[1].items()}
        parts |= {("consumer", name): number for name, number in self.consumers.items()}
        for branch, (rows, tags) in self.branches.items():
            parts["branch", branch] = rows
            parts |= {("branch", branch, name): rows for name, rows in tags.items()}
        return parts

    def _of(self, table: Table) -> tuple[Rows | None, dict[str, Rows]]:
        past, latest = table.context.history, None
        for number in past.snapshot_ids():
            latest = self._rows(table, past.snapshot(number))
        for number in past.changelog_ids():
            table.changes(number - 1, number).collect()
        return latest, {tag.name: self._rows(table, tag.snapshot) for tag in table.tags()}

    def _rows(self, table: Table, snapshot: Snapshot) -> Rows:
        context, history = table.context, table.context.history
        entries = history.live_entries(snapshot)
        for entry in entries:
            path = context.layout.data_file(
                context.partitions.path(entry.partition), entry.bucket, entry.file
            )
            assert self._store.exists(path), f"{path} of snapshot {snapshot.id} is lost"
        key = frozenset((entry.partition, entry.file.name) for entry in entries)
        if key not in self._files:
            if snapshot.is_same(history.snapshot_if_there(snapshot.id)):
                self._files[key] = _rows(table, snapshot_id=snapshot.id)
            else:
                name = next(each.name for each in table.tags() if each.snapshot == snapshot)
                self._files[key] = _rows(table, tag=name)
        self.states.add(self._files[key])
        return self._files[key]


class Pair:
    """Two verbs on a world, and what may come of them."""

    def __init__(self, world: str, first: str, second: str) -> None:
        self.start, self.names = _world(world), (first, second)
        self.files: dict[object, Rows] = {}
        self._found: dict[int, Seen] = {}  # by what is stored
        self._goes_on: set[int] = set()
        before = Seen(self.start, self.files)
        self.base, self.states = before.outcome, {*before.states}
        self.footprints = (Footprint(), Footprint())
        for order in ((0, 1), (1, 0)):  # once more: now each knows what the other does
            self._after(*order)
        calls = (Footprint(), Footprint())
        orders = [self._after(*order, calls=calls) for order in ((0, 1), (1, 0))]
        self.footprints = calls
        self.alone = [alone for alone, _ in orders]
        self.orders = [both for _, both in orders]

    def _player(
        self, which: int, *, since: int = 0, at: int | None = None, dies_at: int | None = None
    ) -> Player:
        return Player(
            verb=VERBS[self.names[which]],
            seed=100 + which,
            footprint=self.footprints[1 - which].since(since),
            at=at,
            dies_at=dies_at,
        )

    def _after(
        self, *order: int, calls: tuple[Footprint, Footprint] | None = None
    ) -> list[Outcome]:
        """What is there after one, and after the other; the calls of both are noted."""
        store, found = copy_of(self.start, renames_at_once=True), []
        for which in order:
            player = self._player(which)
            player.run(store)
            self._check_error(player)
            for call in player.session.own.calls:
                (calls or self.footprints)[which].take_in(*call)
            seen = self._seen(store)
            self.states |= seen.states
            found.append(seen.outcome)
        return found

    def play(self, at: int, other_at: int) -> tuple[bool, bool]:
        """The first until `at`, the second until `other_at`, and both to their ends."""
        store = copy_of(self.start, renames_at_once=bool(at % 2))
        first, second = self._player(0, at=at), self._player(1, since=at, at=other_at)
        play(store, first, second)
        self._check(store, (first, second))
        return first.session.came, second.session.came

    def play_death(self, at: int, dies_at: int) -> tuple[bool, bool]:
        """The second until `at`, the first until its death, the second, and the first again."""
        store = copy_of(self.start, renames_at_once=bool(at % 2))
        first, second = self._player(0, since=at, dies_at=dies_at), self._player(1, at=at)
        play(store, second, first)
        if not EXPIRES.issuperset(self.names):
            # If an expiry that began before moves EARLIEST back, the next one ends what is left.
            assert self._seen(store).states <= self.states
        again = replace(self._player(0), seed=102)  # another process: it draws other names
        again.run(store)
        self._check(store, (again, second))
        return second.session.came, first.session.is_dead

    def _check_error(self, player: Player) -> None:
        if player.error is not None and not isinstance(player.error, TRUE_ERRORS):
            raise player.error

    def _check(self, store: MemoryStore, players: tuple[Player, Player]) -> None:
        for player in players:
            self._check_error(player)
        seen = self._seen(store)
        assert seen.states <= self.states, f"unknown rows: {seen.states - self.states}"
        assert not seen.stale_tags, f"tags of removed snapshots: {seen.stale_tags}"
        first, second = (player.error is not None for player in players)
        may_be = [*self.orders]
        # Of two that lead back, or a maker of a tag beside one, one may undo the other.
        undoes = not LEADS_BACK.isdisjoint(self.names)
        may_be += [self.alone[1]] * (first or undoes) + [self.alone[0]] * (second or undoes)
        may_be += [self.base] * (first and second)
        for part in {*seen.outcome}.union(*may_be):
            there = seen.outcome.get(part)
            wanted = [each.get(part) for each in may_be]
            errors = [player.error for player in players]
            assert there in wanted, f"{part} is {there}, may be {wanted}; errors {errors}"
        self._go_on(store, seen)

    def _seen(self, store: MemoryStore) -> Seen:
        digest = _digest(store)
        if digest not in self._found:
            self._found[digest] = Seen(store, self.files)
        return self._found[digest]

    def _go_on(self, store: MemoryStore, before: Seen) -> None:
        if (digest := _digest(store)) in self._goes_on:
            return
        self._goes_on.add(digest)
        table = open_at(store, 300)
        rows = _rows(table)
        _write(table.copy({"write-only": "true"}), 99)
        for step in (_expire, lambda table: table.remove_orphan_files()):
            table.context.ambient.sleep(2 * DAY_SECONDS)
            step(table)
            table = open_at(store, 301)
            table.context.ambient.sleep(2 * DAY_SECONDS)
            after = Seen(store, self.files)
            latest, tags = after.latest
            assert latest is not None
            assert [row for row in latest if row[1] != 99] == [*rows]
            assert tags == before.latest[1]
            assert after.branches == before.branches
            assert _rows(table) == latest


@cache
def _world(name: str) -> MemoryStore:
    return _built(WORLDS[name])


DELETERS = [
    name
    for name in VERBS
    if name.startswith(("expire", "roll", "delete_", "delete a tag", "replace", "fast_forward"))
]
PAIRS = [
    # Two verbs of which none deletes files meet in few calls: one order in the other is enough.
    (first, second)
    for first, second in product(VERBS, VERBS)
    if (first in DELETERS or second in DELETERS or first <= second)
    and not (first in LEADS_BACK and second in WRITES)
    and not (first in WRITES and second in LEADS_BACK)
]
CHANGELOGS = {*DELETERS, *WRITES, "remove orphans", "follow", "purge"}
"""The verbs that do something else in a table with long-lived changelogs."""
PLAIN = {
    ("plain", "fast_forward", "roll back"),  # each removed what the other led to
    ("plain", "expire", "expire one"),  # EARLIEST went back to snapshots without files
    ("plain", "expire", "roll back to a tagged"),  # a state between was left
    ("plain", "create_tag", "roll back to a tag"),  # a tag of a snapshot that was taken away
    ("plain", "fast_forward", "create_tag"),  # the same
    ("plain", "delete_tag", "expire"),  # "the table is corrupt"
    ("plain", "roll back to an expired tag", "expire"),  # the table was lost
}
CASES = [
    pytest.param(
        world,
        *pair,
        marks=() if (world, *pair) in PLAIN else (pytest.mark.slow, pytest.mark.sampled(200)),
    )
    for world, pair in product(WORLDS, PAIRS)
    if world == "plain" or {*pair} <= CHANGELOGS
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with quietly():
        yield


@pytest.mark.parametrize(("world", "first", "second"), CASES)
def test_a_verb_interrupted_by_a_part_of_another_leaves_one_outcome(
    world: str, first: str, second: str
) -> None:
    _play(Pair(world, first, second), lambda pair: pair.play)


@pytest.mark.parametrize(("world", "first", "second"), CASES)
def test_a_verb_that_dies_within_another_is_finished_by_its_repeat(
    world: str, first: str, second: str
) -> None:
    _play(Pair(world, first, second), lambda pair: pair.play_death)


def _play(pair: Pair, how: Callable[[Pair], Callable[[int, int], tuple[bool, bool]]]) -> None:
    """At every call of one, and every call of the other; in full, one in nine on each day."""
    for at in calls_of(*pair.names, one_in=3):
        came = False
        for then in calls_of(*pair.names, str(at), one_in=3):
            try:
                came, then_came = how(pair)(at, then)
            except BaseException as error:
                error.add_note(f"at calls {at} and {then}")
                raise
            if not (came and then_came):
                break
        if not came:
            break
