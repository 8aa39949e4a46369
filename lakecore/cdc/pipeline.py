"""Runs pipelines, and reads their status. A pipeline is a CDC action with a stored state.

The state is in `WAREHOUSE/.cdc/NAME/`. For a warehouse that is not a directory (a REST server), the
caller must state the directory.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecore.catalog.options import is_storage_option
from lakecore.cdc.events import Noted, Resumes, SourceTable
from lakecore.cdc.file_source import FILES_ACTIONS
from lakecore.cdc.kafka import KAFKA_ACTIONS
from lakecore.cdc.mysql.source import MYSQL_ACTIONS
from lakecore.cdc.postgres.source import POSTGRES_ACTIONS
from lakecore.cdc.quarantine import OnTableError, check_named_columns, place_of, surveyed, tables_of
from lakecore.cdc.sink import Sink
from lakecore.cdc.sink_parts import IS_NEW, Progress, SinkSettings, no_table, rate_of
from lakecore.cdc.state import PipelineState, StateFiles, stored
from lakecore.errors import (
    CommitConflict,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import FrameType

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.actions import Action, Arguments, Opened
    from lakecore.cdc.events import Source, SourceSchema
    from lakecore.cdc.retry import Outage
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.types import Json


# --- action table --------------------------------------------------------------------------------
# The table of all actions that follow a source, by name.

SYNC_ACTIONS: Mapping[str, Action] = {
    **MYSQL_ACTIONS,
    **POSTGRES_ACTIONS,
    **KAFKA_ACTIONS,
    **FILES_ACTIONS,
}


# --- pipeline ------------------------------------------------------------------------------------

STATE_DIRECTORY = ".cdc"
_READS_AGAIN = ("mysql", "postgres")
"""The kinds of sources that are `ReadsAgain`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """An action with its arguments, and the settings of its commits.

    `name` must be unique within a warehouse; by default, it consists of the action and the target.
    `patience_seconds`: how long the source may be unreachable, at the start and later.
    `on_table_error`: what happens to a table that cannot be followed. By default, a pipeline of a
    whole database sets the table aside and follows the others, and a pipeline of one table stops.
    `source_moved`: whether the source may have another address than in the stored state.
    """

    action: str
    arguments: Arguments
    name: str | None = None
    state: str | None = None
    interval_seconds: float = 10.0
    patience_seconds: float = 300.0
    keeps_dead_letters: bool = False
    skips_unsupported: bool = False
    source_moved: bool = False
    on_table_error: OnTableError | None = None

    @property
    def label(self) -> str:
        given = self.arguments
        target = given.database if given.table is None else f"{given.database}.{given.table}"
        return self.name or f"{self.action}-{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """The status of a pipeline, from its stored state.

    - `age_seconds`: the age of the last checkpoint; `checkpoint_seconds`: its duration;
    - `lag_seconds`: the age of the newest committed change, which also grows while the source has
      no changes; None if the source states no times;
    - `lag_bytes`: the size of the source's log after the last checkpoint; None if not known;
    - `rows_per_second`: of the last minute;
    - `tables`: by target, the rows of each kind that this run has committed;
    - `retries`: how often the run has tried to reach its source again;
    - `quarantine`: an entry for each table that is not followed any more: its name, the reason, the
      time, and the position that its target has reached;
    - `requested`: tables that are to be read again; `not_read_again`: why the read failed;
    - `reachable`: whether the source answered when it was last needed; `unreachable_since`: else
      the last contact, in UTC; `unreachable_seconds`: the time since then, and 0 if reachable. Then
      the lag is at least that time, and its bytes are not known;
    - `failed_at`, `failed_reason`: when, in UTC, and why the last run ended with an error; None if
      it did not.
    """

    name: str
    checkpoint: int
    age_seconds: float
    checkpoint_seconds: float | None
    lag_seconds: float | None
    lag_bytes: int | None
    rows_total: int
    rows_per_second: float
    rows_left_out: int
    retries: int
    caught_up: bool
    position: str
    source: Mapping[str, str]
    left_out: Mapping[str, str]
    quarantine: tuple[Mapping[str, Json], ...] = ()
    targets: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    not_read_again: Mapping[str, str] = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    reachable: bool = True
    unreachable_since: str | None = None
    unreachable_seconds: float = 0.0
    unreachable_reason: str | None = None
    failed_at: str | None = None
    failed_reason: str | None = None

    @property
    def state(self) -> str:
        """The state in two words, for people."""
        if not self.reachable:
            return "not reachable"
        if self.failed_reason is not None:
            return "failed"
        return "caught up" if self.caught_up else "catching up"


def run_pipeline(
    catalog: Catalog,
    pipeline: Pipeline,
    ambient: Ambient,
    *,
    until_caught_up: bool = False,
    stops: Callable[[], bool] = bool,
    reports: Callable[[Progress], None] | None = None,
) -> Progress:
    """Replicate the source to the targets; see `Sink.run`. Creates the target database."""
    action = _action(pipeline.action)
    opened = action.opens(pipeline.arguments, ambient)
    try:
        catalog.create_database(pipeline.arguments.database, ignore_if_exists=True)
        store, root = state_store(catalog, pipeline.state)
        database, opens = pipeline.arguments.database, opened.opens_at_start
        tables = () if opens is None else filter(opens, catalog.list_tables(database))
        settings = SinkSettings(
            interval_seconds=pipeline.interval_seconds,
            takes_new_tables=opened.follows_new_tables,
            needs_key=opened.needs_key,
            opened_at_start=tuple(f"{database}.{each}" for each in tables),
            ignores_incompatible=opened.ignores_incompatible,
            on_table_error=pipeline.on_table_error
            or (OnTableError.STOP if action.takes_table else OnTableError.QUARANTINE),
            keeps_dead_letters=pipeline.keeps_dead_letters,
            skips_unsupported=pipeline.skips_unsupported,
            source_moved=pipeline.source_moved,
            source_patience_seconds=pipeline.patience_seconds,
        )
        files = StateFiles(store, f"{root}/{_checked(pipeline.label)}", ambient)
        sink = Sink(catalog, opened.rules, files, settings, ambient)
        with _failure_is_stored(files):
            return sink.run(
                opened.source, until_caught_up=until_caught_up, stops=stops, reports=reports
            )
    finally:
        opened.source.close()


@contextmanager
def _failure_is_stored(files: StateFiles) -> Iterator[None]:
    """A context manager: the status of a pipeline that has run before says what ended it now.

    An outage is stored already, and a CommitConflict ends one of two processes: the other goes on.
    """
    try:
        yield
    except (CommitConflict, StorageError):
        raise
    except LakecoreError as error:
        with suppress(LakecoreError):  # a note for the status does not hide the error
            if files.latest() is not None:
                files.put_failure(str(error))
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All problems that prevent a pipeline, and what its user should know."""

    problems: tuple[LakecoreError, ...]
    notes: tuple[str, ...]


