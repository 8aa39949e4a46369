"""The MySQL source: returns a snapshot of the tables, then the log, as steps.

1. Each chunk of the snapshot is one step. Several connections read ahead, but steps keep the order
   of the chunks, so one number per table tells which chunks are done.
2. The log is read from the earliest place of a chunk. Until the log has passed the latest place of
   a chunk, changes that a chunk already includes are skipped (`log_batches.py`).
3. Transactions are collected into a step until there are many rows, some time has passed or the
   server is idle. A very large transaction is split into several steps. The position of such a step
   is the start of the transaction and the number of its events that are done.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
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
from lakecore.cdc.mysql.binlog import (
    Binlog,
    Commit,
    Definition,
    Idle,
    LogPlace,
    Rows,
    Statement,
    TableMapSeen,
)
from lakecore.cdc.mysql.checks import (
    check_databases,
    check_select,
    first_mark,
    moved,
    server_problems,
)
from lakecore.cdc.mysql.column import source_schema, stated_type
from lakecore.cdc.mysql.connection import (
    Connection,
    Cursor,
    MySqlSettings,
    Server,
    StartupMode,
    connect,
    gtids_at,
    has_silent_changes,
    log_position,
    log_sizes,
    plain_mysql_errors,
    read_columns,
    read_comment,
    read_server,
    read_tables,
    server_notes,
)
from lakecore.cdc.mysql.log_batches import (
    LogBatches,
    Marks,
    Place,
    metadata_of,
    texts_of,
    with_gtid,
)
from lakecore.cdc.mysql.snapshot import (
    Chunk,
    boundaries,
    has_odd_dates,
    integer_key,
    quoted,
    quoted_table,
    read_chunk,
)
from lakecore.cdc.mysql.statements import column_changes_of, removal_of, tables_replaced_by
from lakecore.cdc.quarantine import START_AGAIN, Collected, concern, of_tables
from lakecore.cdc.resync import range_column, range_stop
from lakecore.errors import InvalidRequest, NotFound
from lakecore.model.types import TIMESTAMPS, Atomic, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.errors import LakecoreError
    from lakecore.io.ambient import Ambient

log = logging.getLogger("lakecore.cdc")

_STEP_MS = 500
_PART_ROWS = 100_000
_CHUNK_BYTES = 16 << 20
_OWN_IDS = 1 << 31


def _take_all(table: SourceTable) -> bool:
    del table
    return True


def _renewed(tables: Iterable[SourceTable]) -> tuple[Altered, ...]:
    return tuple(Altered(table=each, is_renewed=True) for each in tables)


def _has_key(schema: SourceSchema) -> bool:
    return bool(schema.primary_key)


class MySqlSource:
    """The tables of one server as a source.

    - `accepts`: which of the tables named by the settings are read;
    - `group`: the target of a table; changes of tables with the same target keep their order;
    - `keyed`: whether the target has a primary key; without one, a row that is read twice would be
      stored twice;
    - `needs_key`: whether tables without a primary key, which have no snapshot, are left out.
    """

    def __init__(
        self,
        settings: MySqlSettings,
        ambient: Ambient,
        accepts: Callable[[SourceTable], bool] = _take_all,
        group: Callable[[SourceTable], str] = str,
        keyed: Callable[[SourceSchema], bool] = _has_key,
        *,
        needs_key: bool = False,
    ) -> None:
        self._settings = settings
        self._ambient = ambient
        self._accepts = accepts
        self._group = group
        self._keyed = keyed
        self._needs_key = needs_key
        self._texts = tuple[str, ...]()
        self._is_new = True
        self._stored: Place | None = None
        self.left_out = frozenset[SourceTable]()
        self._log: Binlog | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._free: deque[Connection] = deque()

    def describe(self) -> Mapping[str, str]:
        settings = self._settings
        return {
            "kind": "mysql",
            "server": f"{settings.hostname}:{settings.port}",
            "user": settings.username,
            "databases": settings.databases,
            "tables": settings.tables,
        }

    def resume(self, position: Position) -> None:
        """Keep the position, and the types that earlier runs have chosen."""
        self._is_new = False
        self._stored = Place.from_json(position)
        self._keep_texts(texts_of(position))

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        """The tables that the settings name and `accepts` takes, with their current columns."""
        connection = connect(self._settings)
        try:
            return self._tables(connection)
        finally:
            connection.close()

    def problems(self) -> Sequence[LakecoreError]:
        settings, place = self._settings, self._stored
        connection = connect(settings)
        try:
            if place is None and settings.mode is StartupMode.SPECIFIC:
                place = self._first(connection)
            is_half_read = place is not None and self._is_half_read(place)
            found = server_problems(
                connection, settings, place, self._own_id(), is_half_read=is_half_read
            )
            if self._is_new:
                with found.of():
                    check_databases(connection, settings)
        finally:
            connection.close()
        return found.errors

    def _own_id(self) -> int:
        """A random id for a reader of the log: two readers must not have the same."""
        return _OWN_IDS + int(self._ambient.random() * (_OWN_IDS - 1))

    def _is_half_read(self, place: Place) -> bool:
        """Whether tables or transactions were read in part, and repeated rows may be doubled."""
        return bool(place.marks or place.events_done) and not self._needs_key

    @property
    def mapping(self) -> TypeMapping:
        return self._settings.mapping

    def notes(self) -> list[str]:
        connection = connect(self._settings)
        try:
            return server_notes(connection)
        finally:
            connection.close()

    def bytes_after(self, position: Position) -> int | None:
        if "place" not in position:
            return None
        place = LogPlace.from_json(position["place"])
        connection = connect(self._settings)
        try:
            with plain_mysql_errors(self._settings, "the size of the log cannot be read"):
                files = log_sizes(connection.cursor()).items()
        finally:
            connection.close()
        sizes = {LogPlace.of(name, 0).number: size for name, size in files}
        later = sum(size for number, size in sizes.items() if number > place.number)
        return max(sizes.get(place.number, 0) - place.offset, 0) + later

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        """Read no more rows and statements of these tables."""
        self.left_out = frozenset(tables)

    def steps(self, after: Position | None) -> Iterator[Step]:
        """The changes after a position; see `Source`. In the mode `snapshot`, the iterator ends."""
        connection = connect(self._settings)
        try:
            server = read_server(connection, self._settings)
            cursor = connection.cursor()
            with plain_mysql_errors(self._settings, "the place of the log cannot be read"):
                goal = LogPlace.of(*log_position(cursor))
            cursor.close()
            place = self._first(connection) if after is None else Place.from_json(after)
            place.texts = self._texts
            if place.server not in {None, server.identity}:
                log.warning(
                    "another server has taken over. server=%s server_id=%s gtid=%s",
                    f"{self._settings.hostname}:{self._settings.port}",
                    server.identity,
                    place.gtid,
                )
                is_half_read = self._is_half_read(place)
                place = moved(self._settings, server, place, is_half_read=is_half_read)
            has_gtids = place.server is not None and place.gtid is not None
            place.server = server.identity
        finally:
            connection.close()
        if after is None and not place.marks and (place.log or place.gtid):
            # A pipeline that starts again before its first rows must start here.
            yield Step(position=place.to_json())
        try:
            if place.log is None and place.gtid is None:
                yield from self._snapshot(server, place)
                if self._settings.mode is StartupMode.SNAPSHOT:
                    return
                place = replace(place, log=first_mark(place) or goal)
            if server.is_mariadb and place.log is not None and not has_gtids:
                place.gtid = self._gtids(place.log)
                # From here on, the pipeline can go on at another server.
                yield Step(position=place.to_json())
            if place.renewed:
                yield Step(position=place.to_json(), altered=_renewed(sorted(place.renewed)))
            yield from self._follow(server, place, goal)
        finally:
            self.close()

    def _gtids(self, place: LogPlace) -> str | None:
        connection = connect(self._settings)
        try:
            with plain_mysql_errors(self._settings, "the GTIDs of the log cannot be read"):
                return gtids_at(connection.cursor(), place.file, place.offset)
        finally:
            connection.close()

    def can_read_again(self, after: Position | None) -> bool:
        """Whether the position is in the log, so that the first snapshot is done."""
        return after is not None and "place" in after

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        """The rows of the next range of a table at one place of the log; see `ReadsAgain`.

        After the first range, the position has the place as the table's mark, from which the log is
        followed.
        """
        keys: list[pa.Table] = []
        place = Place.from_json(after)
        connection = connect(self._settings)
        try:
            server = read_server(connection, self._settings)
            cursor = connection.cursor()
            with plain_mysql_errors(self._settings, "the tables of the server cannot be listed"):
                if (table.database, table.name) not in read_tables(cursor):
                    raise NotFound(
                        "the source has no such table, or hides it from the user: correct the "
                        "name, or GRANT SELECT on it",
                        table=str(table),
                    )
                schema = self._schema(cursor, table, is_new=start is None)
                key = range_column(schema)
                stop = None
                if key is not None:
                    stop = range_stop(cursor, quoted_table(table), quoted(key), start)
        finally:
            connection.close()
        empty = schema.arrow.empty_table()
        first = Chunk(schema=schema, rows=empty, place=place.log or LogPlace.of("", 0))
        yield Step(batches=(self._chunk_batch(table, first),), position=after)
        for chunk in self._stream(server, table, key, start, stop):
            yield Step(batches=(self._chunk_batch(table, chunk),), position=after)
            keys.append(chunk.rows.select(chunk.schema.primary_key))
            if start is None:
                place.marks[table] = Marks(places=[chunk.place], done=True)
        if start is None:
            place.texts = self._texts
            place.gone.pop(table, None)
            place.renewed.discard(table)
        cleared = Cleared(table=table, keys=pa.concat_tables(keys), start=start, stop=stop)
        yield Step(cleared=cleared, position=place.to_json())

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        while self._free:
            self._free.popleft().close()

    def _is_read(self, table: SourceTable) -> bool:
        return table not in self.left_out and self._accepts(table)

    # --- the start --------------------------------------------------------------------------------

    def _tables(self, connection: Connection) -> dict[SourceTable, SourceSchema]:
        cursor = connection.cursor()
        found: dict[SourceTable, SourceSchema] = {}
        collected = Collected()
        what = "the tables of the server cannot be listed"
        with plain_mysql_errors(self._settings, what):
            names = sorted(read_tables(cursor))
        for database, name in names:
            table = SourceTable(database, name)
            if not self._settings.takes(database, name) or not self._is_read(table):
                continue
            with collected.of(table), plain_mysql_errors(self._settings, what):
                check_select(cursor, self._settings, quoted_table(table))
                found[table] = self._schema(cursor, table, is_new=self._is_new)
        cursor.close()
        collected.check()
        return found

    def _schema(self, cursor: Cursor, table: SourceTable, *, is_new: bool) -> SourceSchema:
        """A table's schema now. `is_new`: whether the table may choose the types of its target."""
        comment = read_comment(cursor, table.database, table.name)
        if has_silent_changes(cursor, table.database, table.name):
            log.warning(
                "a foreign key changes rows of a table, which the server does not log: "
                "the target will not have these changes. table=%s",
                table,
            )
        columns, primary, unique = read_columns(cursor, table.database, table.name)
        key = self._settings.key(primary, unique)
        found = source_schema(table, list(columns.values()), key, comment, self._settings.mapping)
        names = [
            each.name
            for each in found.fields
            if is_new
            and each.name in found.exact
            and isinstance(each.type, Atomic)
            and each.type.root in {Root.DATE, *TIMESTAMPS}
            and has_odd_dates(cursor, table, each.name)
        ]
        if not names:
            return found
        self._keep_texts((*self._texts, *(f"{table}.{name}" for name in names)))
        return source_schema(table, list(columns.values()), key, comment, self._settings.mapping)

    def _keep_texts(self, names: tuple[str, ...]) -> None:
        self._texts = names
        self._settings = replace(self._settings, mapping=self._settings.mapping.as_texts(names))

    def _first(self, connection: Connection) -> Place:
        """Where a pipeline without a state starts."""
        settings = self._settings
        cursor = connection.cursor()
        with plain_mysql_errors(settings, "the place of the log cannot be read"):
            match settings.mode:
                case StartupMode.INITIAL | StartupMode.SNAPSHOT:
                    return Place(marks=self._planned(connection))
                case StartupMode.LATEST:
                    return Place(log=LogPlace.of(*log_position(cursor)))
                case StartupMode.EARLIEST | StartupMode.TIMESTAMP:
                    return Place(log=LogPlace.of(next(iter(log_sizes(cursor))), 4))
                case StartupMode.SPECIFIC if settings.gtid is not None:
                    return Place(gtid=settings.gtid)
                case StartupMode.SPECIFIC:
                    return Place(log=LogPlace.of(settings.file or "", settings.offset or 4))

    def _planned(self, connection: Connection) -> dict[SourceTable, Marks]:
        """The key ranges of every table."""
        cursor = connection.cursor()
        sizes = read_tables(cursor)
        marks: dict[SourceTable, Marks] = {}
        for table, schema in self._tables(connection).items():
            if self._needs_key and not schema.primary_key:
                continue
            columns, _, _ = read_columns(cursor, table.database, table.name)
            key = integer_key(columns, schema.primary_key)
            rows, length = sizes.get((table.database, table.name), (0, 0))
            size = max(min(self._settings.chunk_rows, _CHUNK_BYTES // max(length, 1)), 1)
            with of_tables(table):
                bounds = (
                    ()
                    if key is None
                    else boundaries(connection, self._settings, table, key, rows=rows, size=size)
                )
            marks[table] = Marks(key=key, bounds=tuple(bounds))
        return marks

    # --- the snapshot -----------------------------------------------------------------------------

    def _snapshot(self, server: Server, place: Place) -> Iterator[Step]:
        """One step for each chunk that is not done."""
        self._pool = ThreadPoolExecutor(self._settings.parallelism, "lakecore-cdc-snapshot")
        for table, marks in place.marks.items():
            if marks.done or table in self.left_out:
                continue
            again = marks.key is None and bool(marks.places)
            chunks = (
                self._stream(server, table)
                if marks.key is None
                else self._ranges(server, table, marks)
            )
            while (chunk := self._next(table, chunks)) is not None:
                if again and not self._keyed(chunk.schema):
                    error = InvalidRequest(
                        "the snapshot of a table without a primary key was interrupted, and cannot "
                        f"continue: {START_AGAIN}",
                        table=str(table),
                    )
                    concern(error, [table])
                    raise error
                if marks.key is not None or not marks.places:
                    marks.places.append(chunk.place)
                marks.done = chunk.last
                batch = self._chunk_batch(table, chunk)
                yield Step(batches=(batch,) if len(batch) else (), position=place.to_json())

    @staticmethod
    def _next(table: SourceTable, chunks: Iterator[Chunk]) -> Chunk | None:
        with of_tables(table):
            return next(chunks, None)

    def _ranges(self, server: Server, table: SourceTable, marks: Marks) -> Iterator[Chunk]:
        """The ranges of a table in order, read ahead by several connections."""
        assert self._pool is not None
        numbers = iter(range(len(marks.places), len(marks.bounds) + 1))
        waiting = deque(
            self._pool.submit(self._range, server, table, marks, number)
            for number in islice(numbers, self._settings.parallelism + 1)
        )
        count = len(marks.bounds) + 1
        for number in range(len(marks.places), count):
            chunk = waiting.popleft().result()
            assert chunk.number == number, "a range of the key is missing"
            following = next(numbers, None)
            if following is not None:
                waiting.append(self._pool.submit(self._range, server, table, marks, following))
            yield replace(chunk, last=number + 1 == count)

    def _range(self, server: Server, table: SourceTable, marks: Marks, number: int) -> Chunk:
        start, stop = marks.range(number)
        try:
            connection = self._free.popleft()
        except IndexError:
            connection = connect(self._settings, raw=True)
        chunks = read_chunk(
            connection, server, self._settings, table, key=marks.key, start=start, stop=stop
        )
        try:
            (chunk,) = chunks
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        return replace(chunk, number=number)

    def _stream(
        self,
        server: Server,
        table: SourceTable,
        key: str | None = None,
        start: int | None = None,
        stop: int | None = None,
    ) -> Iterator[Chunk]:
        """All rows of a table, or of a range, in parts; also those that an earlier run read."""
        connection = connect(self._settings, raw=True)
        try:
            yield from read_chunk(
                connection, server, self._settings, table,
                key=key, start=start, stop=stop, part_rows=_PART_ROWS,
            )  # fmt: skip
        finally:
            connection.close()

    def _chunk_batch(self, table: SourceTable, chunk: Chunk) -> ChangeBatch:
        count = chunk.rows.num_rows
        zeros = pa.repeat(pa.scalar(0, pa.int64()), count)
        return ChangeBatch(
            table=table,
            schema=chunk.schema,
            rows=chunk.rows,
            kinds=zeros.cast(pa.int8()),
            metadata=metadata_of(table, zeros) if self._settings.takes_metadata else None,
        )

    # --- the log ----------------------------------------------------------------------------------

    def _follow(self, server: Server, place: Place, goal: LogPlace) -> Iterator[Step]:
        """Steps of the log; the iterator never ends."""
        settings = self._settings
        binlog = self._log = Binlog(settings, server, settings.server_id or self._own_id())
        binlog.start(place.log, place.gtid if place.log is None else None)
        batches = LogBatches(settings, server, self._is_read, self._group, place.marks)
        last = max((mark for each in place.marks.values() for mark in each.places), default=None)
        least_seconds = (settings.timestamp_ms or 0) / 1000
        skipped, place.events_done = place.events_done, 0
        begun_ms = self._ambient.now_ms()
        for event in binlog.events():
            match event:
                case TableMapSeen():
                    batches.see_map(event, binlog.at(event.end))
                case Rows():
                    place.events_done += 1
                    if place.events_done > skipped and event.timestamp >= least_seconds:
                        batches.add(event, binlog.at(event.end))
                    if batches.must_be_cut:
                        yield Step(batches=batches.take(), position=place.to_json())
                        begun_ms = self._ambient.now_ms()
                case Definition() | Statement():
                    here = binlog.at(event.end) if isinstance(event, Statement) else binlog.place
                    batches.see_statement(event, here)
                    yield from self._cleared(server, batches, place, event, here)
                    yield from self._altered(batches, place, event, here)
                case Commit():
                    place.log, place.events_done, skipped = event.place, 0, 0
                    place.gtid = with_gtid(place.gtid, event.gtid)
                    place.time_ms = event.timestamp * 1000
                    if last is not None and event.place > last:
                        place.marks.clear()
                        last = None
                    yield from self._replaced(batches, place)
                    if batches.large or self._ambient.now_ms() - begun_ms >= _STEP_MS:
                        yield self._step(batches, place, caught_up=event.place >= goal)
                        begun_ms = self._ambient.now_ms()
                case Idle():
                    if place.events_done == 0:
                        yield self._step(batches, place, caught_up=True)
                        begun_ms = self._ambient.now_ms()

    def _altered(
        self, batches: LogBatches, place: Place, event: Definition | Statement, here: LogPlace
    ) -> Iterator[Step]:
        """After a statement that may have changed values: the changes before it, and the tables."""
        if isinstance(event, Statement):
            return
        new = [
            each
            for each, comes in tables_replaced_by(event.text, event.database)
            if self._is_followed(batches, each, here) and place.replace(each, comes=comes)
        ]
        with of_tables(*new):
            is_read = bool(new) and self._settings.on_truncate.follows(new)
        if is_read:
            yield replace(self._step(batches, place, caught_up=False), altered=_renewed(new))
        found = column_changes_of(event.text, event.database)
        if found is None or not self._is_followed(batches, found.table, here):
            return
        altered = Altered(
            table=found.table,
            is_renewed=place.rename(found.table, found.gone, found.come),
            types={
                name: stated_type(each.text, self._settings.mapping, nullable=each.nullable)
                for name, each in found.retyped.items()
            },
            is_strict=event.is_strict,
            has_key=self._needs_key and bool(self._key_now(found.table)),
        )
        if altered.is_renewed or altered.types or altered.has_key:
            yield replace(self._step(batches, place, caught_up=False), altered=(altered,))

    def _is_followed(self, batches: LogBatches, table: SourceTable, here: LogPlace) -> bool:
        """Whether changes of a table at this place of the log concern its target."""
        is_taken = self._settings.takes(table.database, table.name) and self._is_read(table)
        return is_taken and not batches.includes(table, here)

    def _key_now(self, table: SourceTable) -> tuple[str, ...] | None:
        """The primary key of a table, empty without one; None if the table does not exist."""
        connection = connect(self._settings)
        try:
            cursor = connection.cursor()
            columns, primary, unique = read_columns(cursor, table.database, table.name)
        finally:
            connection.close()
        return self._settings.key(primary, unique) if columns else None

    def _replaced(self, batches: LogBatches, place: Place) -> Iterator[Step]:
        """After column names came back without a statement: earlier changes, then the tables."""
        tables = [table for table, *names in batches.columns() if place.rename(table, *names)]
        if tables:
            yield replace(self._step(batches, place, caught_up=False), altered=_renewed(tables))

    def _cleared(
        self,
        server: Server,
        batches: LogBatches,
        place: Place,
        event: Definition | Statement,
        here: LogPlace,
    ) -> Iterator[Step]:
        """After a statement that removed rows: the changes before it, and the table's current keys.

        Raises InvalidRequest if the target cannot follow.
        """
        removal = removal_of(event.text, event.database)
        tables = [
            each
            for each in (removal.tables if removal is not None else ())
            if self._is_followed(batches, each, here)
        ]
        if removal is None or not tables:
            return
        with of_tables(*tables):
            if not self._settings.on_truncate.follows(tables):
                return
            if removal.adds:
                raise InvalidRequest(
                    "a statement moved rows of a table, and the log does not name them; "
                    "`--truncate ignore` leaves the target as it is",
                    tables=[*map(str, tables)],
                )
            (table,) = tables
            keys = self._keys(server, table)
        if keys is not None:
            yield self._step(batches, place, caught_up=False)
            yield Step(cleared=Cleared(table=table, keys=keys), position=place.to_json())

    def _keys(self, server: Server, table: SourceTable) -> pa.Table | None:
        """The primary keys of a table; None if the table does not exist any more."""
        key = self._key_now(table)
        if key is None:
            return None
        if not key:
            raise unfindable(table)
        connection = connect(self._settings, raw=True)
        try:
            chunks = read_chunk(
                connection, server, self._settings, table, part_rows=_PART_ROWS, keys_only=True
            )
            return pa.concat_tables([each.rows for each in chunks])
        finally:
            connection.close()

    @staticmethod
    def _step(batches: LogBatches, place: Place, *, caught_up: bool) -> Step:
        return Step(batches=batches.take(), position=place.to_json(), caught_up=caught_up)


# --- actions -------------------------------------------------------------------------------------
# The actions `mysql_sync_table` and `mysql_sync_database`.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/

_METADATA = ("database_name", "table_name", "op_ts")


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes all tables named by the options to one target."""
    if "table-name" not in arguments.conf:
        raise InvalidRequest("mysql_conf needs these options", missing=["table-name"])
    settings = _settings(arguments)
    target = f"{arguments.database}.{arguments.table}"

    def route(table: SourceTable) -> str | None:
        return target if settings.takes(table.database, table.name) else None

    rules = rules_of(arguments, route, ambient)

    def keyed(schema: SourceSchema) -> bool:
        return bool(rules.primary_keys or (rules.takes_source_keys and schema.primary_key))

    source = MySqlSource(settings, ambient, group=lambda _: target, keyed=keyed)
    return Opened(source, rules, follows_new_tables=True)


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes each table to a target of the same name.

    Tables without a primary key are left out, unless `--unique_keys true` finds another key.
    """
    refuse_table_name(arguments)
    settings = _settings(arguments)
    routing = routing_of(arguments, settings.databases)
    mode = arguments.text("mode") or "divided"
    if mode not in {"divided", "combined"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["divided", "combined"])
    eager = arguments.flag("eager_init", default=False)
    return Opened(
        MySqlSource(
            settings,
            ambient,
            routing.includes,
            lambda table: routing.target(table) or "",
            needs_key=True,
        ),
        rules_of(arguments, routing.target, ambient, falls_back=True),
        follows_new_tables=mode == "combined",
        needs_key=True,
        opens_at_start=routing.may_be_target if eager else None,
        ignores_incompatible=arguments.flag("ignore_incompatible", default=False),
    )


def _settings(arguments: Arguments) -> MySqlSettings:
    check_metadata(arguments, _METADATA)
    return MySqlSettings.parse(
        arguments.conf,
        arguments.mapping,
        metadata=bool(arguments.metadata),
        unique_keys=arguments.flag("unique_keys", default=False),
        truncate=arguments.on_truncate,
    )


MYSQL_ACTIONS = {
    "mysql_sync_table": Action(
        conf="mysql_conf",
        takes_table=True,
        opens=_sync_table,
        flags=(*SERVER_TABLE_FLAGS, "unique_keys"),
    ),
    "mysql_sync_database": Action(
        conf="mysql_conf",
        takes_table=False,
        opens=_sync_database,
        flags=(*SERVER_FLAGS, "mode", "unique_keys"),
    ),
}
