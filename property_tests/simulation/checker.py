"""Whether what is left of a run can be explained by what was done.

1. Snapshots are numbered without a gap. Each that changed rows is of one attempt; an attempt, or
   a number of an actor, has one at most; one that was acknowledged has the very snapshot it names;
   one that was refused for certain has none.
2. The rows of a snapshot are those of the model: the last one, each COMPACT snapshot, and those
   where the model leaves a choice are read; the others are checked by whoever read them meanwhile.
3. A reader saw the rows of one snapshot: none that came after it ended, and under strong visibility
   none that was older than the newest when it began.
4. Every file that a live snapshot names is there, and its record count is that of its files.
5. A file that no snapshot names was left by an attempt that met a fault.
6. What `kept.py` says of expiry, tags, rollbacks and streams.

Snapshots that have expired are checked as all others, by the archive of all files that were.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakecore.errors import LakecoreError
from lakecore.io.ambient import seeded
from lakecore.model.snapshot import CommitKind
from lakecore.table.maintenance.reachable import pending_of
from property_tests.simulation.actors import PATH, Attempt, Outcome, open_at, rows_of
from property_tests.simulation.kept import (
    excused,
    left_in_trouble,
    undone,
    wrong_with_changes,
    wrong_with_expiry,
    wrong_with_kept,
    wrong_with_stream,
)
from property_tests.simulation.model import (
    Added,
    Compaction,
    ImpossibleError,
    State,
    cleared,
    edited,
    edits,
    edits_of_bag,
    may_show,
    written,
)
from property_tests.simulation.scenario import KEEPING, SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from property_tests.simulation.disk import Disk

EDITS = ("delete", "update", "merge")
CLEARS = ("overwrite", "truncate", "drop")


class ViolationError(Exception):
    """What was found cannot be explained."""


def check(disk: Disk, attempts: list[Attempt]) -> None:
    """Raise ViolationError, saying what is wrong."""
    for attempt in attempts:
        if attempt.unexpected and not excused(attempt, attempts):
            raise ViolationError(f"{attempt.name} failed without a cause: {attempt.error}")
    try:
        _Checker(disk, attempts).check()
    except (ImpossibleError, LakecoreError) as error:
        raise ViolationError(str(error)) from error


class _Checker:
    def __init__(self, disk: Disk, attempts: list[Attempt]) -> None:
        self.disk = disk
        self.attempts = attempts
        self.by_name = {attempt.name: attempt for attempt in attempts}
        self.shape = SHAPES[disk.scenario.shape]
        self.live = open_at(disk.files, seeded(1))
        self.table = open_at(disk.archive, seeded(1))  # with all that has expired
        self.history = self.table.context.history
        self.snapshots: list[Snapshot] = []
        self.states = [State()]
        self._read: dict[int, list[tuple[Any, ...]]] = {0: []}  # what the model has, or leaves
        self._seen: dict[int, list[tuple[Any, ...]]] = {0: []}  # what is there

    def check(self) -> None:
        left = self.live.context.history.snapshot_ids()
        ids = range(1, max(left, default=0) + 1)
        in_trouble = left_in_trouble(self.attempts, self.disk.troubled)
        if self.disk.seen_between and self._keeps():
            raise ViolationError(f"readers saw {self.disk.seen_between}")
        self._check_numbers(left, ids, in_trouble=in_trouble)
        if self._goes_on_after_a_gap(ids):
            self._refuse(wrong_with_kept(self.live, self.table, in_trouble=in_trouble))
            return
        self.snapshots = [self.history.snapshot(at) for at in ids]
        if len({each.uuid for each in self.snapshots}) < len(ids):
            raise ViolationError("two snapshots have one uuid")
        self._check_authors()
        self._check_files()
        for snapshot in self.snapshots:
            self.states.append(self._after(snapshot))
        last = len(self.snapshots)
        self._check_rows(last)
        for snapshot in self.snapshots:
            if snapshot.commit_kind is CommitKind.COMPACT:
                self._check_rows(snapshot.id)
        for attempt in self.attempts:
            if not undone(attempt, self.attempts):
                self._check_seen(attempt)
        if self._keeps():
            self._refuse(wrong_with_kept(self.live, self.table, in_trouble=in_trouble))
            self._refuse(wrong_with_expiry(self.attempts, len(left), last))
        # A writer that wrote on before its own commit landed has not seen it: as if it were two.
        if self.shape.tells and not (self.shape.one_writer and self.disk.landed_late):
            self._refuse(wrong_with_changes(self.table, self.snapshots, self.shape))

    def _check_numbers(self, left: tuple[int, ...], ids: range, *, in_trouble: bool) -> None:
        if left != tuple(ids[len(ids) - len(left) :]) and not in_trouble:
            raise ViolationError(f"the snapshots have gaps: {left}")
        if len(left) < len(ids) and not self._keeps():
            raise ViolationError(f"snapshots are gone: {left}")

    def _goes_on_after_a_gap(self, ids: range) -> bool:
        """Whether a branch brought back a snapshot, and a rollback had removed those before it.

        Nobody can tell then what the lost snapshots had done.
        """
        verbs = {attempt.deed.verb for attempt in self.attempts}
        lost = any(self.history.snapshot_if_there(at) is None for at in ids)
        return lost and {"roll back", "fast forward"} <= verbs

    def _check_seen(self, attempt: Attempt) -> None:
        """What an attempt read, or found nothing to do for, or was given by a stream."""
        if attempt.rows is not None:
            self._check_read(attempt, attempt.rows)
        self._check_nothing_done(attempt)
        self._refuse(wrong_with_stream(attempt, self.table), attempt)

    def _keeps(self) -> bool:
        """Whether anybody expires, tags or rolls back."""
        return any(attempt.deed.verb in KEEPING for attempt in self.attempts)

    def _refuse(self, wrong: str, attempt: Attempt | None = None) -> None:
        if wrong:
            raise ViolationError(f"{attempt.name}: {wrong}" if attempt else wrong)

    # --- who made what ---------------------------------------------------------------------------

    def _author(self, snapshot: Snapshot) -> Attempt:
        path = self.table.context.layout.snapshot(snapshot.id)
        attempt = self.by_name.get(self.disk.writers.get(path, ""))
        if attempt is None:
            raise ViolationError(f"nobody made snapshot {snapshot.id}")
        return attempt

    def _check_authors(self) -> None:
        made: dict[tuple[str, int | str], list[int]] = {}
        by_attempt: dict[str, list[int]] = {}
        for snapshot in self.snapshots:
            author = self._author(snapshot)
            plain = author.deed.verb not in ("truncate", "drop", "compact", "compact fully")
            if plain and snapshot.commit_user != author.user:
                raise ViolationError(
                    f"snapshot {snapshot.id} of {author.name} is one of {snapshot.commit_user}"
                )
            by_attempt.setdefault(author.name, []).append(snapshot.id)
            if snapshot.commit_kind is not CommitKind.COMPACT:
                number = author.name if author.deed.number is None else author.deed.number
                made.setdefault((author.actor, number), []).append(snapshot.id)
                if author.deed.verb.startswith("compact"):
                    raise ViolationError(f"snapshot {snapshot.id} of a compaction changes rows")
        for (actor, number), found in made.items():
            if len(found) > 1:
                raise ViolationError(f"{actor} has committed {number} twice: {found}")
        for attempt in self.attempts:
            self._check_outcome(attempt, made, by_attempt.get(attempt.name, []))

    def _check_outcome(
        self, attempt: Attempt, made: dict[tuple[str, int | str], list[int]], mine: list[int]
    ) -> None:
        number = attempt.name if attempt.deed.number is None else attempt.deed.number
        there = made.get((attempt.actor, number), [])
        if attempt.outcome is Outcome.REFUSED:
            rows = [
                at for at in mine if self.snapshots[at - 1].commit_kind is not CommitKind.COMPACT
            ]
            if rows:
                raise ViolationError(
                    f"{attempt.name} was refused, and has made snapshots {rows}: {attempt.error}"
                )
        done = attempt.outcome is Outcome.DONE and not undone(attempt, self.attempts)
        if done and attempt.snapshot_ids and there[:1] != [*attempt.snapshot_ids[:1]]:
            raise ViolationError(
                f"{attempt.name} was acknowledged as {attempt.snapshot_ids}, there is {there}"
            )

    def _check_nothing_done(self, attempt: Attempt) -> None:
        """An edit that was acknowledged and made no snapshot had nothing to do."""
        deed = attempt.deed
        if attempt.outcome is not Outcome.DONE or attempt.snapshot_ids:
            return
        if deed.verb in EDITS:
            bases = range(self._oldest(attempt), attempt.last_snapshot + 1)
            if not any(self._finds_nothing(attempt, at) for at in bases):
                raise ViolationError(f"{attempt.name} did nothing, and had something to do")
        elif deed.verb in ("write", "numbered", "staged", "overwrite"):
            raise ViolationError(f"{attempt.name} was acknowledged and made no snapshot")

    def _finds_nothing(self, attempt: Attempt, base: int) -> bool:
        if self.shape.keyed:
            rows = {key: (v, w) for key, v, w in self._rows(base)}
            return not edits(attempt.deed, rows)
        gone, new = edits_of_bag(attempt.deed, self._rows(base))
        return not gone and not new

    # --- the rows --------------------------------------------------------------------------------

    def _after(self, snapshot: Snapshot) -> State:
        """The state after a snapshot, by the model."""
        before, shape = self.states[-1], self.shape
        if snapshot.commit_kind is CommitKind.COMPACT:
            gone = frozenset(e.file.name for e in self._delta(snapshot) if e.kind)
            compaction = Compaction(snapshot.id, gone)
            return State(before.keys, before.bag, (*before.compactions, compaction))
        author = self._author(snapshot)
        deed = author.deed
        files = self._added(snapshot)
        if deed.verb in EDITS:
            return self._edited(author, snapshot, files)
        if deed.verb in CLEARS:
            before = cleared(before, shape, deed)
        if deed.verb in ("truncate", "drop"):
            return before
        return written(before, shape, deed, snapshot.id, files)

    def _added(self, snapshot: Snapshot) -> list[Added]:
        """The files that hold the rows of a snapshot."""
        partitions = self.table.context.partitions
        found = []
        for entry in self._delta(snapshot):
            if not entry.kind:
                _, _, value = partitions.path(entry.partition).partition("=")
                p = int(value.rstrip("/")) if value else None
                file = entry.file
                found.append(Added(file.name, p, file.sequence_min, file.sequence_max))
        return found

    def _delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        return self.history.entries(self.history.delta_manifests(snapshot))

    def _edited(self, author: Attempt, snapshot: Snapshot, files: list[Added]) -> State:
        before, deed = self.states[-1], author.deed
        found: list[State] = []
        reasons = []
        for base in range(self._oldest(author), snapshot.id):
            rows = self._rows(base)
            if not self.shape.keyed:
                gone, new = edits_of_bag(deed, rows)
                if gone - before.bag:
                    reasons.append("rows that it takes away were not there")
                    continue
                state = State(bag=before.bag - gone + new, compactions=before.compactions)
            else:
                changes = edits(deed, {key: (v, w) for key, v, w in rows})
                try:
                    state = edited(before, self.states[base], changes, snapshot.id, files)
                except ImpossibleError as error:
                    reasons.append(str(error))
                    continue
            if state not in found:
                found.append(state)
        if not found:
            raise ViolationError(f"{author.name} made snapshot {snapshot.id}: {set(reasons)}")
        if len(found) > 1:
            there = self._actual(snapshot.id)
            found = [state for state in found if self._explains(state, there)]
            if not found:
                raise ViolationError(f"no base of {author.name} explains the rows {there}")
        return found[0]

    def _oldest(self, attempt: Attempt) -> int:
        lags = self.disk.scenario.listing_lag_ms or undone(attempt, self.attempts)
        return 0 if lags else attempt.first_snapshot

    def _rows(self, snapshot_id: int) -> list[tuple[Any, ...]]:
        """The rows of a snapshot: the model's, or where it leaves a choice those that are read."""
        if snapshot_id not in self._read:
            rows = _only(self._shown(self.states[snapshot_id]))
            if rows is None or not self.shape.keyed:
                self._check_rows(snapshot_id)
            else:
                self._read[snapshot_id] = rows
        return self._read[snapshot_id]

    def _check_rows(self, snapshot_id: int) -> None:
        there = self._actual(snapshot_id)
        state = self.states[snapshot_id]
        if not self._explains(state, there):
            raise ViolationError(
                f"snapshot {snapshot_id} has the rows {there}, and may have {self._told(state)}"
            )
        self._read[snapshot_id] = there

    def _actual(self, snapshot_id: int) -> list[tuple[Any, ...]]:
        if snapshot_id not in self._seen:
            self._seen[snapshot_id] = rows_of(self.table, snapshot_id)
        return self._seen[snapshot_id]

    def _shown(self, state: State) -> dict[int, set[Any]]:
        return {key: may_show(self.shape, versions, state) for key, versions in state.keys.items()}

    def _explains(self, state: State, rows: list[tuple[Any, ...]]) -> bool:
        if not self.shape.keyed:
            return Counter(rows) == state.bag
        there = {key: (v, w) for key, v, w in rows}
        shown = self._shown(state)
        return (
            len(there) == len(rows)
            and there.keys() <= shown.keys()
            and all(there.get(key) in may for key, may in shown.items())
        )

    def _told(self, state: State) -> object:
        return self._shown(state) if self.shape.keyed else sorted(state.bag.elements(), key=repr)

    def _check_read(self, attempt: Attempt, rows: list[tuple[Any, ...]]) -> None:
        ids = range(self._oldest(attempt), min(attempt.last_snapshot, len(self.snapshots)) + 1)
        if not any(self._explains(self.states[at], rows) for at in ids):
            raise ViolationError(
                f"{attempt.name} read {rows}, and snapshots {list(ids)} have "
                f"{[self._told(self.states[at]) for at in ids]}"
            )

    # --- the files -------------------------------------------------------------------------------

    def _check_files(self) -> None:
        layout = self.table.context.layout
        named = {layout.latest_hint, layout.earliest_hint}
        named |= {layout.schema(at) for at in self.history.schema_ids()}
        live = self.live.context.history
        states = [self.snapshots[at - 1] for at in live.snapshot_ids()]
        for name in live.tag_names():
            named.add(layout.tag(name))
            named |= {*self._named(live.tag(name).snapshot)}
        for kept in pending_of(live):  # by one who died
            named |= {*self._named(kept.snapshot)}
        for branch in self.live.branches():
            past = self.live.branch(branch.name).context.history
            of_branch = [past.snapshot(at) for at in past.snapshot_ids()]
            tagged = (*(past.tag(name) for name in past.tag_names()), *pending_of(past))
            for snapshot in (*of_branch, *(tag.snapshot for tag in tagged)):
                named |= {*self._named(snapshot)}
        named |= _files(self.disk, layout.branches_dir)
        for snapshot in self._as_brought_back(states):
            needed = set(self._named(snapshot))
            missing = [path for path in needed if not self.disk.files.exists(path)]
            if missing:
                raise ViolationError(f"snapshot {snapshot.id} names what is not there: {missing}")
            named |= needed
            count = sum(e.file.row_count for e in self.history.live_entries(snapshot))
            if snapshot.total_record_count != count:
                raise ViolationError(
                    f"snapshot {snapshot.id} counts {snapshot.total_record_count}, has {count} rows"
                )
        for path in sorted(_files(self.disk, PATH) - named):
            author = self.by_name.get(self.disk.writers.get(path, ""))
            explained = left_in_trouble(self.attempts, self.disk.troubled) or any(
                # It leaves the files of the snapshots that it replaces to the removal of orphans.
                attempt.deed.verb == "fast forward"
                for attempt in self.attempts
            )
            if not self.disk.power_losses and not explained and not self._has_trouble(author):
                raise ViolationError(f"{author and author.name} has left {path}")

    def _as_brought_back(self, states: list[Snapshot]) -> list[Snapshot]:
        """The first one without its changelog, if a branch, which keeps none, brought it back."""
        changelog = states[0].changelog_manifest_list if states else None
        ahead = any(each.deed.verb == "fast forward" for each in self.attempts)
        if changelog is None or not ahead:
            return states
        if self.disk.files.exists(self.table.context.layout.manifest(changelog)):
            return states
        return [replace(states[0], changelog_manifest_list=None), *states[1:]]

    def _has_trouble(self, author: Attempt | None) -> bool:
        """Whether a fault explains what an attempt left; files that are staged outlive attempts."""
        if author is None:
            return False
        tried = [author.name]
        if author.deed.verb == "staged":
            tried = [each.name for each in self.attempts if each.deed is author.deed]
        return not self.disk.troubled.isdisjoint(tried)

    def _named(self, snapshot: Snapshot) -> Iterator[str]:
        """The paths of all files that a snapshot needs."""
        context, history = self.table.context, self.history
        layout = context.layout
        yield layout.snapshot(snapshot.id)
        lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        lists += [each for each in (snapshot.changelog_manifest_list,) if each]
        yield from map(layout.manifest, lists)
        manifests = [*history.manifests(snapshot)]
        entries = [*history.live_entries(snapshot)]
        if snapshot.changelog_manifest_list:
            changelog = history.manifest_list(snapshot.changelog_manifest_list)
            manifests += changelog
            entries += history.entries(changelog)
        entries += [entry for entry in self._delta(snapshot) if not entry.kind]
        yield from (layout.manifest(manifest.name) for manifest in manifests)
        for entry in entries:
            path = context.partitions.path(entry.partition)
            yield layout.data_file(path, entry.bucket, entry.file)
        if snapshot.index_manifest:
            yield layout.manifest(snapshot.index_manifest)
            for index in history.index_entries(snapshot):
                path = context.partitions.path(index.partition)
                yield layout.live_index_file(path, index.bucket, index.file)


def _only(shown: dict[int, set[Any]]) -> list[tuple[Any, ...]] | None:
    """The rows, if there is no choice."""
    rows = []
    for key, may in shown.items():
        if len(may) != 1:
            return None
        (values,) = may
        if values is not None:
            rows.append((key, *values))
    return rows


def _files(disk: Disk, directory: str) -> set[str]:
    found = set()
    for status in disk.files.list(directory):
        found |= _files(disk, status.path) if status.is_directory else {status.path}
    return found