def check_pipeline(catalog: Catalog, pipeline: Pipeline, ambient: Ambient) -> Checked:
    """Check the source, all its tables and their targets, and change nothing.

    A change that a pipeline with a state has not yet reached is no problem.
    """
    action = _action(pipeline.action)
    opened = action.opens(pipeline.arguments, ambient)
    source, rules = opened.source, opened.rules
    notes: list[str] = []
    taken: list[str] = []
    try:
        store, root = state_store(catalog, pipeline.state)
        state = StateFiles(store, f"{root}/{_checked(pipeline.label)}", ambient).latest()
        followed = () if state is None else state.source_tables
        if state is not None:
            notes += [f"{each.table}: in quarantine: {each.reason}" for each in state.quarantine]
            if state.position is not None and isinstance(source, Resumes):
                with stored(root):
                    source.resume(state.position)
        tables, collected = surveyed(source)
        if all(map(tables_of, collected.errors)):
            with collected.of():
                check_named_columns(source)
        keyed = [each for each in tables.values() if each.primary_key or not opened.needs_key]
        if not collected.errors and not keyed:
            with collected.of():
                if state is None and not opened.follows_new_tables:
                    raise no_table(source.describe())
            notes.append("the source has no table to follow yet")
        for table, schema in tables.items():
            target = rules.target(table)
            if target is None:
                continue
            is_known = str(table) in followed
            takes_it = state is None or opened.follows_new_tables or is_known
            if left_out := _why_left_out(opened, schema, takes_it=takes_it):
                notes.append(f"{table}: {left_out}")
                continue
            with collected.of(table):
                shape = rules.shape(table, schema)
                changes = rules.check(catalog, table, target, shape, follows=is_known)
                if changes and is_known:
                    paths = (".".join(getattr(each, "path", ())) or "comment" for each in changes)
                    notes.append(
                        f"{table}: changed at the source: {', '.join(dict.fromkeys(paths))}. The "
                        f"pipeline changes {target} with the first row that needs it"
                    )
                notes += [f"{table}: column {each}" for each in shape.notes]
                taken.append(str(table))
        hidden = {*followed} - {*map(str, tables)}
        notes += [] if collected.errors else _listed(source, taken, hidden)
        with suppress(InvalidRequest):  # a login that is refused is a problem already
            notes += source.notes() if isinstance(source, Noted) else ()
        return Checked(problems=tuple(collected.errors), notes=tuple(notes))
    except StorageError as error:
        return Checked(problems=(error,), notes=tuple(notes))
    finally:
        source.close()


