"""The PostgreSQL source: a snapshot of the tables, then the changes that a replication slot keeps.

1. A publication names the tables, and a slot keeps the changes since its creation. Both are created
   if absent.
2. A new slot exports a snapshot of the database at its start. The tables are read in this snapshot,
   so no change is lost or applied twice. After a crash within the snapshot, the remaining tables
   are read in a new snapshot. The slot repeats the changes between the two snapshots, which is
   idempotent.
3. Transactions are collected until there are many rows, or the server is idle. A very large
   transaction is split into several steps. The position of such a step is the start of the
   transaction, its number, and the count of its changes that are done: after a restart, the server
   sends the changes again in the same order.
4. When the sink has committed a position, the server may discard earlier changes.
5. A table that is found later, or that a user wants to be read again, is read in a snapshot of its
   own. The position then has the `Mark` of that snapshot: changes that the snapshot shows are left
   out.

A table needs the replica identity FULL, or DEFAULT and a primary key if the target replaces whole
rows by this key. With DEFAULT, an update omits unchanged large values, which are then read from the
table. The row may be newer than its change; the changes that follow correct this.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from select import select
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.actions import (
    SERVER_FLAGS,
    SERVER_TABLE_FLAGS,
    Action,
    Arguments,
    Opened,
    check_metadata,
    refuse_table_name,
    routing_of,
    rules_of,
    unfindable,
)
from lakecore.cdc.events import (
    Altered,
    ChangeBatch,
    Cleared,
    Position,
    SourceSchema,
    SourceTable,
    Step,
)
from lakecore.cdc.postgres.altered import (
    Announced,
    altered_tables,
    announced,
    read_identities,
)
from lakecore.cdc.postgres.checks import (
    check_grant,
    check_publication,
    check_schemas,
    check_server,
    check_slot,
    open_slot,
    server_notes,
)
from lakecore.cdc.postgres.connection import (
    Connection,
    Cursor,
    PostgresColumn,
    PostgresSettings,
    StartupMode,
    add_table,
    connect,
    create_publication,
    files_of,
    locked_error,
    plain_postgres_errors,
    quoted,
    quoted_table,
    read_columns,
    read_tables,
    source_schema,
    type_names,
    unpublished,
)
from lakecore.cdc.postgres.stream_rows import (
    UNSENT,
    Begin,
    Change,
    End,
    Mark,
    Relation,
    StreamPlace,
    StreamRows,
    StreamTable,
    Truncation,
    batch_of,
    parse,
)
from lakecore.cdc.quarantine import Collected, concern, of_tables
from lakecore.cdc.resync import range_column, range_condition, range_stop
from lakecore.errors import InvalidRequest, NotFound, StorageError
from lakecore.model.arrow_arrays import rows_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.errors import LakecoreError
    from lakecore.io.ambient import Ambient
    from lakecore.model.types import Json


# --- source --------------------------------------------------------------------------------------

_PART_ROWS_FIRST, _PART_ROWS_MAX, _PART_BYTES = 100, 50_000, 16 << 20
_STEP_ROWS, _STEP_BYTES = 20_000, 16 << 20
_STEP_MS = 500
_TRANSACTION_ROWS, _TRANSACTION_BYTES = 200_000, 64 << 20
_LOOK_MS = 10_000
_IDLE_SECONDS = 0.5
_FEEDBACK_MS = 5_000
_LOG_END = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"


def _take_all(table: SourceTable) -> bool:
    del table
    return True


class PostgresSource:
    """The tables of one database, selected by the settings, as a source.

    - `accepts`: selects the tables to read;
    - `needs_key`: whether tables without a primary key are left out.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        ambient: Ambient,
        accepts: Callable[[SourceTable], bool] = _take_all,
        *,
        needs_key: bool = False,
    ) -> None:
        self._settings = settings
        self._ambient = ambient
        self._accepts = accepts
        self._needs_key = needs_key
        self.left_out = frozenset[SourceTable]()
        self._keyless = set[SourceTable]()
        self._stored: int | None = None
        self._stream: Connection | None = None
        self._committed = 0

    def describe(self) -> Mapping[str, str]:
        settings = self._settings
        return {
            "kind": "postgres",
            "server": f"{settings.hostname}:{settings.port}",
            "user": settings.username,
            "database": settings.database,
            "tables": f"{settings.schemas}.{settings.tables}",
            "slot": settings.slot,
        }

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        """The tables that the settings name, with their current columns.

        Raises InvalidRequest for a table with an insufficient replica identity.
        """
        connection = connect(self._settings)
        try:
            with self._errors():
                cursor = connection.cursor()
                found = {each.table: each.schema for each in self._tables(cursor)}
        finally:
            connection.close()
        if not found and not self.left_out and not self._needs_key:
            raise InvalidRequest(
                "no table of the database has such a name",
                schemas=self._settings.schemas,
                tables=self._settings.tables,
            )
        return found

    def resume(self, position: Position) -> None:
        """Keep the position, whose changes the slot must still have."""
        self._stored = StreamPlace.from_json(position).lsn

    def problems(self) -> Sequence[LakecoreError]:
        """What the server lacks: settings, schemas, grants, the slot with the stored position."""
        settings, collected = self._settings, Collected()
        connection = connect(settings)
        try:
            with self._errors():
                cursor = connection.cursor()
                with collected.of():
                    check_server(cursor, settings)
                with collected.of():
                    if self._stored is None:
                        check_schemas(cursor, settings)
                with collected.of():
                    check_slot(cursor, settings, self._stored, may_run=True)
                for name, error in check_publication(cursor, settings, needs_key=self._needs_key):
                    tables = [] if name is None else [SourceTable(settings.database, name)]
                    if all(map(self._is_read, tables)):
                        concern(error, tables)
                        collected.errors.append(error)
        finally:
            connection.close()
        return collected.errors

    def committed(self, position: Position) -> None:
        """Let the server discard the changes before the position."""
        if position.get("snapshot") is None:
            self._committed = int(str(position["lsn"]))

    @property
    def mapping(self) -> TypeMapping:
        return self._settings.mapping

    def notes(self) -> list[str]:
        connection = connect(self._settings)
        try:
            return server_notes(connection.cursor(), self._settings)
        finally:
            connection.close()

    def bytes_after(self, position: Position) -> int | None:
        connection = connect(self._settings)
        try:
            with self._errors():
                now = _number(connection.cursor(), _LOG_END)
        finally:
            connection.close()
        return max(now - int(str(position["lsn"])), 0)

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        """Read no more rows of these tables."""
        self.left_out = frozenset(tables)

    def steps(self, after: Position | None) -> Iterator[Step]:
        """The changes after a position; see `Source`. In the mode `snapshot`, the iterator ends."""
        stored = None if after is None else StreamPlace.from_json(after)
        connection = connect(self._settings)
        try:
            with self._errors():
                cursor = connection.cursor()
                tables = self._followed(cursor)
                create_publication(cursor, self._settings, [each.table.name for each in tables])
                unread = self._publish(cursor, tables, is_read=not self.can_read_again(after))
                self._stream = connect(self._settings, replicates=True)
                files = {}
                if not self.can_read_again(after):
                    files = {each.table: files_of(cursor, each.table.name) for each in tables}
                begin = None if stored is None else stored.lsn
                lsn, exported = open_slot(cursor, self._stream, self._settings, begin)
                goal = _number(cursor, _LOG_END)
                done: list[str] | None = []
                place = StreamPlace(lsn) if stored is None else stored
                altered = self._altered(cursor, place, tables)
                if after is not None:
                    lsn = place.lsn
                    stated = after.get("snapshot")
                    done = [str(each) for each in stated] if isinstance(stated, list) else None
                elif self._settings.mode is StartupMode.LATEST:
                    done = None
                if done is not None:
                    yield from self._snapshot(connection, tables, place, exported, done, files)
                    if self._settings.mode is StartupMode.SNAPSHOT:
                        return
            if unread or altered:
                yield Step(position=place.to_json(), unread=unread, altered=altered)
            yield from self._follow(connection.cursor(), place, goal)
        finally:
            connection.close()
            self.close()

    def can_read_again(self, after: Position | None) -> bool:
        """Whether the first snapshot is done."""
        return after is not None and not isinstance(after.get("snapshot"), list)

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        """The rows of the next range of a table in one snapshot; see `ReadsAgain`.

        After the first range, the position has the mark of its snapshot, whose changes are later
        left out.
        """
        place = StreamPlace.from_json(after)
        connection = connect(self._settings)
        try:
            with of_tables(table), self._errors():
                cursor = connection.cursor()
                # Before the columns: the next look notices what changes in between.
                identities = read_identities(cursor, [table.name])
                tables = self._tables(cursor, {table})
                if not tables:
                    raise NotFound("the source has no such table", table=str(table))
                (found,) = tables
                empty = self._batch(found)
                yield Step(batches=(empty,), position=after)
                if start is None and unpublished(cursor, self._settings, [table.name]):
                    add_table(cursor, self._settings, table.name, is_read=True)
                within, stop = "", None
                if (column := range_column(found.schema)) is not None:
                    at = quoted(column)
                    stop = range_stop(cursor, quoted_table(table.name), at, start)
                    within = range_condition(at, start, stop)
                keys = [empty.rows.select(found.schema.primary_key)]
                cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                # Before the snapshot: no statement hides the rows from it (`files_of`).
                cursor.execute(f"LOCK TABLE {quoted_table(table.name)} IN ACCESS SHARE MODE")
                files = files_of(cursor, table.name)
                if start is None:
                    place.marks[table.name] = _mark(cursor)
                    place.columns = {**place.columns, **identities}
                for batch in self._rows(cursor, found, "rows_again", files, within):
                    yield Step(batches=(batch,), position=after)
                    keys.append(batch.rows.select(found.schema.primary_key))
                cursor.execute("COMMIT")
        finally:
            connection.close()
        cleared = Cleared(table=table, keys=pa.concat_tables(keys), start=start, stop=stop)
        yield Step(cleared=cleared, position=place.to_json())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # --- the start --------------------------------------------------------------------------------

    def _errors(self) -> AbstractContextManager[None]:
        return plain_postgres_errors(self._settings, "the database cannot be read")

    def _tables(
        self, cursor: Cursor, only: Collection[SourceTable] | None = None
    ) -> list[StreamTable]:
        """The tables to read, with and without a key; `only`: the names of some tables."""
        found = []
        collected = Collected()
        for (schema, name), (identity, comment) in read_tables(cursor, self._settings).items():
            table = SourceTable(self._settings.database, f"{schema}.{name}")
            if table in only if only is not None else self._is_read(table):
                columns, key = read_columns(cursor, schema, name)
                with collected.of(table):
                    check_grant(cursor, table.name, self._settings.username)
                    found.append(self._table(table, columns, key, comment, identity))
        collected.check()
        return found

    def _table(
        self,
        table: SourceTable,
        columns: tuple[PostgresColumn, ...],
        key: tuple[str, ...],
        comment: str | None,
        identity: str,
        *,
        states_key: bool = True,
    ) -> StreamTable:
        is_left_out = self._needs_key and states_key and not key
        by_key = identity == "d" and (key or not states_key)
        (self._keyless.add if is_left_out else self._keyless.discard)(table)
        with of_tables(table):
            if identity != "f" and not by_key and not is_left_out:
                raise InvalidRequest(
                    "the log of the table does not name changed rows: run ALTER TABLE ... REPLICA "
                    "IDENTITY FULL. The identity DEFAULT is enough for a table with a primary key",
                    table=table.name,
                )
            schema = source_schema(
                table,
                columns,
                key,
                comment,
                self._settings.mapping,
                identity=identity,
                states_key=states_key,
            )
        kept = [number for number, each in enumerate(columns) if each.name in schema.names]
        return StreamTable(table, schema, tuple(columns[each] for each in kept), kept)

    def _is_read(self, table: SourceTable) -> bool:
        return table not in self.left_out and self._accepts(table)

    def _followed(
        self, cursor: Cursor, only: Collection[SourceTable] | None = None
    ) -> list[StreamTable]:
        """The tables to read; if a key is needed, without tables that have none."""
        found = self._tables(cursor, only)
        return [each for each in found if each.schema.primary_key or not self._needs_key]

    def _publish(
        self, cursor: Cursor, tables: Sequence[StreamTable], *, is_read: bool
    ) -> tuple[SourceTable, ...]:
        """Add tables to the publication. Returns the tables with rows that must be read first.

        `is_read`: whether the rows of all tables are read afterwards.
        """
        unread = []
        missing = unpublished(cursor, self._settings, [each.table.name for each in tables])
        for table in (each.table for each in tables if each.table.name in missing):
            try:
                with of_tables(table), self._errors():
                    if not add_table(cursor, self._settings, table.name, is_read=is_read):
                        unread.append(table)
            except StorageError as error:
                if is_read or not isinstance(error.__cause__, locked_error()):
                    raise
                # A long transaction writes to the table. The next call tries again.
                cursor.execute("ROLLBACK")
        return tuple(unread)

    # --- the snapshot -----------------------------------------------------------------------------

    def _snapshot(
        self,
        connection: Connection,
        tables: Sequence[StreamTable],
        place: StreamPlace,
        exported: str | None,
        done: list[str],
        files: Mapping[SourceTable, str],
    ) -> Iterator[Step]:
        """The rows of the tables that are not done, all from one state of the database.

        `files`: the files of the tables before that state.
        """

        def position() -> dict[str, Json]:
            return {**place.to_json(), "snapshot": [*done]}

        cursor = connection.cursor()
        cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if exported is not None:
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (exported,))
        for number, table in enumerate(tables):
            if table.table.name in done:
                continue
            with of_tables(table.table), self._errors():
                for batch in self._rows(cursor, table, f"rows_{number}", files[table.table]):
                    yield Step(batches=(batch,), position=position())
            done.append(table.table.name)
            yield Step(position=position())
        cursor.execute("COMMIT")

    def _rows(
        self, cursor: Cursor, table: StreamTable, name: str, files: str, within: str = ""
    ) -> Iterator[ChangeBatch]:
        """The rows of a table that the transaction of the cursor sees; large rows fit in memory.

        `files`: the files of the table before the transaction; `within`: a WHERE clause. Raises
        StorageError if the transaction no longer sees the rows: another snapshot is needed.
        """
        listed = ", ".join(each.selected for each in table.columns)
        cursor.execute(
            f"DECLARE {name} NO SCROLL CURSOR FOR SELECT {listed} "
            f"FROM {quoted_table(table.table.name)}{within}"
        )
        if files_of(cursor, table.table.name) != files:
            raise StorageError(
                "a statement wrote the files of a table again while it was read",
                table=str(table.table),
            )
        count = _PART_ROWS_FIRST
        while True:
            cursor.execute(f"FETCH {count} FROM {name}")
            rows = cursor.fetchall()
            if not rows:
                break
            table.rows = [tuple(map(_text, row)) for row in rows]
            table.kinds, table.times = bytearray(len(rows)), [0] * len(rows)
            batch = self._batch(table)
            count = rows_within(batch.rows, _PART_ROWS_MAX, _PART_BYTES)
            yield batch
        cursor.execute(f"CLOSE {name}")

    # --- the changes ------------------------------------------------------------------------------

    def _follow(  # noqa: C901 - a case for each kind of message
        self, cursor: Cursor, place: StreamPlace, goal: int
    ) -> Iterator[Step]:
        """Steps of the stream; the iterator never ends."""
        assert self._stream is not None, "the slot is open"
        stream = self._stream.cursor()
        self._committed = place.lsn
        with self._errors():
            stream.start_replication(
                slot_name=self._settings.slot,
                start_lsn=place.lsn,
                decode=False,
                options={"proto_version": "1", "publication_names": self._settings.publication},
            )
            fill = partial(self._fill, cursor)
            rows = StreamRows(fill, takes_metadata=self._settings.takes_metadata)
            seen: list[Announced] = []
            begun_ms = said_ms = looked_ms = self._ambient.now_ms()
            while True:
                message = stream.read_message()
                now_ms = self._ambient.now_ms()
                if now_ms - said_ms >= _FEEDBACK_MS:
                    stream.send_feedback(flush_lsn=self._committed, reply=True)
                    said_ms = now_ms
                if place.transaction is None and (seen or now_ms - looked_ms >= _LOOK_MS):
                    yield from self._look(cursor, rows, place, goal, seen)
                    seen, looked_ms = [], now_ms
                if message is None:
                    if not place.is_open:
                        if place.transaction is None:
                            place.reach(int(str(getattr(stream, "wal_end", 0))))
                        yield self._step(rows, place, goal)
                        begun_ms = self._ambient.now_ms()
                    select([self._stream], [], [], _IDLE_SECONDS)
                    continue
                ends = False
                match self._parsed(message.payload, rows):
                    case Begin() as begin:
                        place.begin(begin)
                    case Relation() as relation:
                        # A batch has one schema; later rows may have another.
                        rows.relations[relation.id] = table = self._relation(cursor, relation)
                        seen += announced(cursor, place, relation, table)
                    case Change() as change:
                        if place.counts():
                            self._add(change, rows, place, len(message.payload))
                        ends = rows.count >= _TRANSACTION_ROWS or rows.size >= _TRANSACTION_BYTES
                    case Truncation() as truncation:
                        if place.counts():
                            yield from self._truncated(truncation, rows, place, goal)
                            place.take()
                    case End() as end:
                        place.end(end)
                        large = rows.count >= _STEP_ROWS or rows.size >= _STEP_BYTES
                        # Without a look, the source has not caught up.
                        ends = not seen and (large or now_ms - begun_ms >= _STEP_MS)
                if ends:
                    yield self._step(rows, place, goal)
                    begun_ms = self._ambient.now_ms()

    def _look(
        self,
        cursor: Cursor,
        rows: StreamRows,
        place: StreamPlace,
        goal: int,
        seen: Sequence[Announced],
    ) -> Iterator[Step]:
        """Add new tables to the publication; state the tables that are unread, or were altered.

        A table that had no key, and has one now, is unread.
        """
        altered = self._altered(cursor, place, (), seen)
        listed = [".".join(each) for each in read_tables(cursor, self._settings)]
        missing = unpublished(cursor, self._settings, listed)
        late = {each for each in self._keyless if each.name in listed}
        found = {SourceTable(self._settings.database, each) for each in missing} | late
        found = {each for each in found if self._is_read(each)}
        unread = set[SourceTable]()
        if found:
            tables = self._followed(cursor, found)
            unread |= {each.table for each in tables if each.table in late}
            unread.update(self._publish(cursor, tables, is_read=False))
        if unread or altered:
            yield replace(self._step(rows, place, goal), unread=(*unread,), altered=altered)

    def _altered(
        self,
        cursor: Cursor,
        place: StreamPlace,
        tables: Sequence[StreamTable],
        seen: Sequence[Announced] = (),
    ) -> tuple[Altered, ...]:
        """The tables whose columns, or their types, have changed since the last look."""
        found = altered_tables(cursor, self._settings, place, tables, seen)
        return tuple(each for each in found if self._is_read(each.table))

    @staticmethod
    def _parsed(
        data: bytes, rows: StreamRows
    ) -> Relation | Change | Truncation | Begin | End | None:
        """The message. Values of a row that no table takes are not parsed."""
        if data[:1] not in {b"I", b"U", b"D"}:
            return parse(data)
        relation = int.from_bytes(data[1:5], "big")
        table = rows.relations[relation]
        if table is None:
            return Change(relation, None, None)
        with of_tables(table.table):
            return parse(data)

    @staticmethod
    def _add(change: Change, rows: StreamRows, place: StreamPlace, size: int) -> None:
        place.take()
        table = rows.relations[change.relation]
        if table is not None and not place.has_read(table.table):
            rows.add(table, change, place.time_ms, size)

    def _truncated(
        self, truncation: Truncation, rows: StreamRows, place: StreamPlace, goal: int
    ) -> Iterator[Step]:
        """The changes before a statement that removed all rows of tables, and these tables."""
        for table in (rows.relations[each] for each in truncation.relations):
            if table is None or place.has_read(table.table):
                continue
            with of_tables(table.table):
                if not self._settings.on_truncate.follows([table.table]):
                    continue
                if not table.schema.primary_key:
                    raise unfindable(table.table)
            yield self._step(rows, place, goal)
            none = table.schema.arrow.empty_table().select(table.schema.primary_key)
            yield Step(cleared=Cleared(table=table.table, keys=none), position=place.to_json())

    def _fill(self, cursor: Cursor, table: StreamTable) -> None:
        """Read large values that the stream omits; leave out rows that are gone.

        A later change of the stream removes such a row, or moves it to another key.
        """
        if not any(UNSENT in row for row in table.rows):
            return
        names = [each.name for each in table.columns]
        at = [names.index(name) for name in table.schema.primary_key]
        omitted = sorted({n for row in table.rows for n, v in enumerate(row) if v == UNSENT})
        wanted = dict.fromkeys(tuple(row[n] for n in at) for row in table.rows if UNSENT in row)
        key = ", ".join(quoted(names[n]) for n in at)
        listed = ", ".join(table.columns[n].selected for n in (*at, *omitted))

        def spelt(values: Sequence[object]) -> tuple[str, ...]:
            chars = [table.columns[n].type == "bpchar" for n in at]
            texts = zip(map(str, values), chars, strict=True)
            return tuple(text.rstrip(" ") if is_char else text for text, is_char in texts)

        with self._errors():
            cursor.execute(
                f"SELECT {listed} FROM {quoted_table(table.table.name)} WHERE ({key}) IN %s",
                (tuple(each if len(at) > 1 else each[0] for each in wanted),),
            )
            there = {spelt(row[: len(at)]): row[len(at) :] for row in cursor.fetchall()}
        kept = []
        for number, row in enumerate(table.rows):
            now = there.get(spelt([row[n] for n in at]))
            if UNSENT in row and now is None:
                continue
            values = dict(zip(omitted, now or (), strict=False))
            whole = (values[n] if text == UNSENT else text for n, text in enumerate(row))
            table.rows[number] = tuple(map(_text, whole))
            kept.append(number)
        table.rows = [table.rows[n] for n in kept]
        table.kinds = bytearray(table.kinds[n] for n in kept)
        table.times = [table.times[n] for n in kept]

    def _batch(self, table: StreamTable) -> ChangeBatch:
        return batch_of(table, takes_metadata=self._settings.takes_metadata)

    def _step(self, rows: StreamRows, place: StreamPlace, goal: int) -> Step:
        ended = place.transaction is None
        return Step(
            batches=rows.take(),
            position=place.to_json(),
            caught_up=ended and place.lsn >= goal,
        )

    def _relation(self, cursor: Cursor, relation: Relation) -> StreamTable | None:
        """The table with the columns that the stream announces for the following rows."""
        table = SourceTable(self._settings.database, f"{relation.schema}.{relation.table}")
        takes = self._settings.takes(relation.schema, relation.table)
        if not takes or not self._is_read(table):
            return None
        now, key = read_columns(cursor, relation.schema, relation.table)
        known = {each.name: each for each in now}
        types = type_names(cursor, [oid for _, oid, _ in relation.columns])
        columns = tuple(
            PostgresColumn(
                name=name,
                type=types[oid],
                modifier=modifier,
                nullable=known[name].nullable if name in known else True,
                comment=known[name].comment if name in known else None,
            )
            for name, oid, modifier in relation.columns
        )
        here = tuple(name for name in key if name in {each.name for each in columns})
        comment = read_tables(cursor, self._settings).get(
            (relation.schema, relation.table), ("f", None)
        )[1]
        # A table that was dropped meanwhile no longer states its key.
        return self._table(table, columns, here, comment, relation.identity, states_key=bool(now))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(cursor: Cursor, query: str) -> int:
    cursor.execute(query)
    row = cursor.fetchone()
    return 0 if row is None else int(str(row[0]))


