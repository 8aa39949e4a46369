"""What SQL text is taken, and in what words the rest is refused."""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.scalar.syntax import _refusal_of_macro, check_fields, parse_sql
from lakecore.scalar.values import LOCAL, Setting, matches, parse_where, types_of
from tests.conditions import kept
from tests.versions import NO_EXPRESSION, SYMMETRIC

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "Item": ["tea", "Pot", None],
        "at": pa.array([NOON, NOON - dt.timedelta(days=9), None], pa.timestamp("ms", "UTC")),
        "day": pa.array([NOON.date(), dt.date(2025, 1, 1), None]),
        "st": pa.array([{"x": 1, "Y z": "a"}, {"x": 2, "Y z": "b"}, None]),
        "l": [[1, 2], [], None],
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "select": [1, 2, 3],
        "名": [1, 2, 3],
        "now": [1, 2, 3],
        "A": [1, 2, 3],
        "a": [3, 2, 1],
        'q"t': [1, 2, 3],
        "a.b": [1, 2, 3],
        "*": [1, 2, 3],
        "": [1, 2, 3],
    }
)
SETTING = Setting(
    now_ms=lambda: int(NOON.timestamp() * 1000), zone="Europe/Berlin", table="shop.orders"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("id = 1", [0]),
        ("ID = 1", [0]),
        ("upper(item) = 'POT'", [1]),
        ("item ILIKE 'P%'", [1]),
        ("item SIMILAR TO '[tP].*'", [0, 1]),
        ("id * 2 + 1 = 5", [1]),
        ("id % 2 = 1 OR item IS NULL", [0, 2]),
        ("CASE WHEN id = 1 THEN item END = 'tea'", [0]),
        ("coalesce(item, 'none') = 'none'", [2]),
        ("st.x = 1", [0]),
        ("orders.st.x = 1", [0]),
        ("shop.orders.id = 2", [1]),
        ("st.\"Y z\" = 'b'", [1]),
        ("st['x'] = 2", [1]),
        ("l[1] = 1", [0]),
        ("len(l) = 0", [1]),
        ("list_contains(l, 2)", [0]),
        ("list_sum(l) = 3", [0]),
        ("list_filter(l, lambda x: x > id) = [2]", [0]),
        ("[x for x in l if x > 1] = [2]", [0]),
        ("m['k'] = 1", [0]),
        ('"select" = 3', [2]),
        ("名 = 2 -- a comment", [1]),
        ("A = 1", [0]),
        ("a = 1", [2]),
        ('"q""t" = 2', [1]),
        ('"a.b" = 2', [1]),
        ('"*" = 2', [1]),
        ("now = 2", [1]),
        ("now() = at", [0]),
        ("current_timestamp - INTERVAL 1 DAY > at", [1]),
        ("day = current_date", [0]),
        ("localtime = TIME '13:00:00'", [0, 1, 2]),
        ("at = '2026-01-01 13:00:00'", [0]),
        ("at::DATE = DATE '2026-01-01'", [0]),
        ("extract(year FROM day) = 2025", [1]),
        ("(id, A) = (2, 2)", [1]),
        ("id IN (1, NULL)", [0]),
        ("id NOT IN (1, NULL)", []),
        ("try_cast(item AS INTEGER) IS NULL", [0, 1, 2]),
        ("id IS NOT NULL IS TRUE", [0, 1]),
        ("nullif(id, 1) IS NULL", [0, 2]),
        ("split_part(item, 'e', 2) = 'a'", [0]),
    ],
)
def test_a_condition_is_what_duckdb_says(text: str, found: list[int]) -> None:
    sql, _ = parse_where(text, ROWS.schema, SETTING)

    assert sql.text == text
    assert kept_at(text) == found


def kept_at(text: str) -> list[int]:
    return kept(text, ROWS, SETTING)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id >", "bad SQL condition. text=id > reason=the text ends too early position=5"),
        ("名 = = 1", 'reason=syntax error at or near "=" position=5'),
        ("id = 1 id = 2", 'reason=syntax error at or near "id" position=8'),
        ("id BETWEEN SYMMETRIC 4 AND 2", SYMMETRIC),
        ("", NO_EXPRESSION),
        (" -- nothing", NO_EXPRESSION),
        ("DROP TABLE x", "bad SQL condition"),
        ("id = 1; id = 2", "bad SQL condition"),
        ("id = 1) OR (id = 2", None),
        ("id = 1) FROM x WHERE (true", "not an SQL condition"),
        ("id = 1), (true", "not an SQL condition"),
        ("1) UNION SELECT (2", "not an SQL condition"),
        ("1) AS a, (2", "not an SQL condition"),
        ("(" * 900 + "id = 1" + ")" * 900, None),
        ("NOT " * 2000 + "true", "nested too deeply"),
        ("id = 1\0", "zero byte"),
        ("id = '\ud800'", "not Unicode"),
        ("itme = 'tea'", "unknown column. column=itme did_you_mean=Item"),
        ('item = "tea"', "unknown column; a text stands in single quotes. column=tea"),
        ("other.id = 1", "unknown column. column=other.id"),
        ("st.y = 1", 'reason=Could not find key "y" in struct'),
        ("id", "a condition is true or false. text=id type=int32"),
        ("'true'", "a condition is true or false"),
        ("id, id", "a condition is true or false"),
        ("lower(id, 1) = 'a'", "reason=No function matches the given name and argument types"),
        ("lowr(item) = 'a'", "reason=Scalar Function with name lowr does not exist! Did you mean"),
        ("id = 1::foo", "reason=Type with name foo does not exist"),
    ],
)
def test_bad_sql_is_explained_in_a_sentence(text: str, message: str | None) -> None:
    if message is None:
        parse_where(text, ROWS.schema, SETTING)
        return
    with pytest.raises(InvalidRequest, match=re.escape(message)) as caught:
        parse_where(text, ROWS.schema, SETTING)
    shown = str(caught.value)

    assert "\n" not in shown
    assert not re.search(r"_lakecore|sqlglot|Exception|Error:|LINE \d", shown)


