from __future__ import annotations

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.cdc.mysql.column import Code, Definition, LoggedColumn, definitions_of
from lakecore.cdc.mysql.connection import MySqlSettings, StartupMode
from lakecore.cdc.mysql.log_batches import Marks, marks_from_json, marks_to_json
from lakecore.errors import InvalidRequest

CONF = {
    "hostname": "h",
    "username": "u",
    "password": "a-secret-word",
    "database-name": "shop_.*",
}


def test_settings_show_no_password() -> None:
    settings = MySqlSettings.parse(CONF)

    assert "a-secret-word" not in repr(settings)
    assert settings.port == 3306
    assert settings.mode is StartupMode.INITIAL
    assert settings.takes("shop_1", "t")
    assert not settings.takes("old_shop_1", "t")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"hostnam": "x"}, "nearest=hostname"),
        ({"port": "x"}, "whole number"),
        ({"scan.startup.mode": "later"}, "unknown startup mode"),
        ({"scan.startup.mode": "specific-offset"}, "specific-offset needs"),
        ({"scan.startup.mode": "timestamp"}, "timestamp-millis"),
        ({"server-time-zone": "Mars"}, "unknown time zone"),
        ({"table-name": "("}, "regular expression"),
    ],
)
def test_bad_option_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        MySqlSettings.parse({**CONF, **more})


def test_missing_option_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"missing=\[hostname, password\]"):
        MySqlSettings.parse({"username": "u", "database-name": "d"})


def test_places_are_ordered_by_file_and_offset() -> None:
    places = [LogPlace.of("b.000010", 4), LogPlace.of("b.000009", 99), LogPlace.of("b.000010", 3)]

    assert [each.to_json() for each in sorted(places)] == [
        ["b.000009", 99],
        ["b.000010", 3],
        ["b.000010", 4],
    ]


def test_change_counts_if_it_came_after_the_chunk_of_its_key() -> None:
    early, late = LogPlace.of("b.1", 100), LogPlace.of("b.1", 200)
    marks = Marks(key="id", bounds=(10,), places=[early, late], done=True)

    assert marks.follows([1, 9, 10, 99], LogPlace.of("b.1", 100)).tolist() == [False] * 4
    assert marks.follows([1, 9, 10, 99], LogPlace.of("b.1", 150)).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert marks.follows([1, 9, 10, 99], LogPlace.of("b.1", 201)).tolist() == [True] * 4


def test_marks_come_back_from_a_position() -> None:
    place = LogPlace.of("b.1", 100)
    marks = {
        SourceTable("d", "t"): Marks("id", (10, 20), [place, place, LogPlace.of("b.2", 4)], True),
        SourceTable("d", "u"): Marks(),
    }

    assert marks_from_json(marks_to_json(marks)) == marks
    with pytest.raises(InvalidRequest, match="not a position"):
        marks_from_json([{"database": 1}])


def test_column_takes_the_definition_of_the_server_if_both_are_one_storage() -> None:
    logged = [
        LoggedColumn(name="f", code=Code.TINY),
        LoggedColumn(name="j", code=Code.BLOB, size=4, encoding="utf8"),
        LoggedColumn(name="v", code=Code.VARCHAR, length_bytes=80, bytes_per_character=4,
                     encoding="utf8"),
        LoggedColumn(name="w", code=Code.LONG),
    ]  # fmt: skip
    defined = {
        "f": Definition(name="f", type="tinyint(1)"),
        "j": Definition(name="j", type="json"),
        "v": Definition(name="v", type="varchar(30)"),
        "w": Definition(name="w", type="bigint(20)"),
    }

    found = [each.type for each in definitions_of(logged, defined)]

    assert found == ["tinyint(1)", "json", "varchar(20)", "int"]
