"""Rows that TRUNCATE, or a change of partitions, removes at the source."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.cdc.events import Cleared, Step
from lakecore.cdc.mysql.statements import removal_of
from lakecore.cdc.quarantine import OnTableError
from lakecore.errors import InvalidRequest
from lakecore.io.stores.store import MemoryStore
from tests.cdc.sources import ListSource, PlainRules, batch
from tests.cdc.test_sink import ONE, A, B, parts, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.events import Position, SourceTable

STEPS = [
    [
        batch(A, ONE, *(("+I", number, "x") for number in range(6))),
        batch(B, ONE, ("+I", 100, "b"), ("+I", 101, "b")),
    ],
    [batch(A, ONE, ("+I", 9, "y"))],
]


class Clearing(ListSource):
    """After its first step, A has only the given keys."""

    keys: Sequence[int] = (2, 4, 9)
    name: str = "id"

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            if step.position["step"] == 2:
                keys = pa.table({self.name: pa.array(self.keys, pa.int64())})
                yield Step(cleared=Cleared(table=A, keys=keys), position={"step": 1})
            yield step


@pytest.mark.parametrize(("keys", "left"), [((2, 4, 9), [2, 4, 9]), ((), [9])])
def test_rows_that_the_source_lacks_go(keys: Sequence[int], left: Sequence[int]) -> None:
    store = MemoryStore()
    catalog, sink = parts(store)
    source = Clearing(STEPS)
    source.keys = keys
    sink.run(source, until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == left
    assert [row[0] for row in rows(catalog, "d.b")] == [100, 101]


def test_a_crash_between_the_removal_and_its_position_is_harmless() -> None:
    store = MemoryStore()
    catalog, sink = parts(store)
    calls = chain((False,), repeat(True))  # a last commit after the removal, the second step
    sink.run(Clearing(STEPS), stops=lambda: next(calls))
    assert [row[0] for row in rows(catalog, "d.a")] == [2, 4], "the position is before it"

    _, again = parts(store, seed=2)
    again.run(Clearing(STEPS), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [2, 4, 9]


@pytest.mark.parametrize(
    ("rules", "name", "reason"),
    [
        (PlainRules(shards={"a": "all", "b": "all"}), "id", "one of several tables"),
        (PlainRules(), "v", "another key"),
        (PlainRules(options={"bucket": "1", "ignore-delete": "true"}), "id", "does not remove"),
    ],
)
def test_a_target_that_cannot_follow_is_set_aside(
    rules: PlainRules, name: str, reason: str
) -> None:
    source = Clearing(STEPS)
    source.name = name
    _, sink = parts(MemoryStore(), rules, on_table_error=OnTableError.QUARANTINE)
    progress = sink.run(source, until_caught_up=True)
    assert [each.table for each in progress.quarantine] == [A]
    assert reason in progress.quarantine[0].reason

    _, sink = parts(MemoryStore(), rules)
    with pytest.raises(InvalidRequest, match="removed rows"):
        sink.run(source, until_caught_up=True)


def test_a_key_of_another_type_is_a_clear_error() -> None:
    source = Clearing(STEPS)
    source.keys = (5_000_000_000,)
    _, sink = parts(MemoryStore())
    with pytest.raises(InvalidRequest, match="another type than the key of the target"):
        sink.run(source, until_caught_up=True)


def _shown(tables: Sequence[SourceTable]) -> list[str]:
    return [str(each) for each in tables]


@pytest.mark.parametrize(
    ("text", "tables", "adds"),
    [
        ("TRUNCATE t", ["d.t"], False),
        ("/* app */ truncate table `e` . `x y`", ["e.x y"], False),
        ("ALTER TABLE t DROP PARTITION IF EXISTS p0", ["d.t"], False),
        ("ALTER ONLINE TABLE e.t COMMENT 'a', TRUNCATE PARTITION p0, p1", ["e.t"], False),
        ("ALTER TABLE t /*!50100 DROP PARTITION p0 */", ["d.t"], False),
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE e.u", ["d.t", "e.u"], True),
        ("ALTER TABLE t CONVERT PARTITION p0 TO TABLE u", ["d.t", "d.u"], True),
        (
            "ALTER TABLE t CONVERT TABLE u TO PARTITION p0 VALUES LESS THAN (3)",
            ["d.t", "d.u"],
            True,
        ),
        ("ALTER TABLE t IMPORT PARTITION p0 TABLESPACE", ["d.t"], True),
    ],
)
def test_what_a_statement_removes(text: str, tables: list[str], *, adds: bool) -> None:
    found = removal_of(text, "d")

    assert found is not None
    assert (_shown(found.tables), found.adds) == (tables, adds)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD COLUMN a int COMMENT 'DROP PARTITION p0'",
        "ALTER TABLE t ADD PARTITION (PARTITION p9 VALUES LESS THAN (9))",
        "ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION p1 VALUES LESS THAN (9))",
        "ALTER TABLE t DROP COLUMN `truncate partition`",
        "CREATE TABLE t (id int) -- DROP PARTITION",
        "DROP TABLE t",
    ],
)
def test_other_statements_remove_nothing(text: str) -> None:
    assert removal_of(text, "d") is None
