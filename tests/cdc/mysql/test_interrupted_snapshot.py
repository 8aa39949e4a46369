from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.cdc.mysql.connection import MySqlSettings
from lakecore.cdc.mysql.log_batches import Marks, Place
from lakecore.cdc.mysql.snapshot import Chunk
from lakecore.cdc.mysql.source import MySqlSource
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import seeded
from tests.cdc.sources import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONF = {"hostname": "h", "username": "u", "password": "p", "database-name": "d"}
TABLE = SourceTable("d", "t")
PLACE = LogPlace.of("log.1", 4)


def rows_read(key: Sequence[str], marks: Marks) -> int:
    """The number of rows of a snapshot of a table that is one stream."""
    shape = schema({"id": "INT NOT NULL"}, key)
    rows = pa.table({"id": pa.array([1, 2], pa.int32())}, schema=shape.arrow)

    class Faked(MySqlSource):
        def _stream(self, *_: object) -> Iterator[Chunk]:
            yield Chunk(schema=shape, rows=rows, place=PLACE)

        def read(self) -> int:
            server: Any = None
            place = Place(marks={TABLE: marks})
            return sum(step.count for step in self._snapshot(server, place))

    source = Faked(MySqlSettings.parse(CONF), seeded(1))
    try:
        return source.read()
    finally:
        source.close()


def test_a_table_with_a_primary_key_is_read_again() -> None:
    assert rows_read(["id"], Marks(places=[PLACE])) == 2


def test_a_table_without_one_is_read_once() -> None:
    assert rows_read([], Marks()) == 2
    with pytest.raises(InvalidRequest, match="was interrupted") as refusal:
        rows_read([], Marks(places=[PLACE]))
    assert refusal.value.facts["table"] == "d.t"
