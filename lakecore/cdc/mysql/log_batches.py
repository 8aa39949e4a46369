"""Collects the rows of log events by table, and converts them to batches of changes.

A new batch of a table begins when its table map changes, so that a batch has one schema. Among
tables with the same target, the order of changes is kept: a batch of one table ends the open
batches of the others.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.cdc.conf import matches
from lakecore.cdc.events import ChangeBatch, SourceTable
from lakecore.cdc.mysql.binary_values import decoded, shown
from lakecore.cdc.mysql.binlog import Statement
from lakecore.cdc.mysql.column import BY_SERVER, Code, definitions_of, source_schema
from lakecore.cdc.mysql.connection import connect, read_columns, read_comment
from lakecore.cdc.mysql.natural import fitted
from lakecore.cdc.mysql.row_images import RowImages
from lakecore.cdc.mysql.server_texts import ServerTexts
from lakecore.cdc.mysql.table_map import parse_table_map, table_name
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.cdc.events import SourceSchema
    from lakecore.cdc.mysql.binlog import Definition, LogPlace, Rows, TableMapSeen
    from lakecore.cdc.mysql.column import LoggedColumn
    from lakecore.cdc.mysql.connection import Server
    from lakecore.cdc.mysql.marks import Marks
    from lakecore.cdc.mysql.settings import MySqlSettings
    from lakecore.cdc.mysql.table_map import TableMap

__all__ = ["LogBatches"]

log = logging.getLogger("lakecore.cdc")

_TEXTS = frozenset({Code.BLOB, Code.VARCHAR, Code.VAR_STRING, Code.STRING})
_STEP_ROWS, _STEP_BYTES = 20_000, 16 << 20
_TRANSACTION_ROWS, _TRANSACTION_BYTES = 200_000, 64 << 20
_NAME = r"(`(?:[^`]|``)+`|[\w$]+)"
_QUALIFIED = re.compile(rf"{_NAME}\s*\.\s*{_NAME}")
_KEPT = 1000
"""The number of DDL statements after which a table without changes is forgotten."""
_INSERT, _UPDATE, _DELETE = b"\x00", b"\x03\x00", b"\x03"


@dataclass(slots=True)
class _Image:
    """A table as one table map describes it. `schema` is None if its rows are ignored."""

    table: SourceTable
    group: str = ""
    schema: SourceSchema | None = None
    map: TableMap | None = None
    images: RowImages = field(default_factory=lambda: RowImages(()))
    table_id: bytes = b""
    statements: int = 0
    seen: int = 0


@dataclass(slots=True)
class _Open:
    """Rows of one table that are collected, but not yet a batch."""

    image: _Image
    rows: list[tuple[object, ...]] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    times: list[tuple[int, int]] = field(default_factory=list)  # number of rows, seconds since 1970


class LogBatches:
    """Collects the rows of events; `take` returns them as batches.

    `rows` is the number of collected rows, and `size` their size in the log in bytes.
    """

    def __init__(
        self,
        settings: MySqlSettings,
        server: Server,
        accepts: Callable[[SourceTable], bool],
        group: Callable[[SourceTable], str],
        marks: dict[SourceTable, Marks],
    ) -> None:
        self._settings = settings
        self._server = server
        self._accepts = accepts
        self._group = group
        self._marks = marks
        self._texts = ServerTexts(settings)
        self._statements = 0
        self._known: dict[bytes, _Image] = {}
        self._current: dict[bytes, _Image] = {}
        self._open: dict[SourceTable, _Open] = {}
        self._last_of_group: dict[str, SourceTable] = {}
        self._closed: list[_Open] = []
        self.rows = 0
        self.size = 0

    @property
    def large(self) -> bool:
        """Whether the rows are enough for a step, once their transaction has ended."""
        return self.rows >= _STEP_ROWS or self.size >= _STEP_BYTES

    @property
    def must_be_cut(self) -> bool:
        """Whether the rows become a step within their transaction."""
        return self.rows >= _TRANSACTION_ROWS or self.size >= _TRANSACTION_BYTES

    def see_map(self, event: TableMapSeen) -> None:
        """Remember which table a table number means in the following row events.

        DDL gives the changed table a new number. So, after DDL, a table with an unchanged number is
        not read again.
        """
        body = event.packet[26:]
        image = self._known.get(body)
        is_old = image is not None and image.statements != self._statements
        if image is None or (is_old and image.table_id != event.table_id):
            image = self._known[body] = self._image(event.packet)
            image.statements = self._statements
        image.table_id = event.table_id
        image.seen = self._statements
        self._current[event.table_id] = image

    def see_statement(self, found: Definition | Statement) -> None:
        """Remember that a statement may have changed a table definition.

        Tables without changes during many such statements are forgotten, because some of them no
        longer exist. Raises InvalidRequest for a statement that may change mirrored rows.
        """
        if isinstance(found, Statement):
            self._check_statement(found)
            return
        self._statements += 1
        if self._statements % _KEPT == 0:
            oldest = self._statements - _KEPT
            self._known = {body: each for body, each in self._known.items() if each.seen > oldest}
            self._current.clear()

    def add(self, event: Rows, place: LogPlace) -> None:
        """Collect the rows of an event that ends at a place."""
        image = self._current[event.table_id]
        if image.schema is None:
            return
        rows = image.images.cut(event.data, event.start, event.stop)
        if event.before and event.after:
            kinds = _UPDATE * (len(rows) // 2)
        else:
            kinds = (_DELETE if event.before else _INSERT) * len(rows)
        marks = self._marks.get(image.table)
        if marks is not None and not place > max(marks.places):
            rows, kinds = self._after_snapshot(image, marks, rows, kinds, place)
        if not rows:
            return
        found = self._open.get(image.table)
        last = self._last_of_group.get(image.group, image.table)
        if found is None or found.image is not image or last != image.table:
            self._close(image.table)
            found = self._open[image.table] = _Open(image)
            self._last_of_group[image.group] = image.table
        found.rows += rows
        found.kinds += kinds
        if self._settings.takes_metadata:
            found.times.append((len(rows), event.timestamp))
        self.rows += len(rows)
        self.size += event.stop - event.start

    def take(self) -> tuple[ChangeBatch, ...]:
        """The batches of everything collected so far."""
        for table in list(self._open):
            self._close(table)
        batches = tuple(self._batch(each) for each in self._closed)
        self._closed = []
        self._last_of_group.clear()
        self.rows = self.size = 0
        return batches

    # --- tables -----------------------------------------------------------------------------------

    def _image(self, packet: bytes) -> _Image:
        table = SourceTable(*table_name(packet[20:]))
        if not self._settings.takes(table.database, table.name) or not self._accepts(table):
            return _Image(table)
        found = parse_table_map(packet, mariadb=self._server.is_mariadb, texts=self._texts.texts)
        connection = connect(self._settings)
        try:
            cursor = connection.cursor()
            defined, _, unique = read_columns(cursor, table.database, table.name)
            comment = read_comment(cursor, table.database, table.name)
        finally:
            connection.close()
        definitions = definitions_of(found.columns, defined)
        stands_in = set(found.primary_key) == set(unique)
        primary_key = self._settings.key((), unique) if stands_in else found.primary_key
        schema = source_schema(definitions, primary_key, comment, self._settings.mapping)
        return _Image(table, self._group(table), schema, found, RowImages(found.columns))

    def _check_statement(self, found: Statement) -> None:
        """Raise InvalidRequest for a statement that may change rows of a mirrored table.

        Such a statement runs in a mirrored database, or its text has the qualified name of a
        mirrored table.
        """
        settings = self._settings
        names = [tuple(map(_unquoted, each)) for each in _QUALIFIED.findall(found.text)]
        mirrored = sorted(
            {
                f"{database}.{name}"
                for database, name in names
                if settings.takes(database, name) and self._accepts(SourceTable(database, name))
            }
        )
        if not mirrored and not matches(settings.databases, found.database):
            log.info(
                "skipped a logged statement of a database that is not mirrored. database=%s "
                "place=%s",
                found.database,
                found.place,
            )
            return
        raise InvalidRequest(
            "the binary log has a statement in place of rows: binlog_format must be ROW for every "
            "session that changes mirrored tables",
            place=found.place,
            database=found.database,
            tables=mirrored or "any of the database",
        )

    def _after_snapshot(
        self,
        image: _Image,
        marks: Marks,
        rows: list[tuple[object, ...]],
        kinds: bytes,
        place: LogPlace,
    ) -> tuple[list[tuple[object, ...]], bytes]:
        """The rows that the table's snapshot does not include yet, and their kinds."""
        keys: list[object] = [0] * len(rows)
        if marks.key is not None and image.map is not None:
            at = [each.name for each in image.map.columns].index(marks.key)
            column = image.map.columns[at]
            keys = decoded(column, [row[at] for row in rows]).to_pylist()
        kept = marks.follows(keys, place)
        chosen = np.frombuffer(kinds, np.int8)[kept].tobytes()
        return [row for row, keeps in zip(rows, kept, strict=True) if keeps], chosen

    # --- batches ----------------------------------------------------------------------------------

    def _close(self, table: SourceTable) -> None:
        found = self._open.pop(table, None)
        if found is not None:
            self._closed.append(found)

    def _batch(self, found: _Open) -> ChangeBatch:
        schema, described = found.image.schema, found.image.map
        assert schema is not None
        assert described is not None
        arrow = schema.arrow
        arrays = [
            fitted(
                partial(decoded, column, self._read(column, values)),
                partial(shown, column, values),
                field_,
                target.type,
                zone=self._server.zone,
                exact=field_.name in schema.exact,
            )
            for column, values, field_, target in zip(
                described.columns, zip(*found.rows, strict=True), schema.fields, arrow, strict=True
            )
        ]
        return ChangeBatch(
            table=found.image.table,
            schema=schema,
            rows=pa.Table.from_arrays(arrays, names=arrow.names),
            kinds=pa.array(np.frombuffer(bytes(found.kinds), np.int8)),
            metadata=self._metadata(found) if self._settings.takes_metadata else None,
        )

    def _read(self, column: LoggedColumn, values: Sequence[object]) -> Sequence[object]:
        """The raw values of a column. Strings that only the server decodes exactly are decoded."""
        in_server_set = column.code in _TEXTS and column.encoding == BY_SERVER
        return self._texts.texts(column.charset, values) if in_server_set else values

    @staticmethod
    def _metadata(found: _Open) -> pa.Table:
        counts, seconds = zip(*found.times, strict=True)
        times = np.repeat(np.array(seconds, np.int64) * 1000, counts)
        return metadata_of(found.image.table, pa.array(times))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def metadata_of(table: SourceTable, times_ms: pa.Array) -> pa.Table:
    """The metadata columns of rows: their database and table, and the time of the change."""
    count = len(times_ms)
    return pa.table(
        {
            "database_name": pa.repeat(pa.scalar(table.database), count),
            "table_name": pa.repeat(pa.scalar(table.name), count),
            "op_ts": times_ms.cast(pa.timestamp("ms", "UTC")),
        }
    )
