"""The PostgreSQL source: a snapshot of the tables, then the changes that a replication slot keeps.

1. A publication names the tables, and a slot keeps the changes since its creation. Both are created
   if absent.
2. A new slot exports a snapshot of the database at its start. The tables are read in this snapshot,
   so no change is lost or applied twice. After a crash within the snapshot, the remaining tables
   are read in a new snapshot. The slot repeats the changes between the two snapshots; applying them
   again gives the same rows.
3. Transactions are collected until there are many rows, or the server is idle. A very large
   transaction is split into several steps. The position of such a step is the start of the
   transaction, its number, and the count of its changes that are done: after a restart, the server
   sends the changes again in the same order.
4. When the sink has committed a position, the server may discard earlier changes.

The tables need the replica identity FULL: otherwise an update omits unchanged large values, and a
deletion has only the key.
"""

from __future__ import annotations

from select import select
from typing import TYPE_CHECKING

from lakecore.cdc.actions import Action, Arguments, Opened, check_metadata, rules_of
from lakecore.cdc.events import SourceTable, Step
from lakecore.cdc.postgres.connection import (
    PostgresColumn,
    PostgresSettings,
    StartupMode,
    connect,
    locked_error,
    plain_postgres_errors,
    read_columns,
    read_tables,
    source_schema,
    type_names,
)
from lakecore.cdc.postgres.stream_rows import (
    Begin,
    Change,
    End,
    Relation,
    StreamPlace,
    StreamRows,
    StreamTable,
    batch_of,
    parse,
)
from lakecore.errors import InvalidRequest
from lakecore.model.arrow_arrays import rows_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakecore.cdc.events import ChangeBatch, Position, SourceSchema
    from lakecore.cdc.postgres.connection import Connection, Cursor
    from lakecore.io.ambient import Ambient
    from lakecore.model.types import Json


# --- slots ---------------------------------------------------------------------------------------
# The publication and the replication slot of a pipeline; both are created if absent.

_LOCK_MS = 2_000


def publish(
    cursor: Cursor, settings: PostgresSettings, tables: Sequence[str], *, continues: bool = False
) -> None:
    """Create the publication, or add missing tables to it.

    With `continues`, the pipeline has finished its snapshot. Raises InvalidRequest if a new table
    has rows already: the slot does not hold the changes that inserted them.
    """
    name = quoted(settings.publication)
    listed = {each: quoted_table(each) for each in tables}
    cursor.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (settings.publication,))
    if cursor.fetchone() is None:
        cursor.execute(
            f"CREATE PUBLICATION {name} FOR TABLE {', '.join(listed.values())} "
            "WITH (publish = 'insert, update, delete', publish_via_partition_root = true)"
        )
        return
    missing = [listed[table] for table in unpublished(cursor, settings, tables)]
    if not missing:
        return
    cursor.execute("BEGIN")
    # While this statement waits for the lock, new writers of the table wait behind it.
    cursor.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
    cursor.execute(f"LOCK TABLE {', '.join(missing)} IN SHARE ROW EXCLUSIVE MODE")
    cursor.execute(f"ALTER PUBLICATION {name} ADD TABLE {', '.join(missing)}")
    for table in missing if continues else ():
        cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")
        row = cursor.fetchone()
        if row is not None and row[0]:
            cursor.execute("ROLLBACK")
            raise InvalidRequest(
                "a table came, or replaced another one, after the pipeline had started, and "
                "already has rows whose changes were not published. Remove the state of the "
                "pipeline and its slot to read everything again. A publication FOR ALL TABLES "
                "has the changes of tables that come later",
                table=table,
                publication=settings.publication,
            )
    cursor.execute("COMMIT")


def unpublished(cursor: Cursor, settings: PostgresSettings, tables: Sequence[str]) -> list[str]:
    """Which of these tables are not in the publication."""
    cursor.execute(
        "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s",
        (settings.publication,),
    )
    there = {str(row[0]) for row in cursor.fetchall()}
    return [table for table in tables if table not in there]


