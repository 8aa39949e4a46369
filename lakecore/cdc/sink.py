"""The sink of a pipeline: writes steps of a source, with one commit of all tables per interval.

1. Read the state of the pipeline. A checkpoint that an earlier process stored and did not finish is
   committed now, table by table.
2. For each step, first make the schema changes that its rows need. Before a change, everything
   before the step is committed, because a writer cannot change its schema.
3. Pass the rows to the writers of their tables, which buffer them within the memory budget.
4. Make a checkpoint after the interval, or when many rows are buffered: every table writes its
   files, one new state file names them together with the position, and then each table is
   committed.

Exactly once: the state file decides which rows are done (`state.py`). Each commit has the number of
the checkpoint as its identifier, so a repeated commit is recognised. Backpressure: the sink pulls
steps, so a source that is faster than the tables waits.

INVARIANT: a row is written only to a table whose stored schema has its columns. INVARIANT: a
position is stored only together with every row before it.
"""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.cdc.events import (
    Altered,
    ChangeBatch,
    Cleared,
    Measured,
    Position,
    ReadsAgain,
    Resumes,
    Source,
    SourceSchema,
    SourceTable,
    Step,
)
from lakecore.cdc.quarantine import (
    TABLE_ERRORS,
    Collected,
    LeavesOut,
    OnTableError,
    Quarantine,
    check_named_columns,
    concern,
    of_tables,
    surveyed,
    tables_of,
)
from lakecore.cdc.resync import PartlyRead, columns_digest
from lakecore.cdc.retry import Patience
from lakecore.cdc.sink_parts import (
    UNKNOWN_TABLE,
    Acknowledged,
    Progress,
    Recent,
    Rules,
    SinkSettings,
    TargetTable,
    bytes_after,
    check_alone,
    check_source,
    does_not_fit,
    fitting,
    in_order,
    needed_changes,
    next_step,
    no_table,
    position_properties,
    rate_of,
    shaped,
    target_gone,
)
from lakecore.cdc.state import DeadLetters, PipelineState, Requests, StateFiles, stored
from lakecore.cdc.target_rules import outdates
from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.io.ambient import Ambient

log = logging.getLogger("lakecore.cdc")


