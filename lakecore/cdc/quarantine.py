"""The quarantine of a pipeline: source tables that it cannot follow any more.

Code that works for one table runs in `of_tables`, so that an error says which tables it concerns.
`Quarantine.take` is the one place that decides what happens then: either the table is set aside and
the others go on, or the error ends the pipeline.

The target of a table in quarantine has every change before the `position` at which the table was
set aside, and no later one. The quarantine is stored with each checkpoint.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.cdc.events import SourceTable
from lakecore.errors import InvalidRequest, LakecoreError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from lakecore.cdc.events import Position
    from lakecore.model.types import Json

TABLE_ERRORS = (InvalidRequest, Unsupported)
"""The errors that may concern single tables. All others end the pipeline."""

_TABLES = "tables_of_the_error"


class OnTableError(StrEnum):
    """What a pipeline does with a table that it cannot follow."""

    QUARANTINE = "quarantine"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A table in quarantine: why, when, and the position up to which its target has its changes.

    `position` is None if the table was set aside before the first checkpoint.
    """

    table: SourceTable
    reason: str
    time_ms: int
    position: Position | None = None

    def to_json(self) -> dict[str, Json]:
        """The entry as a JSON value."""
        return {
            "database": self.table.database,
            "table": self.table.name,
            "reason": self.reason,
            "time_ms": self.time_ms,
            "position": None if self.position is None else dict(self.position),
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> SetAside:
        """The entry from a JSON value that `to_json` returned.

        Raises KeyError, TypeError or ValueError for any other value.
        """
        position = value["position"]
        if not isinstance(position, dict | None):
            raise TypeError("a position is an object")
        return SetAside(
            table=SourceTable(str(value["database"]), str(value["table"])),
            reason=str(value["reason"]),
            time_ms=int(str(value["time_ms"])),
            position=position,
        )


@runtime_checkable
class LeavesOut(Protocol):
    """A source that can stop reading single tables."""

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        """Called by the sink: no change of these tables is wanted any more."""


@contextmanager
def of_tables(*tables: SourceTable) -> Iterator[None]:
    """A context manager: an error of `TABLE_ERRORS` that is raised in it concerns these tables.

    An error that already names its tables keeps them. Without tables, it ends the pipeline.
    """
    try:
        yield
    except TABLE_ERRORS as error:
        concern(error, tables)
        raise


def concern(error: LakecoreError, tables: Iterable[SourceTable]) -> None:
    """State which tables an error concerns, unless it states them already."""
    vars(error).setdefault(_TABLES, frozenset(tables))


class Quarantine:
    """The tables that a pipeline has set aside. `news` are those that this run has set aside."""

    def __init__(self, policy: OnTableError) -> None:
        self._policy = policy
        self._held: dict[SourceTable, SetAside] = {}
        self.news: list[SourceTable] = []

    @property
    def entries(self) -> tuple[SetAside, ...]:
        """The tables, in the order in which they were set aside."""
        return tuple(self._held.values())

    def __contains__(self, table: SourceTable) -> bool:
        return table in self._held

    @property
    def tables(self) -> frozenset[SourceTable]:
        """The names of the tables."""
        return frozenset(self._held)

    def restore(self, entries: Iterable[SetAside]) -> None:
        """Add what earlier runs have stored."""
        for each in entries:
            self._held.setdefault(each.table, each)

    def release(self, table: SourceTable) -> None:
        """The table is followed again."""
        self._held.pop(table, None)
        if table in self.news:
            self.news.remove(table)

    def renew(
        self, table: SourceTable, reason: str, now_ms: int, position: Position | None
    ) -> None:
        """State why a table is still not followed; its target is as it was.

        `position`: the current one, for a table that was never followed.
        """
        held = self._held.get(table)
        at = _place(position) if held is None else held.position
        self._held[table] = SetAside(table=table, reason=reason, time_ms=now_ms, position=at)
        if table not in self.news:
            self.news.append(table)

    def covers(self, error: LakecoreError) -> bool:
        """Whether an error concerns only tables that are set aside already."""
        concerned = vars(error).get(_TABLES, frozenset())
        return bool(concerned) and concerned <= self._held.keys()

    def take(self, error: LakecoreError, position: Position | None, now_ms: int) -> list[SetAside]:
        """Set aside the tables that an error concerns, and return the new entries.

        Returns no entries if the error must end the pipeline: it concerns no single table, or the
        policy is `stop`.
        """
        concerned: frozenset[SourceTable] = vars(error).get(_TABLES, frozenset())
        if self._policy is OnTableError.STOP:
            return []
        added = [
            SetAside(table=table, reason=str(error), time_ms=now_ms, position=_place(position))
            for table in sorted(concerned - self._held.keys())
        ]
        self.restore(added)
        self.news += [each.table for each in added]
        return added


def _place(position: Position | None) -> Position | None:
    """The position without what a snapshot has read: it says nothing about one table's target."""
    return position and {name: each for name, each in position.items() if name != "snapshot"}