def _mark(cursor: Cursor) -> Mark:
    """The mark of the snapshot that the transaction of a cursor reads."""
    cursor.execute("SELECT pg_current_snapshot()::text")
    row = cursor.fetchone()
    assert row is not None, "a function returns a row"
    least, following, running = str(row[0]).split(":")
    return Mark(
        least=int(least),
        next=int(following),
        running=tuple(map(int, filter(None, running.split(",")))),
        lsn=_number(cursor, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"),
    )


# --- actions -------------------------------------------------------------------------------------
# The action `postgres_sync_table` of Paimon, and `postgres_sync_database`, which Paimon lacks.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/postgres-cdc/

_METADATA = ("database_name", "schema_name", "table_name", "op_ts")


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes all tables named by the options to one target."""
    if "table-name" not in arguments.conf:
        raise InvalidRequest("postgres_conf needs these options", missing=["table-name"])
    settings = _settings(arguments)
    target = f"{arguments.database}.{arguments.table}"

    def route(table: SourceTable) -> str | None:
        schema, _, name = table.name.partition(".")
        return target if settings.takes(schema, name) else None

    source = PostgresSource(settings, ambient)
    return Opened(source, rules_of(arguments, route, ambient), follows_new_tables=True)


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes each table of some schemas to a target of its own.

    Tables without a primary key are left out. Targets are named after the table alone if
    `schema-name` names one schema, or with `--merge_shards true`.
    """
    refuse_table_name(arguments)
    settings = _settings(arguments)
    is_one = re.fullmatch(r"\w+", settings.schemas) is not None
    routing = replace(
        routing_of(arguments), merge_shards=arguments.flag("merge_shards", default=is_one)
    )

    def of(table: SourceTable) -> SourceTable:
        return SourceTable(*table.name.split(".", 1))

    def route(table: SourceTable) -> str | None:
        return routing.target(of(table)) if settings.takes(*table.name.split(".", 1)) else None

    eager = arguments.flag("eager_init", default=False)
    accepts = lambda table: routing.includes(of(table))  # noqa: E731
    return Opened(
        PostgresSource(settings, ambient, accepts, needs_key=True),
        rules_of(arguments, route, ambient, falls_back=True),
        follows_new_tables=True,
        needs_key=True,
        opens_at_start=routing.may_be_target if eager else None,
        ignores_incompatible=arguments.flag("ignore_incompatible", default=False),
    )


def _settings(arguments: Arguments) -> PostgresSettings:
    check_metadata(arguments, _METADATA)
    return PostgresSettings.parse(
        arguments.conf,
        arguments.mapping,
        metadata=bool(arguments.metadata),
        truncate=arguments.on_truncate,
    )


POSTGRES_ACTIONS = {
    "postgres_sync_table": Action(
        conf="postgres_conf", takes_table=True, opens=_sync_table, flags=SERVER_TABLE_FLAGS
    ),
    "postgres_sync_database": Action(
        conf="postgres_conf",
        takes_table=False,
        opens=_sync_database,
        flags=SERVER_FLAGS,
    ),
}