class Sink:
    """Writes the steps of a source to tables. `run` returns when stopped, or when caught up."""

    def __init__(
        self,
        catalog: Catalog,
        rules: Rules,
        files: StateFiles,
        settings: SinkSettings,
        ambient: Ambient,
    ) -> None:
        self._catalog = catalog
        self._rules = rules
        self._files = files
        self._settings = settings
        self._ambient = ambient
        self._targets: dict[str, TargetTable] = {}
        self._routes: dict[SourceTable, str | None] = {}
        self._known: dict[SourceTable, SourceSchema] = {}
        self._missing: set[str] = set()
        self._keyless: set[SourceTable] = set()
        self._unfit: dict[SourceTable, SourceSchema] = {}
        self._patience: Patience | None = None
        self._letters = DeadLetters() if settings.keeps_dead_letters else None
        self._quarantine = Quarantine(settings.on_table_error, self._next_step)
        self._reads_again = False
        self._requests = Requests(files)
        self._reads_on = False
        self._counted: dict[str, dict[str, int]] = {}
        self._recent = Recent(ambient.now_ms())
        self._measures: Callable[[Position], int | None] | None = None
        self._stops: Callable[[], bool] = bool
        self._state = PipelineState(checkpoint=0, commit_user="")
        self._position: Position | None = None
        self._rows = 0
        self._committed_ms = 0
        self._took_ms: int | None = None
        self._is_new = True
        self._acknowledge: Callable[[Position], None] | None = None
        self.progress = Progress()

    def run(
        self,
        source: Source,
        *,
        until_caught_up: bool = False,
        stops: Callable[[], bool] = bool,
        reports: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Follow the source until `stops()` is true or, if requested, the source has caught up.

        Everything that was read is committed before this returns. `stops` is called at each step
        and before each commit, also while the source is idle, and so serves as a sign of life.
        `reports` is called after each checkpoint. Raises what the source and the tables raise; a
        later run continues from the last checkpoint.
        """
        begins = True
        seconds = self._settings.source_patience_seconds
        self._stops = stops
        self._reads_again = isinstance(source, ReadsAgain)
        tells = self.progress.tells(self._files.put_outage, reports)
        patience = self._patience = Patience(seconds, self._ambient, stops, tells)
        try:
            while True:
                try:
                    if begins:
                        if not self._begin(source, patience):
                            return self.progress
                        begins = False
                    self._reads_on = self._read_again(source)
                    steps = patience.steps(source, lambda: self._position)
                    if self._follow(source, steps, stops, reports, until_caught_up=until_caught_up):
                        return self.progress
                except TABLE_ERRORS as error:
                    # A user waits for the first start of a pipeline, which reports all problems.
                    is_first = begins and self._is_new
                    if is_first and not self._settings.skips_unsupported:
                        raise
                    if not self._set_aside(error, source, is_wanted=is_first):
                        raise
        finally:
            self.close()

    def _follow(
        self,
        source: Source,
        steps: Generator[Step, None, None],
        stops: Callable[[], bool],
        reports: Callable[[Progress], None] | None,
        *,
        until_caught_up: bool,
    ) -> bool:
        """Take the steps of the source after the current position.

        False if it stopped at a checkpoint because tables are to be read. If a table is read in
        part, this is as soon as the source has caught up.
        """
        caught_up = False
        with closing(steps):
            for step in steps:
                self._take_or_retry(step, source)
                if step.caught_up and self._reader(source) is not None:
                    self._check_unfit()
                unread = [*step.unread, *self._outdated(step.altered)]
                if isinstance(source, ReadsAgain) and self._settings.takes_new_tables:
                    # Their rows were passed over without a key.
                    unread += self._keyless & step.keyed
                    self._keyless -= step.keyed
                is_asked = bool(unread) and self._requests.add(unread)
                caught_up |= step.caught_up and not unread
                self.progress.caught_up |= caught_up
                ends = stops() or (until_caught_up and caught_up and not self._reads_on)
                is_next = self._reads_on and caught_up
                if ends or is_asked or is_next or self._is_due():
                    if self._checkpoint() and reports is not None:
                        reports(self.progress)
                    can_read = not ends and self._reader(source) is not None
                    if can_read and (is_next or self._requests.due(self._ambient.now_ms())):
                        return False
                if ends:
                    return True
        # The source ended by itself, or the pipeline stopped while the source was unreachable.
        self._checkpoint()
        return True

    def close(self) -> None:
        """Close all writers, and drop rows that are not committed."""
        for target in self._targets.values():
            target.close()
        self._targets.clear()

    # --- the start --------------------------------------------------------------------------------

    def _begin(self, source: Source, patience: Patience) -> bool:
        """Continue what an earlier run left; False if stopped while the source was unreachable."""
        self._committed_ms = self._ambient.now_ms()
        found = self._files.latest()
        self._is_new = found is None
        self._acknowledge = source.committed if isinstance(source, Acknowledged) else None
        self._measures = source.bytes_after if isinstance(source, Measured) else None
        if found is not None:
            self._state = found
            self._quarantine.restore(found.quarantine)
            self._requests.restore(found.partly_read)
            self._tell_quarantine(source)
            self.progress.restore(found.metrics, found.source_tables)
            if found.position is not None and isinstance(source, Resumes):
                with stored(self._files.directory):
                    source.resume(found.position)
        asked = patience.ask(lambda: (source.describe(), *surveyed(source)))
        if asked is None:
            return False
        described, tables, collected = asked
        if not all(map(tables_of, collected.errors)):
            self._check_new({} if found else tables, collected)
        if found is not None:
            has_moved = self._settings.source_moved
            check_source(found.source, described, self._files.directory, has_moved=has_moved)
            self._state = replace(self._state, source=dict(described))
            if not found.quarantine:
                try:
                    check_named_columns(source)
                except InvalidRequest as error:
                    log.warning("a flag has no effect. reason=%s", error)
            self._commit(found)
            self._check_targets(found)
        else:
            check_named_columns(source)
            self._check_new(tables, collected)
            follows = [table for table, schema in tables.items() if self._has_key(schema)]
            if not follows and not self._settings.takes_new_tables:
                raise no_table(described)
            user = f"cdc-{self._ambient.new_uuid()}"
            self._state = PipelineState(
                checkpoint=0,
                commit_user=user,
                source_tables=tuple(sorted(map(str, follows))),
                source=dict(described),
            )
            self._files.put(self._state)
        self._position = self.progress.position = self._state.position
        self.progress.checkpoint = self._state.checkpoint
        for table, schema in tables.items():
            with collected.of(table):
                self._route(table, schema)
        collected.check()
        if found is not None and found.position is not None and isinstance(source, ReadsAgain):
            self._request_new(found)
        for name in self._settings.opened_at_start:
            self._target(name)
        return True

    def _request_new(self, found: PipelineState) -> None:
        """Request new tables: their rows may have been passed over, while they had no key."""
        known = {*found.source_tables}
        new = [each for each, name in self._routes.items() if name and str(each) not in known]
        if new:
            self._requests.add(new)

    def _check_new(self, tables: Mapping[SourceTable, SourceSchema], collected: Collected) -> None:
        """Raise all errors of the first start, before anything is made."""
        for table, schema in tables.items():
            target = None if table in self._quarantine else self._rules.target(table)
            if target is not None and self._has_key(schema):
                with collected.of(table):
                    shape = self._rules.shape(table, schema)
                    if not self._settings.ignores_incompatible:
                        self._rules.check(self._catalog, table, target, shape)
        collected.check()

    def _check_targets(self, state: PipelineState) -> None:
        """Find targets that the pipeline wrote and that no longer exist, so that rows are lost.

        A table without a snapshot was dropped and created again, and counts as gone. The target of
        a table in quarantine may be dropped.
        """
        freed = {self._rules.target(each) for each in self._quarantine.tables}
        for name in state.targets:
            if name not in freed and name not in self._missing:
                try:
                    gone = self._target(name).table.context.history.latest_snapshot() is None
                except InvalidRequest:
                    gone = True
                if gone:
                    self._lost(name)

    def _lost(self, name: str) -> None:
        """Note that a target is gone: source tables are set aside as soon as they are routed there.

        Raises InvalidRequest if the pipeline must stop.
        """
        self._missing.add(name)
        if name in self._targets:
            self._targets.pop(name).close()
        if self._settings.on_table_error is OnTableError.STOP:
            raise self._gone(name)

    def _gone(self, name: str, *tables: SourceTable) -> InvalidRequest:
        """The error of a missing target, for these tables, or else for all tables routed there."""
        routed = [each for each, to in self._routes.items() if to == name]
        return target_gone(name, tables or routed, self._files.directory)

    @contextmanager
    def _existing(self, name: str) -> Iterator[None]:
        """A context manager that replaces NotFound by the error of a missing target."""
        try:
            yield
        except NotFound as error:
            raise self._gone(name) from error

    def _route(self, table: SourceTable, schema: SourceSchema) -> str | None:
        """The target of a source table; creates the target table if needed."""
        if table in self._routes:
            return self._routes[table]
        target = None if table in self._quarantine else self._created(table, schema)
        self._routes[table] = target
        return target

    def _created(
        self, table: SourceTable, schema: SourceSchema, *, is_asked: bool = False
    ) -> str | None:
        """The target of a source table, created if needed; None if the table is not followed.

        `is_asked`: whether a user has requested the table, which need not be new.
        """
        with of_tables(table):
            target = self._rules.target(table)
            if target in self._missing:
                raise self._gone(target, table)
            if target is not None and not self._is_followed(table, schema, is_asked=is_asked):
                target = None
            if target is not None:
                try:
                    shape = self._rules.shape(table, schema)
                    is_new = self._is_new
                    if not self._rules.create(self._catalog, table, target, shape, first=is_new):
                        self._unfit[table] = schema
                except InvalidRequest as error:
                    if not self._settings.ignores_incompatible:
                        raise
                    log.warning("source table left out. table=%s reason=%s", table, error)
                    self.progress.left_out[str(table)] = str(error)
                    target = None
        return target

    def _is_followed(self, table: SourceTable, schema: SourceSchema, *, is_asked: bool) -> bool:
        """Whether the rows of a table are written. Called for tables that are new in this run.

        Raises InvalidRequest if the table has lost the primary key of its written rows.
        """
        known = str(table) in self._state.source_tables
        if not self._has_key(schema):
            if known:
                raise InvalidRequest(
                    "a table of the source has lost its primary key: give it one again, or leave "
                    "it out by --excluding_tables",
                    table=str(table),
                )
            self.progress.leave_out(table, "it has no primary key", logging.WARNING)
            self._keyless.add(table)
            return False
        if not known and not self._settings.takes_new_tables and not is_asked:
            self.progress.leave_new(table, resyncs=self._reads_again)
            return False
        if not known:
            names = sorted({*self._state.source_tables, str(table)})
            self._state = replace(self._state, source_tables=tuple(names))
        return True

    def _has_key(self, schema: SourceSchema) -> bool:
        return bool(schema.primary_key) or not self._settings.needs_key

    # --- quarantine -------------------------------------------------------------------------------

    def _set_aside(self, error: LakecoreError, source: Source, *, is_wanted: bool = False) -> bool:
        """Set aside the tables that an error concerns; False if the error must end the pipeline.

        Everything since the last checkpoint is dropped: the source repeats it without these tables.
        """
        now_ms, position = self._ambient.now_ms(), self._state.position
        taken = self._quarantine.take(error, position, now_ms, is_wanted=is_wanted)
        if not taken:
            return False
        for each in taken:
            self._routes[each.table] = None
        self._tell_quarantine(source)
        self._drop()
        return True

    def _next_step(self, table: SourceTable) -> str:
        target = self._rules.target(table)
        others = {each for each, name in self._routes.items() if name == target} - {table}
        return next_step(
            self._files.name, table, is_alone=not others, reads_again=self._reads_again
        )

    def _drop(self) -> None:
        """Drop everything since the last checkpoint."""
        for target in self._targets.values():
            target.close()
        if self._letters is not None:
            self._letters.drop()
        self._known.clear()
        self._requests.restore(self._state.partly_read)
        self._rows = 0
        self._position = self._state.position
        self.progress.tables = self._counted
        self._counted = self.progress.copied_tables()

    def _tell_quarantine(self, source: Source) -> None:
        self.progress.quarantine = self._quarantine.entries
        self.progress.newly_set_aside = tuple(map(str, self._quarantine.news))
        if isinstance(source, LeavesOut):
            source.leave_out(self._quarantine.tables)

    # --- resync -----------------------------------------------------------------------------------

    def _reader(self, source: Source) -> ReadsAgain | None:
        """The source, if it can read a table again at the current position."""
        if isinstance(source, ReadsAgain) and source.can_read_again(self._position):
            return source
        return None

    def _outdated(self, altered: Sequence[Altered]) -> Iterator[SourceTable]:
        """The tables whose targets may hold values that the source has changed."""
        for each in altered:
            name = self._routes.get(each.table)
            if name is None:
                continue
            if outdates(each, self._target(name).table.context.schema.fields):
                log.warning(
                    "a statement changed values that the source does not log. table=%s", each.table
                )
                yield each.table

    def _read_again(self, source: Source) -> bool:
        """Do the open requests: the target of each table becomes equal to the table.

        Called directly after a checkpoint. True if a table is read in part: its next range follows
        when the other tables have caught up. A table leaves its requests after the checkpoint of
        its last range, so that a crash repeats what is not stored. If a table cannot be read, the
        target stays unchanged, and the table is followed if possible, or else in quarantine. A
        table of which ranges were read before goes to quarantine.
        """
        reader = self._reader(source)
        if reader is None:
            return False
        stops = self._settings.on_table_error is OnTableError.STOP
        for table, requests in self._requests.due(self._ambient.now_ms()).items():
            route = self._routes.get(table)
            try:
                if not self._restore(reader, table, requests):
                    # The request stays, and the next checkpoint tries again.
                    self._drop()
                    self._routes[table] = route
                    return False
            except (*TABLE_ERRORS, NotFound) as error:
                self._drop()
                self._routes[table] = route
                is_begun = self._requests.partly.pop(table, None) is not None
                how = "be read again only in part" if is_begun else "not be read again"
                reason = f"it could {how}: {error}"
                is_there = not isinstance(error, NotFound)
                is_known = is_there or str(table) in self._state.source_tables
                step = self._next_step(table) if is_known else UNKNOWN_TABLE
                self.progress.not_read(table, reason, step)
                is_unread = self._requests.is_unread(requests)
                if is_unread and stops:
                    raise
                is_lost = route is None or is_unread
                if is_begun or (is_lost and is_there) or table in self._quarantine:
                    self._routes[table] = None
                    self.progress.not_read_again.pop(str(table))
                    now_ms, position = self._ambient.now_ms(), self._state.position
                    self._quarantine.renew(table, reason, now_ms, position)
            self._tell_quarantine(source)
            self._checkpoint()
            if (partly := self._requests.partly.get(table)) is not None:
                log.info("table is read again. table=%s up_to=%s", table, partly.start)
                return True
            self._requests.done(table, requests)
        return False

    def _restore(self, source: ReadsAgain, table: SourceTable, requests: frozenset[str]) -> bool:
        """Write the rows of the next range of a table, and delete all others, in the next commit.

        False if the source cannot be reached, or the run ends.
        """
        assert self._position is not None, "no table is read again before the first checkpoint"
        name = self._routes.get(table)
        begun = self._requests.begun(table, requests)
        if begun is None or name is None:
            begun = name = None
            log.info("table is read again. table=%s", table)
        else:
            self._check_alone(name)
        stop, columns = None, ""
        steps = source.read_again(table, self._position, None if begun is None else begun.start)
        while True:
            try:
                step = next(steps, None)
            except StorageError as error:
                wait = self._requests.postpone(table, requests, self._ambient.now_ms())
                self.progress.not_read(table, error, f"none, it is tried again after {wait:.0f} s")
                return False
            if step is None:
                break
            if self._stops():
                return False
            if step.batches:
                columns = columns_digest(step.batches[0].schema)
                if begun is not None and columns != begun.columns:
                    self._drop()
                    self._requests.partly.pop(table, None)
                    return self._restore(source, table, requests)
            if name is None:
                name = self._returning(table, step.batches[0].schema)
            if step.cleared is not None:
                self._rows += self._target(name).remove_others(step.cleared)
                self._position, stop = step.position, step.cleared.stop
            else:
                self._take(step)
        self._quarantine.release(table)
        self.progress.not_read_again.pop(str(table), None)
        self._requests.partly.pop(table, None)
        if stop is None:
            log.info("table is followed again. table=%s target=%s", table, name)
        else:
            self._requests.partly[table] = PartlyRead(
                table=table, start=stop, columns=columns, requests=requests
            )
        return True

    def _returning(self, table: SourceTable, schema: SourceSchema) -> str:
        """The target of a table that comes back, created again if gone.

        Raises InvalidRequest if the target cannot become equal to the source table.
        """
        self._missing.discard(self._rules.target(table) or "")
        name = self._created(table, schema, is_asked=True)
        self._unfit.pop(table, None)  # the read itself shows it
        if name is None:
            raise InvalidRequest("the pipeline leaves the table out", table=str(table))
        self.progress.left_out.pop(str(table), None)
        self._routes[table] = name
        self._check_alone(name)
        if name in self._targets:
            self._targets.pop(name).close()
        self._target(name).names_of_key(schema.primary_key)
        # The target may be new and stay empty; a checkpoint with rows adds it again.
        self._state = replace(
            self._state, targets=tuple(each for each in self._state.targets if each != name)
        )
        return name

    # --- steps ------------------------------------------------------------------------------------

    def _take_or_retry(self, step: Step, source: Source) -> None:
        """Take a step; the first one again after an error, because no position is before it."""
        while True:
            try:
                return self._take(step)
            except TABLE_ERRORS as error:
                if self._state.position is not None or not self._set_aside(error, source):
                    raise

    def _take(self, step: Step) -> None:
        """Write the rows of a step, after the schema changes that they need."""
        letters = self._letters
        bad = [each for each in step.bad if not self._quarantine.covers(each)]
        if bad and letters is None:
            raise bad[0]
        if step.cleared is not None:
            self._clear(step.cleared)
        routed: list[tuple[str, ChangeBatch]] = []
        for batch in step.batches:
            name = self._route(batch.table, batch.schema)
            if name is not None:
                routed.append((name, batch))
                self._evolve(name, batch)
        # From here on, no checkpoint is made before the step ends: its dead letters must be stored
        # with its position.
        found: dict[str, list[ChangeBatch]] = {}
        for name, batch in routed:
            with of_tables(batch.table):
                found.setdefault(name, []).extend(shaped(self._rules, name, batch, letters))
        for name, batches in found.items():
            for batch in in_order(batches, joins=letters is None):
                self._write(self._target(name), batch, batches)
        if letters is not None:
            for error in bad:
                letters.add_message(error)
            self.progress.rows_left_out = letters.count
        self._position = step.position

    def _clear(self, cleared: Cleared) -> None:
        """Delete the rows of a target that its source lacks; idempotent."""
        name = self._routes.get(cleared.table)
        if name is None:
            return
        self._checkpoint()
        with of_tables(cleared.table), self._existing(name):
            self._check_alone(name)
            removed = self._target(name).remove_others(cleared)
        self._rows += removed
        log.info("rows removed by a statement. table=%s rows=%s", name, removed)

    def _check_alone(self, name: str) -> None:
        shared = {each for each, target in self._routes.items() if target == name}
        shared |= {each for each in self._quarantine.tables if self._rules.target(each) == name}
        check_alone(name, shared)

    def _evolve(self, name: str, batch: ChangeBatch) -> None:
        if self._known.get(batch.table) == batch.schema:
            return
        schema = self._target(name).table.context.schema
        with of_tables(batch.table):
            self._target(name).rows.check_old_rows(batch.schema)
            changes = needed_changes(self._rules, name, schema, batch.table, batch.schema)
        if changes:
            # The rows of this step are not written yet: the position is still before the step.
            self._checkpoint()
            with of_tables(batch.table), self._existing(name):
                self._target(name).change(changes)
            log.info("schema changed. table=%s changes=%s", name, len(changes))
        self._known[batch.table] = batch.schema

    def _check_unfit(self) -> None:
        """Raise InvalidRequest if a table does not fit its target, though no row has shown it.

        Its target has all earlier rows: this is called when the source has caught up.
        """
        while self._unfit:
            table, schema = self._unfit.popitem()
            if (name := self._routes.get(table)) is not None:
                self._checkpoint()
                have = self._target(name).table.context.schema
                with of_tables(table):
                    needed_changes(self._rules, name, have, table, schema)

    def _target(self, name: str) -> TargetTable:
        """The target of this name. Raises InvalidRequest for a missing target."""
        with self._existing(name):
            return self._opened(name)

    def _opened(self, name: str) -> TargetTable:
        if name not in self._targets:
            self._targets[name] = TargetTable(self._catalog, name, self._state.commit_user)
        return self._targets[name]

    def _write(self, target: TargetTable, batch: ChangeBatch, parts: Sequence[ChangeBatch]) -> None:
        batch = fitting(target.identifier, target.rows, batch, self._letters)
        with self._existing(target.identifier):
            try:
                target.write(batch)
            except InvalidRequest as error:
                failure = does_not_fit(str(batch.table), target.identifier, error)
                bad = {each.table for each in parts if target.rows.split(each)[1]}
                concern(failure, bad or {each.table for each in parts})
                raise failure from error
        self._rows += len(batch)
        self.progress.count(target.identifier, batch)

    # --- checkpoints ------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        if self._rows >= self._settings.rows_max:
            return True
        if self._state.position is None and self._position is not None:
            # Store at once where the pipeline started: otherwise a restart could start elsewhere.
            return True
        waited = self._ambient.now_ms() - self._committed_ms
        return waited >= self._settings.interval_seconds * 1000

    def _checkpoint(self) -> bool:
        """Store the position, and make all rows before it visible.

        False if there was nothing to store. Raises InvalidRequest if a target is gone.
        """
        now_ms = self._ambient.now_ms()
        forced = [name for name, each in self._targets.items() if each.forces_snapshot]
        held = self._quarantine.entries
        has_caught_up = self.progress.caught_up and not self._state.metrics.get("caught_up")
        partly_read = tuple(self._requests.partly.values())
        moved = self._position != self._state.position or held != self._state.quarantine
        moved |= partly_read != self._state.partly_read
        if self._position is not None:
            moved |= has_caught_up or self.progress.has_news(self._state.metrics)
        if not moved and not self._rows and not forced:
            self._committed_ms = now_ms
            return False
        number = self._state.checkpoint + 1
        prepared = {}
        for name, each in self._targets.items():
            self._stops()
            with self._existing(name):
                prepared[name] = each.prepare(number)
        self.progress.rows += self._rows
        self._recent.add(now_ms, self._rows)
        self.progress.rows_per_second = rate_of(self._recent.pairs, now_ms)
        letters = None if self._letters is None else self._letters.hold(self._files, number)
        written = {name for name, each in prepared.items() if each}
        messages = {name: prepared[name] for name in prepared if name in {*written, *forced}}
        targets = {*self._state.targets, *written}
        routed = {each for each in self._routes.values() if each}
        aside = {self._rules.target(each.table) for each in held} - routed
        state = replace(
            self._state,
            checkpoint=number,
            position=self._position,
            messages=messages,
            letters=letters,
            targets=tuple(sorted(targets)),
            quarantine=held,
            partly_read=partly_read,
            metrics=self.progress.metrics(
                self._state.metrics,
                rows=self._rows,
                followed=dict.fromkeys(sorted((targets | routed) - aside), 1),
                time_ms=now_ms,
                took_ms=self._took_ms,
                recent=[[*pair] for pair in self._recent.pairs],
                bytes_after=bytes_after(self._measures, self._position),
                retries=0 if self._patience is None else self._patience.retries,
            ),
        )
        self._files.put(state)
        self._state = state
        self._commit(state, now_ms)
        if self._acknowledge is not None and state.position is not None:
            self._acknowledge(state.position)
        log.log(
            logging.INFO if self._rows or state.messages else logging.DEBUG,
            "checkpoint. number=%s rows=%s tables=%s caught_up=%s in_quarantine=%s",
            number,
            self._rows,
            len(state.messages),
            self.progress.caught_up,
            len(held),
        )
        self._rows = 0
        self._counted = self.progress.copied_tables()
        self._committed_ms = now_ms
        self.progress.checkpoint = number
        self.progress.position = state.position
        for name in self._missing & {*self._routes.values()}:
            raise self._gone(name)
        return True

    def _commit(self, state: PipelineState, began_ms: int | None = None) -> None:
        """Commit what a checkpoint's state names, then delete the states before it.

        `began_ms`: when the checkpoint began; None for a checkpoint of an earlier process.
        """
        properties = position_properties(state.position or {})
        for name, messages in state.messages.items():
            self._stops()
            try:
                target = self._opened(name)
                if began_ms is None:
                    target.recover(state.checkpoint, messages)
                else:
                    target.commit(state.checkpoint, properties)
            except NotFound:
                self._lost(name)
        self._files.publish_letters(state)
        if began_ms is not None:
            self._took_ms = self._ambient.now_ms() - began_ms
            state = replace(state, metrics={**state.metrics, "took_ms": self._took_ms})
        self._files.put_committed(state)
        self._files.forget_before(state.checkpoint)