def _why_left_out(opened: Opened, schema: SourceSchema, *, takes_it: bool) -> str | None:
    if opened.needs_key and not schema.primary_key:
        return "it has no primary key, and is left out"
    return None if takes_it else f"left out: {IS_NEW}"


def _listed(source: Source, taken: Sequence[str], hidden: Collection[str]) -> list[str]:
    """Notes on which tables are mirrored: a user without a grant does not see a table at all."""
    if source.describe().get("kind") not in _READS_AGAIN:
        return []
    notes = [f"tables that are mirrored: {', '.join(taken) or 'none'}"]
    if hidden:
        notes.append(
            "tables that were mirrored, and that the source no longer has or hides from the user "
            f"(GRANT SELECT): {', '.join(sorted(hidden))}"
        )
    return notes


def _action(name: str) -> Action:
    if name not in SYNC_ACTIONS:
        raise InvalidRequest("unknown action", action=name, known=list(SYNC_ACTIONS))
    return SYNC_ACTIONS[name]


def statuses(catalog: Catalog, state: str | None, ambient: Ambient) -> list[PipelineStatus]:
    """The status of every pipeline of a warehouse, by name."""
    store, root = state_store(catalog, state)
    names = [each.path.rpartition("/")[2] for each in store.list(root) if each.is_directory]
    found = (status_of(catalog, name, state, ambient) for name in names)
    return [each for each in found if each is not None]


def status_of(
    catalog: Catalog, name: str, state: str | None, ambient: Ambient
) -> PipelineStatus | None:
    """The status of a pipeline; None if it has not started yet."""
    store, root = state_store(catalog, state)
    files = StateFiles(store, f"{root}/{name}", ambient)
    latest, outage = files.latest(), files.outage()
    if latest is None and outage is None:
        return None
    latest = latest or PipelineState(checkpoint=0, commit_user="")
    requested = {each for tables in files.requests().values() for each in tables}
    with stored(files.directory):
        found = _status(name, latest, requested, ambient.now_ms())
        if outage is not None:
            return _unreachable(found, outage, ambient.now_ms())
        failure = files.failure()
        return found if failure is None else _failed(found, latest, *failure)


