"""Compaction of all tables of a catalog whose names match, once or until stopped.

1. Databases match `including_databases`. Tables match `including_tables` and not
   `excluding_tables`, by their name with or without the database. Each pattern has to match the
   whole name.
2. Mode *divided*: each table is a separate job. Mode *combined*: one job compacts the tables one
   after another, and lists them again at the end of a round, to find new tables.
3. `watch_database` runs until it is stopped, and lists the tables again after each interval. In the
   mode divided, each table has a thread; in the mode combined, one loop takes the tables in turn.

If a table fails, the others are still compacted. The error is raised at the end; `watch_database`
instead reports the error, and tries again. Tables that are dropped meanwhile are skipped. Tables of
other types, such as format tables, are skipped too, because they have nothing to compact.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakecore.errors import InvalidRequest, LakecoreError, NotFound
from lakecore.options import ROW_TABLES
from lakecore.table.compactions.compact_plan import IdlePicks
from lakecore.table.verbs.compaction import CompactionRequest, compact_shown
from lakecore.table.verbs.compaction_job import Setback, StepDone, Stop, run_compaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.handle import Table


class CompactMode(StrEnum):
    """Whether each table is a separate job, or one job takes all tables."""

    DIVIDED = "divided"
    COMBINED = "combined"


class Tables(Protocol):
    """The part of a catalog that a compaction of its tables needs."""

    def list_databases(self) -> tuple[str, ...]:
        """The names of the databases."""

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCompaction:
    """Which tables to compact, and how."""

    including_databases: str = ".*"
    including_tables: str = ".*"
    excluding_tables: str | None = None
    mode: str = CompactMode.DIVIDED
    full: bool = False
    max_bytes: int | None = None
    table_options: Mapping[str, str] = field(default_factory=dict)
    partition_idle_ms: int | None = None

    @property
    def is_combined(self) -> bool:
        """Whether one job takes all tables. Raises InvalidRequest for an unknown mode."""
        if self.mode not in set(CompactMode):
            raise InvalidRequest("unknown mode", mode=self.mode, known=[*map(str, CompactMode)])
        return self.mode == CompactMode.COMBINED

    @property
    def of_table(self) -> CompactionRequest:
        return CompactionRequest(
            full=self.full, max_bytes=self.max_bytes, partition_idle_ms=self.partition_idle_ms
        )

    def matching(self, tables: Tables) -> list[str]:
        """The names `database.table` that match, in the order of the catalog.

        Raises InvalidRequest for a pattern that is not valid.
        """
        databases = _pattern("including_databases", self.including_databases)
        including = _pattern("including_tables", self.including_tables)
        excluding = _pattern("excluding_tables", self.excluding_tables or "")
        found: list[str] = []
        for database in filter(databases.fullmatch, tables.list_databases()):
            for name in tables.list_tables(database):
                names = (name, f"{database}.{name}")
                if any(map(including.fullmatch, names)) and not any(
                    map(excluding.fullmatch, names)
                ):
                    found.append(names[1])
        return found


Opened: TypeAlias = "Callable[[str], Table]"
"""`database.table` -> the table."""


def compact_database(
    tables: Tables, opened: Opened, request: DatabaseCompaction
) -> dict[str, CompactionResult]:
    """Compact each table once. Returns the results by name.

    Raises the first error after the other tables are compacted; its facts say how many failed.
    """
    results: dict[str, CompactionResult] = {}
    errors: list[LakecoreError] = []
    tried: set[str] = set()
    combined = request.is_combined
    left = request.matching(tables)
    while left:
        for name in left:
            tried.add(name)
            try:
                table = _table(opened, name, request)
                if table is not None:
                    results[name] = compact_shown(table.context, request.of_table)
            except NotFound:
                # The table was dropped meanwhile.
                continue
            except LakecoreError as error:
                errors.append(error)
        # A combined job also compacts tables that were created while it ran.
        left = [name for name in request.matching(tables) if name not in tried] if combined else []
    if errors:
        first = errors[0]
        counts = {"tables_failed": len(errors), "tables_compacted": len(results)}
        raise type(first)(first.message, **{**first.facts, **counts}) from first
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEvent:
    """What happened to a table: a commit, a failed round, or neither when its job has started."""

    table: str
    event: StepDone | Setback | None


def watch_database(
    tables: Tables,
    opened: Opened,
    request: DatabaseCompaction,
    *,
    interval_seconds: float,
    stop: Stop,
    report: Callable[[TableEvent], None],
) -> int:
    """Compact until `stop` is set. Returns the number of commits.

    Only one thread at a time calls `report`.
    """
    request.matching(tables)
    watch = _Watch(tables, opened, request, interval_seconds, stop, report)
    watch.run(combined=request.is_combined)
    return watch.steps


class _Watch:
    def __init__(
        self,
        tables: Tables,
        opened: Opened,
        request: DatabaseCompaction,
        interval_seconds: float,
        stop: Stop,
        report: Callable[[TableEvent], None],
    ) -> None:
        self._tables = tables
        self._opened = opened
        self._request = request
        self._interval_seconds = interval_seconds
        self._stop = _Ending(stop)
        self._report = report
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._jobs: dict[str, Future[None]] = {}
        self._idle: dict[str, IdlePicks] = defaultdict(IdlePicks)
        self.steps = 0

    def run(self, *, combined: bool) -> None:
        while not self._stop.is_set():
            found = self._found()
            if combined:
                for name in found:
                    self._once(name)
            else:
                for name in found:
                    job = self._jobs.get(name)
                    if job is not None and job.done() and self._stop.failure is None:
                        self._stop.failure = job.exception()
                    if job is None or job.done():
                        self._begin(name)
            self._stop.wait(self._interval_seconds)
        wait(self._jobs.values())
        if self._stop.failure is not None:
            raise self._stop.failure
        for job in self._jobs.values():
            job.result()

    def _found(self) -> list[str]:
        """The names of the tables that match now; empty if the catalog does not answer."""
        try:
            found = self._request.matching(self._tables)
        except InvalidRequest:
            raise
        except (LakecoreError, OSError) as error:
            self._tell("", Setback(error=error, seconds=self._interval_seconds))
            return []
        self._known &= set(found)
        return found

    def _begin(self, name: str) -> None:
        # Each table has its own thread; the pool keeps an error of that thread for this one.
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"compact {name}")
        self._jobs[name] = pool.submit(self._forever, name)
        pool.shutdown(wait=False)

    def _forever(self, name: str) -> None:
        """The job of one table; ends when the table is dropped, or with an unexpected error."""
        self._run(name, self._interval_seconds, self._stop)

    def _once(self, name: str) -> None:
        """One round of one table: compacts until nothing is due. A full compaction runs once."""
        if not self._stop.is_set():
            self._run(name, 0, _Round(self._stop))

    def _run(self, name: str, interval_seconds: float, stop: Stop) -> None:
        try:
            table = self._open(name)
            if table is not None:
                run_compaction(
                    table.context,
                    self._request.of_table,
                    interval_seconds=interval_seconds,
                    stop=stop,
                    report=lambda event: self._tell(name, event),
                    idle=self._idle[name],
                )
        except NotFound:
            return
        except (LakecoreError, OSError) as error:
            self._tell(name, Setback(error=error, seconds=self._interval_seconds))

    def _open(self, name: str) -> Table | None:
        table = _table(self._opened, name, self._request)
        with self._lock:
            is_new = table is not None and name not in self._known
            self._known.add(name)
        if is_new:
            self._tell(name, None)
        return table

    def _tell(self, name: str, event: StepDone | Setback | None) -> None:
        with self._lock:
            self.steps += isinstance(event, StepDone)
            try:
                self._report(TableEvent(table=name, event=event))
            except BaseException as error:
                # The report failed, for example because a pipe was closed: end all jobs.
                self._stop.failure = error
                raise


class _Ending:
    """A signal that ends all jobs: when the caller stops, or when a job fails unexpectedly."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.failure: BaseException | None = None

    def is_set(self) -> bool:
        return self.failure is not None or self._stop.is_set()

    def wait(self, timeout: float) -> bool:
        return self.is_set() or self._stop.wait(timeout)


class _Round:
    """A signal that ends one round: at the first wait of a job, or when all jobs end."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._waited = False

    def is_set(self) -> bool:
        return self._waited or self._stop.is_set()

    def wait(self, timeout: float) -> bool:
        del timeout
        self._waited = True
        return True


def _table(opened: Opened, name: str, request: DatabaseCompaction) -> Table | None:
    """The table with the options of the request; None if dropped, or of a type not compacted."""
    try:
        table = opened(name)
    except NotFound:
        return None
    if table.options.type not in ROW_TABLES:
        return None
    return table.copy(request.table_options) if request.table_options else table


def _pattern(name: str, given: str) -> re.Pattern[str]:
    try:
        return re.compile(given)
    except (re.error, TypeError) as error:
        raise InvalidRequest(
            "this is not a valid regular expression", argument=name, given=given
        ) from error
