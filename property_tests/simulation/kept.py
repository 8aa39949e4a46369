"""What expiry, tags, rollbacks and streams must leave and give, by the files that ever were.

1. The snapshots that are left, and every tag, have the rows that they had when they were made.
2. An expiry leaves at least as many snapshots as it was asked to keep.
3. A stream gives each snapshot once, in order, none left out, with the changes of that snapshot.
4. The changes of a table with a changelog add up to its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.snapshot import CommitKind
from lakecore.testing import apply_changes
from property_tests.simulation.actors import rows_of
from property_tests.simulation.scenario import KEEPING, LEADS_BACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.handle import Table
    from property_tests.simulation.actors import Attempt
    from property_tests.simulation.scenario import Shape

DELETING = {"expire", "untag", *LEADS_BACK}
"""The verbs that delete files which were needed before."""


def wrong_with_kept(live: Table, archive: Table, *, in_trouble: bool) -> str:
    """What is wrong with the rows that are left, or nothing; `archive` has every file there was."""
    history, all_of = live.context.history, archive.context.history
    for number in history.snapshot_ids():
        if rows_of(live, number) != rows_of(archive, number):
            return f"snapshot {number} has other rows than it had"
    for branch in live.branches():
        table = live.branch(branch.name)
        for number in table.context.history.snapshot_ids():
            rows = rows_of(table, number)  # raises an error if a file is gone
            snapshot = table.context.history.snapshot(number)
            same = snapshot.is_same(all_of.snapshot_if_there(number))
            if same and rows != rows_of(archive, number):
                return f"snapshot {number} of branch {branch.name} has other rows than it had"
    for name in history.tag_names():
        tagged = history.tag(name).snapshot
        if not tagged.is_same(all_of.snapshot_if_there(tagged.id)):
            live.to_arrow(["k", "v", "w"], tag=name)  # raises an error if a file is gone
            if not in_trouble:
                return f"tag {name} is of a snapshot {tagged.id} that was rolled back"
            continue
        found = live.to_arrow(["k", "v", "w"], tag=name).to_pylist()
        rows = sorted(((row["k"], row["v"], row["w"]) for row in found), key=repr)
        if rows != rows_of(archive, tagged.id):
            return f"tag {name} has other rows than snapshot {tagged.id} had"
    return ""


def wrong_with_expiry(attempts: Sequence[Attempt], left: int, made: int) -> str:
    """Whether fewer snapshots are left than every expiry was asked to keep."""
    least = [each.deed.count for each in attempts if each.deed.verb == "expire"]
    rolled_back = any(each.deed.verb in LEADS_BACK for each in attempts)
    if least and not rolled_back and left < min(made, *least):
        return f"{left} snapshots are left of {made}"
    return ""


def wrong_with_stream(attempt: Attempt, archive: Table) -> str:
    """What is wrong with the changes that a stream gave, or nothing."""
    given = attempt.changes or []
    numbers = [number for number, _ in given]
    if numbers != sorted({*numbers}):
        return f"the stream gave snapshots {numbers}"
    if not given:
        return ""
    rows_at = dict(given)
    for number in range(numbers[0], numbers[-1] + 1):
        if archive.context.history.snapshot(number).commit_kind is CommitKind.OVERWRITE:
            continue  # a stream leaves them out
        frame = archive.changes(number - 1, number).select("_row_kind", "k", "v", "w")
        wanted = frame.collect().rows()
        if sorted(rows_at.get(number, []), key=repr) != sorted(wanted, key=repr):
            return f"the stream gave {rows_at.get(number)} for snapshot {number}, not {wanted}"
    return ""


def wrong_with_changes(archive: Table, snapshots: Sequence[Snapshot], shape: Shape) -> str:
    """What is wrong with the changes of all snapshots, which must add up to the rows."""
    if not snapshots or any(each.commit_kind is CommitKind.OVERWRITE for each in snapshots):
        return ""
    rows = None
    for at in range(1, len(snapshots) + 1):
        changes = archive.changes(at - 1, at).select("_row_kind", "k", "v", "w")
        try:
            rows = apply_changes(changes, ["k"], rows, exact=shape.changelog)
        except AssertionError as error:
            return f"snapshot {at}: {error}"
    # What is in level 0 of a table that looks up is told by the next compaction.
    live = archive.context.history.live_entries(snapshots[-1])
    if shape.changelog and any(entry.file.level == 0 for entry in live):
        return ""
    wanted = rows_of(archive, snapshots[-1].id)
    found = [] if rows is None else [tuple(row.values()) for row in rows.to_pylist()]
    if sorted(found, key=repr) != wanted:
        return f"the changes add up to {sorted(found, key=repr)}, the rows are {wanted}"
    return ""


def undone(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a rollback may have taken away what the attempt did or saw."""
    return any(_overlaps(attempt, each) for each in attempts if each.deed.verb in LEADS_BACK)


def left_in_trouble(attempts: Sequence[Attempt], troubled: set[str]) -> bool:
    """Whether somebody who was to delete files met a fault."""
    return any(each.deed.verb in DELETING and each.name in troubled for each in attempts)


def excused(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether files that an attempt read, or had staged, may have been deleted under it."""
    if attempt.staged_gone:
        # It was committed before a crash, and the rollback took it away.
        return any(undone(each, attempts) for each in attempts if each.deed is attempt.deed)
    reads = attempt.deed.verb in {"read", "follow", "compact", "compact fully", *KEEPING}
    edits = attempt.deed.verb in {"delete", "update", "merge"}
    deleting = [each for each in attempts if each.deed.verb in DELETING and each is not attempt]
    return attempt.gone and (reads or edits) and any(_overlaps(attempt, each) for each in deleting)


def _overlaps(attempt: Attempt, other: Attempt) -> bool:
    """Whether another attempt went on after this one began; one that never ended does."""
    return other is not attempt and (other.ended is None or other.ended > attempt.began)