@pytest.mark.parametrize(
    "text",
    [
        "id IN (SELECT 1)",
        "SELECT 1",
        "EXISTS (SELECT 1)",
        "id = (SELECT 1)",
        "sum(id) > 1",
        "count(*) > 1",
        "row_number() OVER () = 1",
        "sum(id) OVER () = 1",
        "random() > 0.5",
        "uuid() IS NULL",
        "nextval('s') = 1",
        "unnest(l) = 1",
        "id = ?",
        "id = $1",
        "#1 = 1",
        "* = 1",
        "COLUMNS('id') = 1",
        "list_transform(l, lambda x: random()) = []",
        "read_csv('/etc/passwd') IS NULL",
        "read_text('/etc/passwd') = ''",
        "glob('/*') = ''",
        "current_setting('home_directory') = ''",
        "getenv('HOME') = ''",
        "getvariable('x') = 1",
        "current_database() = 'memory'",
        "json_serialize_plan('SELECT 1') IS NOT NULL",
        "alias(id) = 'id'",
        "ago(INTERVAL 1 DAY) > at",
        "age(at) > INTERVAL 1 DAY",
        "main.lower(item) = 'tea'",
        "get_block_size('x') = 1",
    ],
)
def test_what_looks_beyond_the_row_is_refused(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        parse_where(text, ROWS.schema, SETTING)

    assert "\n" not in str(caught.value)


def test_names_that_differ_in_case_alone_are_told_apart() -> None:
    with pytest.raises(InvalidRequest, match=r"ambiguous column\. column=ID columns=\[Id, iD\]"):
        parse_where("ID = 1", pa.schema([("Id", pa.int32()), ("iD", pa.int32())]))
    twins = pa.table({"st": pa.array([{"x": 1, "X": 2}])})

    with pytest.raises(Unsupported, match="differ only by case"):
        parse_where("st.X = 2", twins.schema)


def test_the_clock_is_read_once_a_statement() -> None:
    ticks = iter(range(1000, 9000, 1000))
    setting = Setting(now_ms=lambda: next(ticks), zone="UTC")
    sql = parse_sql("[now(), current_timestamp, now()]", {}, setting)

    assert sql.sql.count("1970-01-01 00:00:01.000000+00") == 3


def test_a_value_keeps_its_text_and_its_columns() -> None:
    sql = parse_sql("concat(a, A, upper(item))", types_of(ROWS.schema), LOCAL)

    assert (str(sql), sql.columns) == ("concat(a, A, upper(item))", ("a", "A", "Item"))


@pytest.mark.parametrize("names", [("", ""), ("element1", "element2"), ("Y",)])
def test_fields_of_a_row_without_names_are_taken_by_position(names: tuple[str, ...]) -> None:
    given = pa.struct([(name, pa.int64()) for name in names])

    check_fields("r", given, pa.struct({"x": pa.int64(), "y": pa.int64()}))


@pytest.mark.parametrize("names", [("x", "element2"), ("x", "z")])
def test_a_field_that_a_row_lacks_is_refused(names: tuple[str, ...]) -> None:
    given = pa.struct([(name, pa.int64()) for name in names])

    with pytest.raises(InvalidRequest, match=names[1]):
        check_fields("r", given, pa.struct({"x": pa.int64(), "y": pa.int64()}))


def test_timestamps_of_a_dictionary_are_compared_exactly() -> None:
    coded = ROWS.set_column(2, "at", ROWS["at"].dictionary_encode())
    for text, found in (("13:00:00", [True, False, False]), ("13:00:00.0001", [False] * 3)):
        sql, _ = parse_where(f"at = '2026-01-01 {text}'", ROWS.schema, SETTING)

        assert matches(sql, coded).to_pylist() == found


@pytest.mark.parametrize(
    ("definition", "refusal"),
    [
        ("a + 1", None),
        ("abs((SELECT 1))", "is a query"),
        ("CASE WHEN a THEN 1 ELSE (SELECT 2) END", "is a query"),
        ("a + current_date", "reads the clock: use now()"),
    ],
)
def test_macro_is_judged_by_all_of_its_parts(definition: str, refusal: str | None) -> None:
    assert _refusal_of_macro(definition) == refusal
