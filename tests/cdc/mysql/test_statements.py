from __future__ import annotations

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.column import stated_type
from lakecore.cdc.mysql.place import Place
from lakecore.cdc.mysql.statements import column_changes_of
from lakecore.cdc.types.mapping import DEFAULT_MAPPING


@pytest.mark.parametrize(
    ("text", "gone", "come"),
    [
        ("DROP COLUMN c", "c", ""),
        ("DROP c, ADD c int", "c", "c"),
        ("DROP IF EXISTS `C`, ADD COLUMN IF NOT EXISTS c int AFTER a", "c", "c"),
        ("ADD (a int, `b,(` decimal(4,2), c enum('x,y', ')'))", "", "a b,( c"),
        ("ADD COLUMN a int COMMENT 'x, DROP COLUMN b', DROP COLUMN d", "d", "a"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "a b", "a b"),
        ("RENAME COLUMN a TO A", "", ""),
        ("CHANGE a b int", "a", "b"),
        ("DROP PRIMARY KEY, DROP INDEX i, ADD PRIMARY KEY (a), ADD KEY k (c)", "", ""),
        ("ADD CONSTRAINT x CHECK (a > 1), DROP CONSTRAINT y, DROP FOREIGN KEY z", "", ""),
        ("DROP PARTITION p0", "", ""),
        ("DROP `key`, ADD COLUMN index_ int", "key", "index_"),
        ("RENAME TO u", "", ""),
    ],
)  # fmt: skip
def test_names_that_columns_lose_and_get(text: str, gone: str, come: str) -> None:
    found = column_changes_of(f"ALTER TABLE e.t {text}", "d")
    assert found is not None
    assert found.table == SourceTable("e", "t")
    assert (found.gone, found.come) == (frozenset(gone.split()), frozenset(come.split()))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("MODIFY c decimal(9,1) NOT NULL", {"c": "DECIMAL(9, 1) NOT NULL"}),
        ("MODIFY COLUMN c dec, CHANGE a A char", {"c": "DECIMAL(10, 0)", "a": "CHAR(1)"}),
        ("MODIFY c time(6) COMMENT 'NOT NULL'", {"c": "TIME(3)"}),
        ("MODIFY c time", {"c": "TIME(0)"}),
        ("MODIFY c int unsigned", {"c": "BIGINT"}),
        ("MODIFY c double precision", {"c": "DOUBLE"}),
        ("MODIFY c enum('a', 'b')", {"c": "STRING"}),
        ("MODIFY c middleint", {"c": None}),
    ],
)
def test_types_that_columns_get(text: str, types: dict[str, str | None]) -> None:
    found = column_changes_of(f"alter table t {text}", "d")
    assert found is not None
    stated = {
        name: stated_type(each.text, DEFAULT_MAPPING, nullable=each.nullable)
        for name, each in found.retyped.items()
    }
    assert {name: each and str(each) for name, each in stated.items()} == types


def test_a_position_keeps_names_that_are_gone() -> None:
    table, place = SourceTable("d", "t"), Place(gtid="0-1-1")
    assert not place.rename(table, {"b"}, {"a"})
    place = Place.from_json(place.to_json())
    assert not place.rename(table, {"a"}, ())
    assert place.rename(table, (), {"b"})
    assert Place.from_json(place.to_json()) == place
    assert place.renewed == {table}