def open_slot(
    cursor: Cursor, stream: Connection, settings: PostgresSettings, after: int | None
) -> tuple[int, str | None]:
    """Open or create the slot.

    Returns its start position, and the snapshot that a new slot exports.

    `after` is the position at which the pipeline continues. Raises InvalidRequest if the slot no
    longer has all changes after this position.
    """
    slot = settings.slot
    cursor.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn, plugin FROM pg_replication_slots "
        "WHERE slot_name = %s",
        (slot,),
    )
    row = cursor.fetchone()
    if row is not None:
        if row[1] != "pgoutput":
            raise InvalidRequest("the slot has another plugin", slot=slot, plugin=row[1])
        begin = int(str(row[0]))
        if after is not None and after < begin:
            raise InvalidRequest(
                "the slot has moved past the position of the pipeline: another reader uses it. "
                "Remove the state of the pipeline to read everything again",
                slot=slot,
            )
        return begin, None
    if after is not None:
        raise InvalidRequest(
            "the slot of the pipeline is gone, and the changes that it kept: remove the state of "
            "the pipeline to read everything again",
            slot=slot,
        )
    creation = stream.cursor()
    creation.create_replication_slot(slot, output_plugin="pgoutput")
    made = creation.fetchone()
    assert made is not None, "the server made no slot"
    return _lsn(str(made[1])), str(made[2])


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def quoted(name: str) -> str:
    """The name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """The name `schema.table` as two quoted SQL identifiers."""
    schema, _, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"


# --- source --------------------------------------------------------------------------------------

_PART_ROWS_FIRST, _PART_ROWS_MAX, _PART_BYTES = 100, 50_000, 16 << 20
_STEP_ROWS, _STEP_BYTES = 20_000, 16 << 20
_STEP_MS = 500
_TRANSACTION_ROWS, _TRANSACTION_BYTES = 200_000, 64 << 20
_LOOK_MS = 10_000
_IDLE_SECONDS = 0.5
_FEEDBACK_MS = 5_000


class PostgresSource:
    """A source over the tables of one database that the settings name."""

    def __init__(self, settings: PostgresSettings, ambient: Ambient) -> None:
        self._settings = settings
        self._ambient = ambient
        self._stream: Connection | None = None
        self._committed = 0

    def describe(self) -> Mapping[str, str]:
        """The server, and what is read from it."""
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

        Raises InvalidRequest for a table without the replica identity FULL.
        """
        connection = connect(self._settings)
        try:
            with self._errors():
                return {each.table: each.schema for each in self._tables(connection.cursor())}
        finally:
            connection.close()

    def committed(self, position: Position) -> None:
        """Let the server discard the changes before the position."""
        if position.get("snapshot") is None:
            self._committed = int(str(position["lsn"]))

    def steps(self, after: Position | None) -> Iterator[Step]:
        """The changes after a position; see `Source`. In the mode `snapshot`, the iterator ends."""
        if after is not None and "lsn" not in after:
            raise InvalidRequest("not a position of this source", position=str(dict(after)))
        connection = connect(self._settings)
        try:
            with self._errors():
                cursor = connection.cursor()
                tables = self._tables(cursor)
                past = after is not None and not isinstance(after.get("snapshot"), list)
                names = [each.table.name for each in tables]
                publish(cursor, self._settings, names, continues=past)
                self._stream = connect(self._settings, replicates=True)
                begin = None if after is None else int(str(after["lsn"]))
                lsn, exported = open_slot(cursor, self._stream, self._settings, begin)
                goal = self._lsn(cursor, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
                done: list[str] | None = []
                place = StreamPlace(lsn) if after is None else StreamPlace.from_json(after)
                if after is not None:
                    lsn = place.lsn
                    stated = after.get("snapshot")
                    done = [str(each) for each in stated] if isinstance(stated, list) else None
                elif self._settings.mode is StartupMode.LATEST:
                    done = None
                if done is not None:
                    yield from self._snapshot(connection, tables, lsn, exported, done)
                    if self._settings.mode is StartupMode.SNAPSHOT:
                        return
            yield from self._follow(connection.cursor(), place, goal)
        finally:
            connection.close()
            self.close()

    def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # --- the start --------------------------------------------------------------------------------

    def _errors(self) -> AbstractContextManager[None]:
        return plain_postgres_errors(self._settings, "the database cannot be read")

    def _tables(self, cursor: Cursor) -> list[StreamTable]:
        found = []
        for (schema, name), (identity, comment) in read_tables(cursor, self._settings).items():
            if identity != "f":
                raise InvalidRequest(
                    "the replica identity of the table is not FULL; run ALTER TABLE ... REPLICA "
                    "IDENTITY FULL",
                    table=f"{schema}.{name}",
                )
            columns, key = read_columns(cursor, schema, name)
            found.append(
                StreamTable(
                    SourceTable(self._settings.database, f"{schema}.{name}"),
                    source_schema(columns, key, comment, self._settings.mapping),
                    columns,
                )
            )
        if not found:
            raise InvalidRequest(
                "no table of the database has such a name",
                schemas=self._settings.schemas,
                tables=self._settings.tables,
            )
        return found

    @staticmethod
    def _lsn(cursor: Cursor, query: str) -> int:
        cursor.execute(query)
        row = cursor.fetchone()
        return 0 if row is None else int(str(row[0]))

    # --- the snapshot -----------------------------------------------------------------------------

    def _snapshot(
        self,
        connection: Connection,
        tables: Sequence[StreamTable],
        lsn: int,
        exported: str | None,
        done: list[str],
    ) -> Iterator[Step]:
        """The rows of the tables that are not done, all from one state of the database."""
        cursor = connection.cursor()
        cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if exported is not None:
            cursor.execute("SET TRANSACTION SNAPSHOT %s", (exported,))
        for number, table in enumerate(tables):
            if table.table.name in done:
                continue
            listed = ", ".join(f"{quoted(each.name)}::text" for each in table.columns)
            cursor.execute(
                f"DECLARE rows_{number} NO SCROLL CURSOR FOR SELECT {listed} "
                f"FROM {quoted_table(table.table.name)}"
            )
            count = _PART_ROWS_FIRST
            while True:
                cursor.execute(f"FETCH {count} FROM rows_{number}")
                rows = cursor.fetchall()
                if not rows:
                    break
                table.rows = [
                    tuple(None if each is None else str(each) for each in row) for row in rows
                ]
                table.kinds = bytearray(len(rows))
                table.times = [0] * len(rows)
                batch = self._batch(table)
                # Large rows must fit in memory.
                count = rows_within(batch.rows, _PART_ROWS_MAX, _PART_BYTES)
                yield Step(batches=(batch,), position=_snapshot(lsn, done))
            cursor.execute(f"CLOSE rows_{number}")
            done.append(table.table.name)
            yield Step(position=_snapshot(lsn, done))
        cursor.execute("COMMIT")

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
            resumed, seen = place.transaction, 0
            rows = StreamRows(takes_metadata=self._settings.takes_metadata)
            begun_ms = said_ms = looked_ms = self._ambient.now_ms()
            while True:
                message = stream.read_message()
                now_ms = self._ambient.now_ms()
                if now_ms - said_ms >= _FEEDBACK_MS:
                    stream.send_feedback(flush_lsn=self._committed, reply=True)
                    said_ms = now_ms
                if now_ms - looked_ms >= _LOOK_MS:
                    self._look(cursor)
                    looked_ms = now_ms
                if message is None:
                    if place.transaction is None or resumed is not None:
                        if resumed is None:
                            place.lsn = max(place.lsn, int(str(getattr(stream, "wal_end", 0))))
                        yield self._step(rows, place, goal)
                        begun_ms = self._ambient.now_ms()
                    select([self._stream], [], [], _IDLE_SECONDS)
                    continue
                ends = False
                match parse(message.payload):
                    case Begin() as begin:
                        if resumed is not None and begin.transaction != resumed:
                            raise _lost(resumed)
                        place.transaction, place.time_ms = begin.transaction, begin.time_ms
                        resumed, seen = None, 0
                    case Relation() as relation:
                        # A batch has one schema; later rows may have another.
                        rows.relations[relation.id] = self._relation(cursor, relation)
                    case Change() as change:
                        seen += 1
                        if seen > place.changes:
                            place.changes = seen
                            rows.add(change, place.time_ms, len(message.payload))
                        ends = rows.count >= _TRANSACTION_ROWS or rows.size >= _TRANSACTION_BYTES
                    case End() as end:
                        if seen < place.changes:
                            raise _lost(place.transaction)
                        place.lsn, place.transaction, place.changes = end.lsn, None, 0
                        large = rows.count >= _STEP_ROWS or rows.size >= _STEP_BYTES
                        ends = large or now_ms - begun_ms >= _STEP_MS
                if ends:
                    yield self._step(rows, place, goal)
                    begun_ms = self._ambient.now_ms()

    def _look(self, cursor: Cursor) -> None:
        """Add new tables to the publication. Raises InvalidRequest if they have rows already."""
        names = [".".join(each) for each in read_tables(cursor, self._settings)]
        if unpublished(cursor, self._settings, names):
            found = [each.table.name for each in self._tables(cursor)]
            try:
                publish(cursor, self._settings, found, continues=True)
            except locked_error():
                # A long transaction writes to the table. The next call tries again.
                cursor.execute("ROLLBACK")

    def _step(self, rows: StreamRows, place: StreamPlace, goal: int) -> Step:
        ended = place.transaction is None
        return Step(
            batches=rows.take(),
            position=place.to_json(),
            caught_up=ended and place.lsn >= goal,
        )

    def _batch(self, table: StreamTable) -> ChangeBatch:
        return batch_of(table, takes_metadata=self._settings.takes_metadata)

    def _relation(self, cursor: Cursor, relation: Relation) -> StreamTable | None:
        """The table with the columns that the stream announces for the following rows."""
        if not self._settings.takes(relation.schema, relation.table):
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
        table = SourceTable(self._settings.database, f"{relation.schema}.{relation.table}")
        # A table that was dropped meanwhile no longer states its key.
        schema = source_schema(columns, here, comment, self._settings.mapping, states_key=bool(now))
        return StreamTable(table, schema, columns)


def _lost(transaction: int | None) -> InvalidRequest:
    return InvalidRequest(
        "the slot no longer has the transaction of which the pipeline has written a part: remove "
        "the state of the pipeline, and start again",
        transaction=transaction,
    )


def _snapshot(lsn: int, done: Sequence[str]) -> dict[str, Json]:
    return {"lsn": lsn, "snapshot": list(done)}


# --- actions -------------------------------------------------------------------------------------
# The action `postgres_sync_table`.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/postgres-cdc/

_METADATA = ("database_name", "schema_name", "table_name", "op_ts")


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes all tables named by the options to one target."""
    check_metadata(arguments, _METADATA)
    settings = PostgresSettings.parse(
        arguments.conf, arguments.mapping, metadata=bool(arguments.metadata)
    )
    target = f"{arguments.database}.{arguments.table}"

    def route(table: SourceTable) -> str | None:
        schema, _, name = table.name.partition(".")
        return target if settings.takes(schema, name) else None

    source = PostgresSource(settings, ambient)
    return Opened(source, rules_of(arguments, route, ambient), follows_new_tables=True)


POSTGRES_ACTIONS = {
    "postgres_sync_table": Action(conf="postgres_conf", takes_table=True, opens=_sync_table)
}