def _failed(
    status: PipelineStatus, latest: PipelineState, time_ms: int, reason: str
) -> PipelineStatus:
    committed_ms = latest.metrics.get("time_ms")
    if isinstance(committed_ms, int) and committed_ms > time_ms:
        return status  # another process goes on
    at = datetime.fromtimestamp(time_ms // 1000, UTC).isoformat()
    return replace(status, caught_up=False, lag_bytes=None, failed_at=at, failed_reason=reason)


def _unreachable(status: PipelineStatus, outage: Outage, now_ms: int) -> PipelineStatus:
    seconds = max(now_ms - outage.contact_ms, 0) / 1000
    return replace(
        status,
        caught_up=False,
        lag_seconds=round(max(status.lag_seconds or 0.0, seconds), 1),
        lag_bytes=None,
        retries=outage.retries,
        reachable=False,
        unreachable_since=outage.since,
        unreachable_seconds=round(seconds, 1),
        unreachable_reason=outage.reason,
    )


def _status(
    name: str, latest: PipelineState, requested: Collection[SourceTable], now_ms: int
) -> PipelineStatus:
    metrics, position = latest.metrics, latest.position or {}
    recent, tables = metrics.get("recent"), metrics.get("tables")
    followed = metrics.get("followed")
    return PipelineStatus(
        name=name,
        checkpoint=latest.checkpoint,
        age_seconds=_seconds(now_ms, metrics.get("time_ms")) or 0.0,
        checkpoint_seconds=_seconds(metrics.get("took_ms"), 0, digits=3),
        lag_seconds=_seconds(now_ms, position.get("time_ms")),
        lag_bytes=_whole(metrics.get("bytes_after")),
        rows_total=_whole(metrics.get("rows_total")) or 0,
        rows_per_second=rate_of(_pairs(recent), now_ms),
        rows_left_out=_whole(metrics.get("rows_left_out")) or 0,
        retries=_whole(metrics.get("retries")) or 0,
        caught_up=metrics.get("caught_up") is True,
        position=json.dumps(place_of(position)),
        source=latest.source,
        left_out=_texts(metrics.get("left_out")),
        not_read_again=_texts(metrics.get("not_read_again")),
        requested=tuple(map(str, sorted(requested))),
        quarantine=tuple(each.to_json() for each in latest.quarantine),
        targets=tuple(sorted(followed)) if isinstance(followed, dict) else latest.targets,
        tables=_counts(tables),
    )


def request_resync(
    catalog: Catalog, name: str, tables: Sequence[str], state: str | None, ambient: Ambient
) -> list[str]:
    """Ask a pipeline to read tables again, and return their names.

    `tables`: names as `table` or `database.table` (PostgreSQL: `schema.table`). A table that the
    pipeline does not know yet needs the longer form. The pipeline reads the tables at its next
    checkpoint, or when it starts. Another request changes nothing.

    Raises NotFound if there is no such pipeline, Unsupported if its source cannot read a table
    again, InvalidRequest if a name is not exactly one table.
    """
    store, root = state_store(catalog, state)
    files = StateFiles(store, f"{root}/{_checked(name)}", ambient)
    latest = files.latest()
    if latest is None:
        known = [each.name for each in statuses(catalog, state, ambient)]
        raise NotFound("no such pipeline", name=name, known=known)
    kind = latest.source.get("kind")
    if kind not in _READS_AGAIN:
        raise Unsupported(
            "a table of this source cannot be read again: remove the target, and start a pipeline "
            "with another name for it",
            pipeline=name,
            source=kind,
        )
    known_tables = {each.table for each in latest.quarantine}
    known_tables |= {_source_table(each) for each in latest.source_tables}
    found = []
    for text in tables:
        named = [each for each in sorted(known_tables) if text in _names(each)]
        if not named and "." in text:
            whole = f"{latest.source['database']}.{text}" if kind == "postgres" else text
            named = [_source_table(whole)]
        if len(named) != 1:
            raise InvalidRequest(
                "several tables have this name: write database.table, for PostgreSQL schema.table"
                if named
                else "the pipeline has no such table: write database.table, for PostgreSQL "
                "schema.table, if it is new",
                table=text,
                known=[*map(str, sorted(known_tables))],
            )
        found += named
    if not found:
        raise InvalidRequest("name the tables", example="--tables shop.orders,shop.items")
    files.request(found)
    return [*map(str, found)]


def _source_table(text: str) -> SourceTable:
    """The table with this name in full."""
    database, dot, name = text.partition(".")
    return SourceTable(database, name) if dot else SourceTable("", text)


def _names(table: SourceTable) -> tuple[str, str, str]:
    """The forms in which a user may name a table."""
    return str(table), table.name, table.name.rpartition(".")[2]


def state_store(catalog: Catalog, state: str | None) -> tuple[Store, str]:
    """The store and the directory of the states of pipelines.

    Raises InvalidRequest if `state` is None and a server keeps the warehouse.
    """
    options = {k: v for k, v in catalog.option_texts.items() if is_storage_option(k)}
    place = state
    if place is None:
        warehouse = catalog.warehouse
        if catalog.option_texts.get("metastore") == "rest":
            raise InvalidRequest("the warehouse is a server: say where the state of pipelines is")
        place = f"{warehouse.rstrip('/')}/{STATE_DIRECTORY}"
    located = locate(place)
    return open_store(located, options), located.rstrip("/")


def _checked(name: str) -> str:
    if not name or "/" in name or "\\" in name or name.startswith("."):
        raise InvalidRequest("the name of a pipeline is one part of a path", name=name)
    return name


def _seconds(now_ms: Json, time_ms: Json, digits: int = 1) -> float | None:
    if not isinstance(now_ms, int) or not isinstance(time_ms, int):
        return None
    return round((now_ms - time_ms) / 1000, digits)


def _pairs(value: Json) -> list[tuple[int, int]]:
    listed = value if isinstance(value, list) else []
    return [(int(str(each[0])), int(str(each[1]))) for each in listed if isinstance(each, list)]


def _counts(value: Json) -> dict[str, dict[str, int]]:
    """The rows by table and kind; empty for an older state, which has no kinds."""
    tables = value if isinstance(value, dict) else {}
    return {
        name: {kind: int(str(count)) for kind, count in kinds.items()}
        for name, kinds in tables.items()
        if isinstance(kinds, dict)
    }


def _texts(value: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


# --- launch --------------------------------------------------------------------------------------
# Starts a pipeline from flags, from a file, or from the options of a statement.
#
# SIGINT and SIGTERM end a pipeline after a last commit; a second signal ends it immediately.

CAUGHT_UP = "caught-up"
RUN_FLAGS = (
    "name",
    "state",
    "until",
    "interval",
    "patience",
    "dead_letters",
    "on_table_error",
    "skip_unsupported",
    "source_moved",
)
"""The flags that say how a pipeline runs, not what it does."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|seconds|min|minutes|h|hours)?")
_UNITS = {"m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A pipeline to run, and whether it ends once it has caught up."""

    pipeline: Pipeline
    until_caught_up: bool = False

    def run(
        self,
        catalog: Catalog,
        ambient: Ambient,
        reports: Callable[[Progress], None] | None = None,
        beats: Callable[[], object] = bool,
    ) -> tuple[Progress, bool]:
        """Follow the source. Returns the progress, and whether a signal ended it.

        `beats`: called at each step, also while the source is idle.
        """
        with _until_signal() as stops:
            progress = run_pipeline(
                catalog,
                self.pipeline,
                ambient,
                until_caught_up=self.until_caught_up,
                stops=lambda: (beats(), stops())[1],
                reports=reports,
            )
            return progress, stops()


def launch_of(action: str, arguments: Arguments, flags: Mapping[str, Sequence[str]]) -> Launch:
    """The pipeline that an action and the flags `RUN_FLAGS` define.

    Raises InvalidRequest, naming the flag.
    """
    one = {flag: flags[flag][-1] for flag in RUN_FLAGS if flags.get(flag)}
    until = one.get("until")
    if until not in {None, CAUGHT_UP}:
        raise InvalidRequest("--until takes one value", until=until, known=[CAUGHT_UP])
    policy = one.get("on_table_error")
    if policy is not None and policy not in list(OnTableError):
        raise InvalidRequest(
            "unknown value of --on-table-error", value=policy, known=[*map(str, OnTableError)]
        )
    pipeline = Pipeline(
        action=action,
        arguments=arguments,
        name=one.get("name"),
        state=one.get("state"),
        interval_seconds=duration_seconds("interval", one.get("interval", "10 s")),
        patience_seconds=duration_seconds("patience", one.get("patience", "5 min")),
        keeps_dead_letters=_is_true("dead_letters", one.get("dead_letters", "false")),
        skips_unsupported=_is_true("skip_unsupported", one.get("skip_unsupported", "false")),
        source_moved=_is_true("source_moved", one.get("source_moved", "false")),
        on_table_error=None if policy is None else OnTableError(policy),
    )
    return Launch(pipeline=pipeline, until_caught_up=until == CAUGHT_UP)


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """A context manager that catches signals, and gives a function that tells whether one came.

    The signals are SIGINT and SIGTERM. Only the main thread gets them: in other threads, the
    function always returns False.
    """
    ended = threading.Event()
    before: dict[signal.Signals, object] = {}

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.set()
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)  # type: ignore[arg-type]  # as signal() returned it

    if threading.current_thread() is threading.main_thread():
        before |= {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended.is_set
    finally:
        restore()


def duration_seconds(flag: str, text: str) -> float:
    """The seconds of a duration such as `10 s`. Raises InvalidRequest, naming the flag."""
    match = _SECONDS.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest("not a duration", option=f"--{flag}", value=text, example="10 s")
    return float(match[1]) * _UNITS.get((match[2] or "s")[0], 1)


def _is_true(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidRequest("the flag is true or false", flag=f"--{name}", value=text)
    return text == "true"
