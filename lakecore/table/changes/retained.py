"""How far back the changes of a table can be read: live snapshots and long-lived changelogs.

A snapshot that expires may leave its changelog behind (`changelog.num-retained.*`,
`changelog.time-retained`; https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).
Ids have no gaps, so everything from the earliest id on can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import NotFound
from lakecore.io.parallel import read_all
from lakecore.suggestions import KEPT_LONGER
from lakecore.table.context import require_table

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedChanges:
    """The snapshots whose changes exist: the ids from `earliest` to `latest`."""

    context: TableContext
    earliest: int
    latest: int
    kept: frozenset[int]
    """The ids of expired snapshots whose changelog was kept."""

    @property
    def earliest_state(self) -> int:
        """The first snapshot whose rows can still be read.

        Earlier snapshots have only their changes.
        """
        number = self.earliest
        while number in self.kept:
            number += 1
        return number

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """The snapshot, or its long-lived changelog if the snapshot has expired.

        Raises NotFound, naming the earliest id, if neither exists.
        """
        if not self.earliest <= snapshot_id <= self.latest:
            raise self.gone(snapshot_id)
        history = self.context.history
        try:
            if snapshot_id in self.kept:
                return history.changelog(snapshot_id)
            try:
                return history.snapshot(snapshot_id)
            except NotFound:
                return history.changelog(snapshot_id)
        except NotFound as error:
            # It has expired in the meantime.
            raise (retained_changes(self.context) or self).gone(snapshot_id) from error

    def snapshots(self, first: int, last: int) -> list[Snapshot]:
        """The snapshots from `first` to `last` (inclusive). Raises NotFound as `snapshot` does."""
        return read_all(self.snapshot, range(first, last + 1))

    def newest_at(self, time_ms: int) -> int | None:
        """The id of the newest snapshot committed at or before a time; None if there is none."""
        low, high = self.earliest, self.latest + 1
        while low < high:
            middle = (low + high) // 2
            if self.snapshot(middle).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return None if low == self.earliest else low - 1

    def gone(self, snapshot_id: int) -> NotFound:
        """The error for a snapshot whose changes do not exist any more."""
        if snapshot_id < 1:
            message = "the first snapshot of a table is 1"
        elif snapshot_id > self.latest:
            message = "there is no such snapshot yet"
        else:
            message = f"the changes of the snapshot have expired; {KEPT_LONGER}"
        return NotFound(
            message,
            snapshot_id=snapshot_id,
            earliest=self.earliest,
            latest=self.latest,
            table=self.context.identifier,
        )


def retained_changes(context: TableContext) -> RetainedChanges | None:
    """The changes that can be read now; None if nothing was ever committed.

    Raises NotFound if the table was dropped or replaced.
    """
    history = context.history
    live = history.snapshot_ids()
    require_table(context)
    if not live:
        return None
    kept = set(history.changelog_ids()) - set(live)
    there, earliest = kept.union(live), live[-1]
    first = min(there)
    # A listing may lack a file, but reading it by its name does not.
    while earliest > first and (
        earliest - 1 in there or history.snapshot_if_there(earliest - 1) is not None
    ):
        earliest -= 1
    reached = frozenset(each for each in kept if each >= earliest)
    return RetainedChanges(context=context, earliest=earliest, latest=live[-1], kept=reached)
