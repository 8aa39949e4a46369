"""What the committed deeds make of a table, replayed snapshot by snapshot on plain dictionaries.

A keyed table keeps, for each key, the versions that were written since it was last cleared, each
with its sequence number. Of two versions the one of the larger number is newer; writers that began
at one snapshot may have given out the same number, and then the one that was committed later is
(`commit_order` in `table/reads/scan.py`). Where a commit wrote several files of a partition, the
number of a row is known by bounds only, and a key has a set of rows that it may show (`may_show`).

A deletion that a compaction dropped hides nothing any more: a version of a lower number, which was
committed after it and which that compaction did not see, shows again (docs/compaction-rules.md).

DELETE, UPDATE and MERGE look at the rows of one snapshot, the base, and may only be committed where
nobody has changed their keys since (`table/commits/commit_checks.py`). Which base it was, nobody
says: any from the newest snapshot when the deed began will do, if it explains the outcome.

The model of the kit has one outcome for each history; this one has all that concurrent writers may
leave.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from property_tests.simulation.scenario import Deed, Shape

Values = tuple[int | None, int | None]
"""`v` and `w`."""
Rows = dict[int, Values]
"""The rows of a keyed table."""


@dataclass(frozen=True, slots=True)
class Version:
    """What one commit wrote of a key, into one of some files; values are None for a deletion."""

    values: Values | None
    low: int
    high: int
    snapshot_id: int
    files: frozenset[str]

    def is_above(self, other: Version) -> bool:
        """Whether this version is newer for certain."""
        if self.low == self.high == other.low == other.high:
            return self.snapshot_id > other.snapshot_id
        return self.low > other.high


@dataclass(frozen=True, slots=True)
class Compaction:
    """A COMPACT snapshot: its id and the files it took away."""

    snapshot_id: int
    files: frozenset[str]

    def has_seen(self, version: Version) -> bool:
        """Whether the version was surely among what was merged."""
        return version.snapshot_id < self.snapshot_id and version.files <= self.files


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a commit added: `p`, if the table has partitions, and its sequence numbers."""

    name: str
    partition: int | None
    low: int
    high: int


Keys = dict[int, tuple[Version, ...]]


class ImpossibleError(Exception):
    """No order of what was done explains what is there."""


@dataclass(slots=True)
class State:
    """The table after one snapshot: versions by key, or the rows of a table without keys."""

    keys: Keys = field(default_factory=dict)
    bag: Counter[tuple[int, int | None, int | None]] = field(default_factory=Counter)
    compactions: tuple[Compaction, ...] = ()


def may_show(shape: Shape, versions: tuple[Version, ...], state: State) -> set[Values | None]:
    """The rows that a key may show; None is no row."""
    if shape.engine == "aggregation":
        sums = [v.values[0] for v in versions if v.values and v.values[0] is not None]
        tops = [v.values[1] for v in versions if v.values and v.values[1] is not None]
        return {(sum(sums), max(tops))} if versions else {None}
    if shape.engine == "partial-update":
        merged: Values = (None, None)
        for version in versions:
            assert version.values is not None
            v, w = version.values
            merged = (merged[0] if v is None else v, merged[1] if w is None else w)
        return {merged} if versions else {None}
    shown: set[Values | None] = set() if versions else {None}
    for each in versions:
        above = [other for other in versions if other.is_above(each)]
        if all(_is_forgotten(other, each, versions, state) for other in above):
            shown.add(each.values)
    return shown


def _is_forgotten(
    above: Version, late: Version, versions: tuple[Version, ...], state: State
) -> bool:
    """Whether a compaction has dropped a version, by a deletion, that came before the late one."""
    deletions = [
        each
        for each in versions
        if each.values is None and (each == above or not above.is_above(each))
    ]
    for at, compaction in enumerate(state.compactions):
        seen = any(each.has_seen(late) for each in state.compactions[: at + 1])
        for deletion in deletions:
            newest = max(deletion.snapshot_id, above.snapshot_id)
            if newest < min(compaction.snapshot_id, late.snapshot_id) and not seen:
                return True
    return False


