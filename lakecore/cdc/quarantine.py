"""The quarantine of a pipeline: source tables that can no longer be followed.

Code that works for one table runs in `of_tables`, so that an error says which tables it concerns.
`Quarantine.take` alone decides the consequence: the table is set aside and the others continue, or
the error ends the pipeline.

The target of a table in quarantine has every change before the `position` at which the table was
set aside, and no later one. The quarantine is stored with each checkpoint.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.cdc.events import Checks, Mapped, Position, Source, SourceSchema, SourceTable
from lakecore.errors import InvalidRequest, LakecoreError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lakecore.model.types import Json

log = logging.getLogger("lakecore.cdc")

TABLE_ERRORS = (InvalidRequest, Unsupported)
"""The errors that may concern single tables. All others end the pipeline."""

OF_ALL_TABLES = frozenset({"snapshot", "columns", "gone", "texts"})
"""The members of positions that concern all tables, and not only a place."""
START_AGAIN = (
    "remove the state of the pipeline (WAREHOUSE/.cdc/NAME), drop the targets, and start again"
)
"""The next step if a position is lost. Targets that stay would keep rows that are gone since."""
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

    @property
    def left_out(self) -> frozenset[SourceTable]:
        """The tables that the source does not read."""

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        """Called by the sink, which no longer wants changes of these tables."""


class Problems(InvalidRequest):
    """Raised for several problems at once: `errors` has them, each with its own tables."""

    def __init__(self, errors: Sequence[LakecoreError]) -> None:
        lines = [f"- {_with_tables(each)}" for each in errors]
        super().__init__("\n".join([f"{len(errors)} problems", *lines]))
        self.errors = tuple(errors)


def _with_tables(error: LakecoreError) -> str:
    """The text of an error, after the tables that it concerns and does not name."""
    text = str(error)
    names = [each for each in map(str, sorted(tables_of(error))) if each not in text]
    return f"{', '.join(names)}: {text}" if names else text


class Collected:
    """Collects the errors of code that runs for one table after another."""

    def __init__(self) -> None:
        self.errors: list[LakecoreError] = []

    @contextmanager
    def of(self, *tables: SourceTable) -> Iterator[None]:
        """A context manager that keeps an error of `TABLE_ERRORS`, which concerns these tables."""
        try:
            with of_tables(*tables):
                yield
        except TABLE_ERRORS as error:
            self.errors += parts_of(error)

    def check(self) -> None:
        """Raise the kept errors: one error as it is, several as `Problems`."""
        if self.errors:
            raise self.errors[0] if len(self.errors) == 1 else Problems(self.errors)


def parts_of(error: LakecoreError) -> tuple[LakecoreError, ...]:
    """The errors of a `Problems`, or else the error itself."""
    return error.errors if isinstance(error, Problems) else (error,)


def tables_of(error: LakecoreError) -> frozenset[SourceTable]:
    """The tables that an error concerns; empty if it concerns the whole pipeline."""
    found: frozenset[SourceTable] = vars(error).get(_TABLES, frozenset())
    return found


@contextmanager
def of_tables(*tables: SourceTable) -> Iterator[None]:
    """A context manager: an error of `TABLE_ERRORS` in its block concerns these tables.

    An error that already names its tables keeps them. An error without tables ends the pipeline.
    """
    try:
        yield
    except TABLE_ERRORS as error:
        concern(error, tables)
        raise


def concern(error: LakecoreError, tables: Iterable[SourceTable]) -> None:
    """State which tables an error concerns, unless already stated."""
    vars(error).setdefault(_TABLES, frozenset(tables))


def surveyed(source: Source) -> tuple[Mapping[SourceTable, SourceSchema], Collected]:
    """The tables of a source that have no error, and all errors of the server and the others."""
    collected = Collected()
    tables: Mapping[SourceTable, SourceSchema] = {}
    if isinstance(source, Checks):
        try:
            collected.errors += source.problems()
        except TABLE_ERRORS as error:
            collected.errors += parts_of(error)
            return tables, collected
        _leave_out(source, collected.errors)
    before = len(collected.errors)
    with collected.of():
        tables = source.tables()
    if _leave_out(source, collected.errors[before:]):
        with collected.of():
            tables = source.tables()
    return tables, collected


def _leave_out(source: Source, errors: Sequence[LakecoreError]) -> bool:
    """Let the source leave out the tables of these errors; False if there are none."""
    bad = frozenset[SourceTable]().union(*map(tables_of, errors))
    if not bad or not isinstance(source, LeavesOut):
        return False
    source.leave_out(bad | source.left_out)
    return True


def check_named_columns(source: Source) -> None:
    """Raise InvalidRequest if a flag names a column that no surveyed table has."""
    if isinstance(source, Mapped):
        source.mapping.check_used()


class Quarantine:
    """The tables that a pipeline has set aside. `news`: the tables that this run has set aside.

    `steps`: what brings a table back, which is a part of its reason.
    """

    def __init__(
        self, policy: OnTableError, steps: Callable[[SourceTable], str] | None = None
    ) -> None:
        self._policy = policy
        self._steps = steps
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
        return frozenset(self._held)

    def restore(self, entries: Iterable[SetAside]) -> None:
        """Add what earlier runs have stored."""
        for each in entries:
            self._held.setdefault(each.table, each)

    def release(self, table: SourceTable) -> None:
        """Remove a table, which is followed again."""
        self._held.pop(table, None)
        if table in self.news:
            self.news.remove(table)

    def renew(
        self, table: SourceTable, reason: str, now_ms: int, position: Position | None
    ) -> None:
        """State why a table is still not followed; its target is unchanged.

        `position`: the current position, for a table that was never followed.
        """
        held = self._held.get(table)
        at = place_of(position) if held is None else held.position
        reason = self._with_step(reason, table)
        self._held[table] = SetAside(table=table, reason=reason, time_ms=now_ms, position=at)
        if table not in self.news:
            self.news.append(table)

    def _with_step(self, reason: str, table: SourceTable) -> str:
        return reason if self._steps is None else f"{reason}. Next step: {self._steps(table)}"

    def covers(self, error: LakecoreError) -> bool:
        """Whether an error concerns only tables that are set aside already."""
        concerned = tables_of(error)
        return bool(concerned) and concerned <= self._held.keys()

    def take(
        self,
        error: LakecoreError,
        position: Position | None,
        now_ms: int,
        *,
        is_wanted: bool = False,
    ) -> list[SetAside]:
        """Set aside the tables that an error concerns, and return the new entries.

        Returns no entries if the error must end the pipeline: it concerns no single table, or the
        policy is `stop`. `is_wanted`: the user wants to leave out such tables, which are then no
        news.
        """
        parts = parts_of(error)
        if not all(map(tables_of, parts)):
            return []
        if self._policy is OnTableError.STOP and not is_wanted:
            return []
        reasons = {
            table: self._with_step(str(each), table)
            for each in reversed(parts)
            for table in tables_of(each)
        }
        added = [
            SetAside(table=each, reason=reasons[each], time_ms=now_ms, position=place_of(position))
            for each in sorted(reasons.keys() - self._held.keys())
        ]
        for each in added:
            log.error(
                "table set aside: it is not followed any more. table=%s reason=%s position=%s",
                each.table,
                each.reason,
                None if each.position is None else json.dumps(each.position),
            )
        self.restore(added)
        if not is_wanted:
            self.news += [each.table for each in added]
        return added


def place_of(position: Position | None) -> Position | None:
    """The position without the members that concern all tables."""
    return position and {name: position[name] for name in position if name not in OF_ALL_TABLES}
