"""The parts of a sink: rules for targets, a target table, settings, and the report of a run.

A target table is opened, its schema is changed, and it is written at checkpoints. A schema change
needs a new writer, because a writer keeps the schema that it started with. Before a change, the
sink therefore commits everything.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from operator import and_
from shlex import quote
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.events import ChangeBatch, Position, SourceSchema, SourceTable
from lakecore.cdc.quarantine import OF_ALL_TABLES, START_AGAIN, OnTableError, SetAside, concern
from lakecore.cdc.target_rules import target_names
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.model.rows import KIND_TEXTS, ROW_KIND, RowKind
from lakecore.model.types import arrow_type
from lakecore.options import POSTPONE_BUCKET, ChangelogProducer, MergeEngine
from lakecore.rows.conform import KindRule, conform

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.events import ChangeBatch, Cleared
    from lakecore.cdc.retry import Outage
    from lakecore.cdc.state import DeadLetters
    from lakecore.model.files import CommitMessage
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.model.types import Json
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table
    from lakecore.table.writes.stream_write import StreamWrite


log = logging.getLogger("lakecore.cdc")


@runtime_checkable
class Acknowledged(Protocol):
    """A source that keeps changes until the sink confirms that they are committed."""

    def committed(self, position: Position) -> None:
        """Called by the sink: everything before the position is committed."""


class Rules(Protocol):
    """How a pipeline maps the tables of its source to targets."""

    def target(self, table: SourceTable) -> str | None:
        """The target as `database.table`; None if the table is left out."""

    def shape(self, table: SourceTable, schema: SourceSchema) -> SourceSchema:
        """The columns of the target, given the columns of the source."""

    def rows(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch with the columns of `shape`."""

    def create(
        self,
        catalog: Catalog,
        table: SourceTable,
        target: str,
        schema: SourceSchema,
        *,
        first: bool,
    ) -> bool:
        """Create the target table, or check the existing one if the pipeline has no state yet.

        False if the table cannot take rows of that schema, but may take earlier rows of the source.
        Raises InvalidRequest if the existing table can never take rows of that schema.
        """

    def check(
        self, catalog: Catalog, table: SourceTable, target: str, schema: SourceSchema
    ) -> object:
        """Raise InvalidRequest if a new pipeline could not create or use the target."""

    def changes(self, schema: TableSchema, given: SourceSchema) -> Sequence[Change]:
        """The schema changes that the target needs for rows with the columns of `given`.

        Raises InvalidRequest if a change is not possible.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """How often a pipeline commits, and what happens to tables and rows that do not fit.

    - `takes_new_tables`: whether tables that appear in the source later are followed;
    - `needs_key`: whether a source table without a primary key is left out;
    - `ignores_incompatible`: whether a table that does not fit its target is left out;
    - `skips_unsupported`: whether the first start sets aside tables that do not fit; otherwise the
      start ends with an error that names them;
    - `source_moved`: whether the source's address may differ from the state;
    - `on_table_error`: what happens to a table that cannot be followed once the pipeline runs;
    - `keeps_dead_letters`: whether rows that do not fit, and unreadable messages, go to a file;
      otherwise such a row or message ends the pipeline;
    - `opened_at_start`: tables that are opened even before they get a row. With the option
      `commit.force-create-snapshot`, such a table gets a snapshot at each checkpoint;
    - `source_patience_seconds`: how long the source may be unreachable.
    """

    interval_seconds: float = 10.0
    rows_max: int = 2_000_000
    takes_new_tables: bool = False
    needs_key: bool = False
    ignores_incompatible: bool = False
    skips_unsupported: bool = False
    source_moved: bool = False
    on_table_error: OnTableError = OnTableError.STOP
    keeps_dead_letters: bool = False
    opened_at_start: tuple[str, ...] = ()
    source_patience_seconds: float = 300.0


@dataclass(slots=True)
class Progress:
    """What a run has done so far.

    - `tables`: by target, the rows of each kind;
    - `rows_per_second`: of the last minute;
    - `quarantine`: the tables that are no longer followed; `newly_set_aside`: those of this run;
    - `not_read_again`: why tables could not be read again as requested;
    - `outage`: why the source cannot be reached now; None if it can.
    """

    checkpoint: int = 0
    rows: int = 0
    rows_left_out: int = 0
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    not_read_again: dict[str, str] = field(default_factory=dict)
    quarantine: tuple[SetAside, ...] = ()
    newly_set_aside: tuple[str, ...] = ()
    position: Position | None = None
    caught_up: bool = False
    rows_per_second: float = 0.0
    outage: Outage | None = None

    def count(self, target: str, batch: ChangeBatch) -> None:
        """Count the rows that are written to a target."""
        counts = np.bincount(batch.kinds.to_numpy(zero_copy_only=False), minlength=len(KIND_TEXTS))
        kinds = self.tables.setdefault(target, {})
        for kind, count in zip(KIND_TEXTS, counts.tolist(), strict=True):
            if count:
                kinds[kind] = kinds.get(kind, 0) + count

    def copied_tables(self) -> dict[str, dict[str, int]]:
        return {name: {**kinds} for name, kinds in self.tables.items()}

    def metrics(self, before: Mapping[str, Json], *, rows: int, **more: Json) -> dict[str, Json]:
        """What a checkpoint of some rows stores for users, after what the one before has stored."""
        earlier = before.get("rows_total")
        return {
            **more,
            "rows": rows,
            "rows_total": (earlier if isinstance(earlier, int) else 0) + rows,
            "rows_left_out": self.rows_left_out,
            "caught_up": self.caught_up,
            "tables": {**self.copied_tables()},
            "left_out": dict(self.left_out),
            "not_read_again": dict(self.not_read_again),
        }

    def leave_out(self, table: SourceTable, why: str, level: int) -> None:
        """Log and note why a table is not mirrored."""
        # The facts of a JSON line are the arguments of the message, so the reason is none.
        log.log(level, f"source table left out: {why}. table=%s", table)  # noqa: G004
        self.left_out[str(table)] = why

    def leave_new(self, table: SourceTable, *, resyncs: bool) -> None:
        """Log and note that a new table is not mirrored. `resyncs`: whether `resync` adds it."""
        self.leave_out(table, IS_NEW if resyncs else "it is new", logging.INFO)

    def not_read(self, table: SourceTable, reason: object, step: str) -> None:
        """Log and note why a table could not be read again, and what to do."""
        told = f"{reason}. Next step: {step}"
        log.error("table not read again. table=%s reason=%s", table, told)
        self.not_read_again[str(table)] = told

    def tells(
        self,
        stores: Callable[[Outage | None], None],
        reports: Callable[[Progress], None] | None,
    ) -> Callable[[Outage | None], None]:
        """A function that notes, stores and reports whether the source can be reached."""

        def tell(outage: Outage | None) -> None:
            self.outage = outage
            with suppress(LakecoreError):  # a note for the status is not worth the pipeline
                stores(outage)
            if outage is not None and reports is not None:
                reports(self)

        return tell

    def has_news(self, stored: Mapping[str, Json]) -> bool:
        """Whether the last checkpoint lacks something that a user should see at once."""
        return (stored.get("not_read_again") or {}) != self.not_read_again

    def restore(self, stored: Mapping[str, Json], followed: Collection[str]) -> None:
        """Continue with what an earlier run has stored: followed tables that still lack a read."""
        found = stored.get("not_read_again")
        if isinstance(found, dict):
            self.not_read_again |= {
                name: str(each) for name, each in found.items() if name in followed
            }

    def line(self, name: str) -> str:
        """One line about the run of the pipeline `name`."""
        state = "caught up" if self.caught_up else "catching up"
        if self.outage is not None:
            state = f"source not reachable since {self.outage.since}"
        return (
            f"{name}: checkpoint {self.checkpoint}, {self.rows} rows, "
            f"{self.rows_per_second:.0f} rows/s, {len(self.tables)} tables, {state}"
            + (f", {len(self.quarantine)} in quarantine" if self.quarantine else "")
        )


def bytes_after(
    measures: Callable[[Position], int | None] | None, position: Position | None
) -> int | None:
    """The bytes that a source has after a position; None if not known."""
    if measures is None or position is None:
        return None
    try:
        return measures(position)
    except LakecoreError:
        return None


_MINUTE_MS, _SECOND_MS = 60_000, 1000


class Recent:
    """The rows of the last minute: pairs of a time and the rows that were committed then."""

    def __init__(self, now_ms: int) -> None:
        self.pairs = [(now_ms, 0)]

    def add(self, now_ms: int, rows: int) -> None:
        """Count rows that are committed now."""
        time_ms, count = self.pairs[-1]
        if now_ms - time_ms < _SECOND_MS:
            self.pairs[-1] = time_ms, count + rows
        else:
            self.pairs.append((now_ms, rows))
        while len(self.pairs) > 1 and now_ms - self.pairs[1][0] >= _MINUTE_MS:
            self.pairs.pop(0)


def rate_of(pairs: Sequence[tuple[int, int]], now_ms: int) -> float:
    """Rows per second in the last minute, given the pairs of `Recent`."""
    if not pairs:
        return 0.0
    rows = sum(count for time_ms, count in pairs if now_ms - time_ms < _MINUTE_MS)
    return round(rows * 1000 / min(max(now_ms - pairs[0][0], _SECOND_MS), _MINUTE_MS), 1)


_ADDRESS = {"server", "user"}
"""The facts about a source that may change."""


def check_source(
    stored: Mapping[str, str], given: Mapping[str, str], directory: str, *, has_moved: bool
) -> None:
    """Raise InvalidRequest if the state in a directory belongs to another source.

    `has_moved`: whether the address or the user may have changed.
    """
    changed = {name for name, text in given.items() if stored.get(name) != text}
    if stored != given and not (has_moved and changed <= _ADDRESS):
        raise InvalidRequest(
            "the state of the pipeline is of another source: give this pipeline a name of its own, "
            "or remove the state. `--source-moved true` states that the same source has another "
            "address or user",
            state=directory,
            source_before=dict(stored),
            source=dict(given),
        )


IS_NEW = "it is new, and `lakecore cdc resync` adds it"
"""Why a table is left out that was created after the first start."""

UNKNOWN_TABLE = (
    "`lakecore cdc resync` with the name of a table that the source has. This message is gone from "
    "the status after the next start"
)
"""The next step for a requested table that neither the source nor the pipeline has."""


def next_step(pipeline: str, table: SourceTable, *, is_alone: bool, reads_again: bool) -> str:
    """What brings a table back that is set aside, or was not read again.

    `is_alone`: whether the target has no other table; `reads_again`: whether the source can read a
    table again.
    """
    if not reads_again:
        return "drop its target, and start a pipeline with another --name for the table"
    if not is_alone:
        return f"to read all its tables again, {START_AGAIN}"
    resync = f"lakecore cdc resync {quote(pipeline)} --tables {quote(str(table))}"
    return f"once the cause is solved, `{resync}`, with --warehouse and --state as the pipeline"


def no_table(source: Mapping[str, str]) -> InvalidRequest:
    """The error of a source without a table to follow."""
    return InvalidRequest(
        "the source has no table to follow. A table of a database needs a primary key, and the "
        "user SELECT on it; --mode combined waits for new tables",
        source=dict(source),
    )


def check_alone(target: str, tables: Collection[SourceTable]) -> None:
    """Raise InvalidRequest if a target has the rows of several source tables."""
    if len(tables) > 1:
        raise InvalidRequest(
            "the source removed rows of one of several tables of a target, so it is not known "
            "which rows are its own; `--truncate ignore` keeps rows that a statement removed",
            target=target,
            tables=[*map(str, sorted(tables))],
        )


def target_gone(target: str, tables: Iterable[SourceTable], state: str) -> InvalidRequest:
    """The error of a missing target for its source tables."""
    error = InvalidRequest(
        "the target table of a running pipeline is gone: `lakecore cdc resync` makes it again "
        f"for a table in quarantine; without quarantine, {START_AGAIN}",
        table=target,
        state=state,
    )
    concern(error, tables)
    return error


POSITION_PROPERTY = "lakecore.cdc.position"
_POSITION_BYTES_MAX = 4096
_HIDDEN = OF_ALL_TABLES - {"snapshot"}


def position_properties(position: Position) -> dict[str, str]:
    """The properties of a snapshot: the position, unless it is long."""
    place = {name: position[name] for name in position if name not in _HIDDEN}
    text = json.dumps(place, sort_keys=True)
    return {POSITION_PROPERTY: text} if len(text) <= _POSITION_BYTES_MAX else {}


# --- shaping -------------------------------------------------------------------------------------
# Converts changes with the columns of a source to changes with the columns of their target.
#
# A row is an error if a computed column refuses its values, or if the target cannot hold it. If
# dead letters are kept, the row becomes a dead letter instead, and all other rows are written.


def needed_changes(
    rules: Rules, target: str, schema: TableSchema, source: SourceTable, given: SourceSchema
) -> Sequence[Change]:
    """The schema changes that a target needs for rows of a source table.

    Raises InvalidRequest, naming source and target, if a change is not possible.
    """
    try:
        return rules.changes(schema, rules.shape(source, given))
    except InvalidRequest as error:
        raise InvalidRequest(
            error.message, source_table=str(source), target=target, **error.facts
        ) from error


def shaped(
    rules: Rules, target: str, batch: ChangeBatch, letters: DeadLetters | None
) -> Iterator[ChangeBatch]:
    """The batch with the columns of the target.

    A batch with a row that a computed column refuses is halved until the row is found.
    """
    try:
        yield rules.rows(batch)
    except InvalidRequest as error:
        if letters is None:
            raise
        if len(batch) == 1:
            letters.add(target, batch, [(0, str(error))])
            return
        middle = len(batch) // 2
        yield from shaped(rules, target, batch.slice(0, middle), letters)
        yield from shaped(rules, target, batch.slice(middle, len(batch)), letters)


def fitting(
    target: str, rows: TargetRows, batch: ChangeBatch, letters: DeadLetters | None
) -> ChangeBatch:
    """The batch without the rows that do not fit the target, which become dead letters.

    If no dead letters are kept, returns the batch unchanged.
    """
    if letters is None:
        return batch
    good, bad = rows.split(batch)
    if not bad:
        return batch
    letters.add(target, batch, bad)
    kept = pa.array(good, pa.int64())
    return replace(batch, rows=batch.rows.take(kept), kinds=batch.kinds.take(kept), order=None)


def does_not_fit(source: str, target: str, error: InvalidRequest) -> InvalidRequest:
    """The error for a row that the target refuses."""
    return InvalidRequest(
        "a change does not fit the target table. Change the table, or start the pipeline "
        "with dead letters to leave such rows out",
        source=source,
        target=target,
        cause=error,
    )


# --- shard order ---------------------------------------------------------------------------------
# Orders the batches of several source tables with one target by the order of the changes.
#
# A decoder collects the rows of each table, so a step does not keep the order of changes between
# tables. For tables that share a target, this order matters: a row may move from one table to
# another, as a deletion in the first and an insertion of the same key in the second.


def in_order(batches: Sequence[ChangeBatch], *, joins: bool = True) -> list[ChangeBatch]:
    """The rows of the batches in the order that the batches state.

    Batches that are in order already, or that state no order, are returned unchanged. `joins`:
    whether batches with equal columns are joined to one batch, whose table has all their names.
    Otherwise, a batch is split where rows of another table come in between.
    """
    orders = [
        each.order.to_numpy(zero_copy_only=False) for each in batches if each.order is not None
    ]
    if len(orders) < len(batches) or _is_sorted(orders):
        return list(batches)
    sorting = np.argsort(np.concatenate(orders), kind="stable")
    first = batches[0]
    if joins and all(each.rows.schema == first.rows.schema for each in batches):
        chosen = pa.array(sorting)
        names = dict.fromkeys(str(each.table) for each in batches)
        joined = pa.chunked_array([each.kinds for each in batches]).combine_chunks()
        return [
            replace(
                first,
                table=SourceTable("", ", ".join(names)),
                rows=pa.concat_tables([each.rows for each in batches]).take(chosen),
                kinds=joined.take(chosen),
                metadata=None,
                order=None,
            )
        ]
    owners = np.repeat(np.arange(len(batches)), [len(each) for each in batches])[sorting]
    done = [0] * len(batches)
    parts: list[ChangeBatch] = []
    for run in np.split(owners, np.flatnonzero(np.diff(owners)) + 1):
        number = int(run[0])
        start, stop = done[number], done[number] + len(run)
        parts.append(replace(batches[number].slice(start, stop), order=None))
        done[number] = stop
    return parts


def _is_sorted(orders: Sequence[npt.NDArray[np.int64]]) -> bool:
    whole = [each for each in orders if len(each)]
    return all(before[-1] <= after[0] for before, after in pairwise(whole))


# --- target rows ---------------------------------------------------------------------------------
# Converts the changes of one batch to the rows that are written to the target.
#
# A table without a primary key takes inserts only.
#
# A retraction (-U or -D) that carries only the key has nulls in the other columns. In a NOT NULL
# column, such a null becomes the zero of the type: data files cannot store the null, and no merge
# reads the value.

_KINDS = pa.array(KIND_TEXTS)
_RETRACTIONS = [int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE)]
_PAIR = 2


class TargetRows:
    """Converts changes to rows for a table under one schema."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def written(self, batch: ChangeBatch) -> pa.Table:
        """The rows to write: with `_row_kind`, and without retractions that change nothing."""
        kinds = batch.kinds.to_numpy(zero_copy_only=False)
        rows = self._named(batch)
        if self._needs_no_retraction():
            kept = ~_followed_by_same_key(rows, kinds, self._identity())
            if not kept.all():
                rows, kinds = rows.filter(pa.array(kept)), kinds[kept]
        return self._kinds_added(rows, kinds)

    def check_old_rows(self, given: SourceSchema) -> None:
        """Raise InvalidRequest if the target needs old rows that the source does not have."""
        names = target_names(self._context.schema.names, given.primary_key)
        by_key = set(self._identity()) <= set(names.values())
        if not given.has_old_rows and not (by_key and self._needs_no_retraction()):
            raise InvalidRequest(
                "the target needs the old row of a change, because of its keys, merge engine, "
                "sequence field or changelog producer, and the source has only its key. In "
                "PostgreSQL, run ALTER TABLE ... REPLICA IDENTITY FULL",
                target=self._context.identifier,
            )

    def split(self, batch: ChangeBatch) -> tuple[list[int], list[tuple[int, str]]]:
        """The numbers of the rows that fit, and of all others, each with the reason.

        A range with a row that does not fit is halved until the row is found.
        """
        context = self._context
        rule = KindRule(
            rowkind_field=None,
            keyed=bool(context.schema.primary_keys),
            ignore_delete=context.options.ignore_delete,
            ignore_update_before=context.options.ignore_update_before,
        )
        good: list[int] = []
        bad: list[tuple[int, str]] = []
        kinds = batch.kinds.to_numpy(zero_copy_only=False)
        rows = self._kinds_added(self._named(batch), kinds).combine_chunks()
        ranges = [(0, len(batch))] if len(batch) else []
        while ranges:
            start, stop = ranges.pop()
            try:
                for part in rows.slice(start, stop - start).to_batches():
                    conform(part, context.schema, first_row=start, kinds=rule)
            except InvalidRequest as error:
                if stop - start == 1:
                    bad.append((start, str(error)))
                else:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
            else:
                good.extend(range(start, stop))
        return good, bad

    def _named(self, batch: ChangeBatch) -> pa.Table:
        """The rows under the table's column names, with BOOLEANs where the table has them.

        A TINYINT of the source can be a BOOLEAN of the table.
        """
        names = target_names(self._context.schema.names, batch.rows.column_names)
        rows = batch.rows.rename_columns(list(names.values()))
        for name in (names[each] for each in batch.schema.may_be_flags):
            at = rows.schema.get_field_index(name)
            column = self._context.schema.by_name.get(name)
            if at >= 0 and column is not None and arrow_type(column.type) == pa.bool_():
                rows = rows.set_column(at, name, pc.not_equal(rows.column(at), 0))
        return rows

    def _identity(self) -> tuple[str, ...]:
        """The columns that identify the row that a change replaces: primary and partition keys."""
        schema = self._context.schema
        return tuple(dict.fromkeys((*schema.primary_keys, *schema.partition_keys)))

    def _kinds_added(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """The rows with the column `_row_kind`, unless all are insertions."""
        if not kinds.any():
            return rows
        texts = pa.DictionaryArray.from_arrays(pa.array(kinds), _KINDS).cast(pa.string())
        return self._filled(rows, kinds).append_column(ROW_KIND, texts)

    def _needs_no_retraction(self) -> bool:
        """Whether an update needs no retraction, because the new row replaces the whole old row."""
        options = self._context.options
        return (
            bool(self._context.schema.primary_keys)
            and options.merge_engine is MergeEngine.DEDUPLICATE
            and options.changelog_producer is not ChangelogProducer.INPUT
            and not options.sequence_field
        )

    def _filled(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """The rows with zeros in place of nulls in NOT NULL columns of retractions."""
        retracts = np.isin(kinds, _RETRACTIONS)
        if not retracts.any():
            return rows
        schema = self._context.schema
        for column in schema.fields:
            at = rows.schema.get_field_index(column.name)
            if column.nullable or column.name in schema.primary_keys or at < 0:
                continue
            if rows.column(at).null_count:
                zero = _zero(rows.schema.field(at).type)
                empty = pc.and_(rows.column(at).is_null(), pa.array(retracts))
                filled = pc.if_else(empty, zero, rows.column(at))
                rows = rows.set_column(at, rows.schema.field(at), filled)
        return rows


def _followed_by_same_key(
    rows: pa.Table, kinds: npt.NDArray[np.int8], key: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """A mask of the retractions that are followed directly by an insertion of the same key."""
    count = rows.num_rows
    found = np.zeros(count, np.bool_)
    if count < _PAIR or not set(key) <= set(rows.column_names):
        return found
    retracts = np.isin(kinds, _RETRACTIONS)
    same = retracts[:-1] & ~retracts[1:]
    for name in key:
        if not same.any():
            break
        column = rows.column(name).combine_chunks()
        equal = pc.equal(column[:-1], column[1:]).fill_null(False)
        same &= equal.to_numpy(zero_copy_only=False)
    found[:-1] = same
    return found


def _zero(data_type: pa.DataType) -> pa.Scalar:
    """The zero of the type, for values that no merge reads."""
    if pa.types.is_nested(data_type):
        return pa.scalar({} if pa.types.is_struct(data_type) else [], data_type)
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar("", pa.string()).cast(data_type)
    if pa.types.is_fixed_size_binary(data_type):
        return pa.scalar(bytes(data_type.byte_width), data_type)
    if pa.types.is_date(data_type):
        return pa.scalar(0, pa.int32()).cast(data_type)
    return pa.scalar(0, pa.int64()).cast(data_type)


# --- target table --------------------------------------------------------------------------------


class TargetTable:
    """A table that a pipeline writes.

    `write` buffers rows; `prepare`, then `commit`, publish them.
    """

    def __init__(self, catalog: Catalog, identifier: str, commit_user: str) -> None:
        self.identifier = identifier
        self._catalog = catalog
        self._user = commit_user
        self._table = catalog.get_table(identifier)
        self.rows = TargetRows(self._table.context)
        self._writer: StreamWrite | None = None
        self.rows_pending = 0

    @property
    def table(self) -> Table:
        """The table, with the schema of the rows that are written."""
        return self._table

    @property
    def forces_snapshot(self) -> bool:
        """Whether a checkpoint without rows makes an empty snapshot."""
        return self._table.context.options.commit_force_create_snapshot

    def change(self, changes: Sequence[Change]) -> None:
        """Change the schema. No rows may be pending."""
        assert not self.rows_pending, "rows of the schema before are not committed"
        self.close()
        self._catalog.alter_table(self.identifier, list(changes))
        self._table = self._catalog.get_table(self.identifier)
        self.rows = TargetRows(self._table.context)

    def write(self, batch: ChangeBatch) -> int:
        """Buffer the changes of a batch and return their number.

        Raises InvalidRequest, naming column, value and row, for a row that does not fit, after
        which every row since the last checkpoint is dropped.
        """
        rows = self.rows.written(batch)
        if not rows.num_rows:
            return 0
        self.rows_pending += rows.num_rows
        return self._opened().write(rows)

    def names_of_key(self, key: Sequence[str]) -> Mapping[str, str]:
        """The target's name of each column of the source's key.

        Raises InvalidRequest if the table has another key, or does not replace whole rows.
        """
        context = self._table.context
        names = target_names(context.schema.names, key)
        options = context.options
        whole = options.merge_engine is MergeEngine.DEDUPLICATE and not options.ignore_delete
        same = set(context.schema.primary_keys) == set(names.values())
        if not same or not whole or options.bucket == POSTPONE_BUCKET:
            raise InvalidRequest(
                "the source removed rows that the target cannot find: it has another key, or "
                "options by which a deletion does not remove a whole row; `--truncate ignore` "
                "keeps rows that a statement removed",
                table=self.identifier,
            )
        return names

    def remove_others(self, cleared: Cleared) -> int:
        """Delete the committed rows that the source lacks; return the number of deleted rows.

        Raises InvalidRequest if the table has another key, or does not replace whole rows.
        """
        keys = cleared.keys
        names = self.names_of_key(keys.column_names)
        first = pl.col(names[keys.column_names[0]])
        bounds = [] if cleared.start is None else [first >= cleared.start]
        bounds += [] if cleared.stop is None else [first < cleared.stop]
        where = reduce(and_, bounds) if bounds else None
        own = list(self._table.context.schema.primary_keys)
        places = [str(number) for number in range(len(own))]
        kept = keys.rename_columns(list(names.values())).select(own).rename_columns(places)
        have = self._table.to_batches(own, where).read_all().rename_columns(places)
        gone = have.join(self._as_keys(kept, have.schema), places, join_type="left anti")
        if not gone.num_rows:
            return 0
        for batch in self._table.to_batches(where=where):
            rows = pa.Table.from_batches([batch])
            numbered = rows.select(own).rename_columns(places)
            numbered = numbered.append_column("at", pa.array(range(len(batch)), pa.int64()))
            rows = rows.take(numbered.join(gone, places, join_type="left semi").column("at"))
            if rows.num_rows:
                kinds = pa.repeat(pa.scalar("-D"), rows.num_rows)
                self._opened().write(rows.append_column(ROW_KIND, kinds))
                self.rows_pending += rows.num_rows
        return len(gone)

    def _as_keys(self, keys: pa.Table, schema: pa.Schema) -> pa.Table:
        try:
            return keys.cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequest(
                "the key of the source has another type than the key of the target: drop the "
                "target",
                table=self.identifier,
                cause=error,
            ) from error

    def prepare(self, checkpoint: int) -> tuple[CommitMessage, ...]:
        """Write the pending rows to files that no reader sees yet."""
        if not self.rows_pending and not self.forces_snapshot:
            return ()
        messages = tuple(self._opened().prepare_commit(checkpoint))
        self.rows_pending = 0
        return messages

    def commit(self, checkpoint: int, properties: Mapping[str, str]) -> None:
        self._opened().commit(checkpoint, properties=properties)

    def recover(self, checkpoint: int, messages: Sequence[CommitMessage]) -> None:
        """Commit the files that an earlier process prepared, unless they are committed already."""
        self._opened().recover({checkpoint: list(messages)})

    def close(self) -> None:
        """Drop rows that are not prepared, and end the writer."""
        self.rows_pending = 0
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _opened(self) -> StreamWrite:
        if self._writer is None:
            self._writer = self._table.new_stream_write(self._user)
        return self._writer