def written(
    state: State, shape: Shape, deed: Deed, snapshot_id: int, files: Sequence[Added]
) -> State:
    """The state after rows were added."""
    if not shape.keyed:
        return State(bag=state.bag + Counter(deed.rows), compactions=state.compactions)
    changes: dict[int, Values | None] = {key: (v, w) for key, v, w in deed.rows}
    changes |= dict.fromkeys(deed.deletes)
    return _with(state, changes, snapshot_id, files, numbered=True)


def _with(
    state: State,
    changes: Mapping[int, Values | None],
    snapshot_id: int,
    files: Sequence[Added],
    *,
    numbered: bool,
) -> State:
    """The state with a version more of each key; `numbered` in the order of the changes."""
    keys = dict(state.keys)
    for key, values in changes.items():
        inside = [file for file in files if file.partition in (None, key % 2)]
        if not inside:
            raise ImpossibleError(f"no file of snapshot {snapshot_id} can hold key {key}")
        beside = [each for each in changes if not inside or inside[0].partition in (None, each % 2)]
        low, high = min(file.low for file in inside), max(file.high for file in inside)
        if numbered and len(inside) == 1 and high - low + 1 == len(beside):
            low = high = low + beside.index(key)
        names = frozenset(file.name for file in inside)
        keys[key] = (*keys.get(key, ()), Version(values, low, high, snapshot_id, names))
    return State(keys=keys, compactions=state.compactions)


def cleared(state: State, shape: Shape, deed: Deed) -> State:
    """The state without what the deed replaces or takes away."""
    if not shape.keyed or not shape.partitioned or deed.verb == "truncate":
        return State(compactions=state.compactions)
    gone = {row[0] % 2 for row in deed.rows}
    kept = {key: versions for key, versions in state.keys.items() if key % 2 not in gone}
    return State(keys=kept, compactions=state.compactions)


def edits(deed: Deed, rows: Rows) -> dict[int, Values | None]:
    """What a DELETE, UPDATE or MERGE writes, given the rows it looked at."""
    match deed.verb:
        case "delete":
            return dict.fromkeys(key for key in deed.deletes if key in rows)
        case "update":
            return {key: _counted(rows[key]) for key in deed.deletes if key in rows}
        case _:
            merged: dict[int, Values | None] = {}
            for key, v, w in deed.rows:
                merged[key] = (v, _counted(rows[key])[1]) if key in rows else (v, w)
            return merged


def edits_of_bag(
    deed: Deed, rows: Iterable[tuple[int, int | None, int | None]]
) -> tuple[Counter[tuple[int, int | None, int | None]], ...]:
    """The rows that such a deed takes away of a table without keys, and those that it adds."""
    found = list(rows)
    wanted = set(deed.deletes) | {row[0] for row in deed.rows}
    gone = Counter(row for row in found if row[0] in wanted)
    if deed.verb == "delete":
        return gone, Counter()
    if deed.verb == "update":
        return gone, Counter((k, *_counted((v, w))) for k, v, w in gone.elements())
    by_key = {key: (v, w) for key, v, w in deed.rows}
    changed = Counter((k, by_key[k][0], _counted((v, w))[1]) for k, v, w in gone.elements())
    known = {row[0] for row in found}
    return gone, changed + Counter(row for row in deed.rows if row[0] not in known)


def _counted(values: Values) -> Values:
    v, w = values
    return v, None if w is None else w + 1


def edited(
    before: State,
    base: State,
    changes: Mapping[int, Values | None],
    snapshot_id: int,
    files: Sequence[Added],
) -> State:
    """The state after an edit. Raises ImpossibleError if somebody changed a key since the base."""
    for key in changes:
        if before.keys.get(key, ()) != base.keys.get(key, ()):
            raise ImpossibleError(f"key {key} was changed since it was read")
    return _with(before, changes, snapshot_id, files, numbered=False)
