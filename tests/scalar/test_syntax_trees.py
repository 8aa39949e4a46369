"""Trees have one form, whatever the version of DuckDB (`make floors` runs this at the oldest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from lakecore.errors import Unsupported
from lakecore.scalar.pruning import call_of, cast_of, constant_of
from lakecore.scalar.syntax_trees import NOWHERE, syntax_tree, text_of
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Iterator

    Node = dict[str, Any]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        yield made


def expression(text: str, connection: duckdb.DuckDBPyConnection) -> Node:
    (statement,) = syntax_tree(connection, f"SELECT {text}")["statements"]
    (found,) = statement["node"]["select_list"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "INTEGER", "5"),
        ("-5", "INTEGER", "-5"),
        ("123456789012345678901234567890", "INTEGER", "123456789012345678901234567890"),
        ("1.50", "NUMERIC", "1.50"),
        ("'a''b'", "STRING", "a'b"),
        ("E'a\\n'", "STRING", "a\n"),
        ("true", "BOOLEAN", "true"),
        ("FALSE", "BOOLEAN", "false"),
        ("NULL", "NULL_LITERAL", ""),
    ],
)
def test_a_literal_has_a_kind_and_a_text(
    text: str, kind: str, value: str, connection: duckdb.DuckDBPyConnection
) -> None:
    assert constant_of(expression(text, connection)) == (kind, value)


def test_a_slice_without_an_end_is_a_tree(connection: duckdb.DuckDBPyConnection) -> None:
    assert expression("l[-1:]", connection)["type"] == "ARRAY_SLICE"


@pytest.mark.parametrize("text", ["1e3", "25e-1", "1.5E300"])
def test_a_double_stays_a_double(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    found = constant_of(expression(text, connection))

    assert found is not None
    assert found[0] == "NUMERIC"
    assert "e" in found[1].lower()
    assert float(found[1]) == float(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("DATE '2026-01-01'", "DATE"),
        ("'2026-01-01'::DATE", "DATE"),
        ("CAST(x AS BIGINT)", "BIGINT"),
        ("'\\xAB'::BLOB", "BLOB"),
        ("x::DECIMAL(10, 2)", None),
        ("TRY_CAST(x AS INTEGER)", None),
        ("x::INTEGER[]", None),
    ],
)
def test_a_cast_names_its_type(
    text: str, kind: str | None, connection: duckdb.DuckDBPyConnection
) -> None:
    found = cast_of(expression(text, connection))

    assert (None if found is None else found[1]) == kind


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("abs(x)", "abs", 1),
        ("x + 1", "+", 2),
        ("x LIKE 'a%'", "~~", 2),
        ("[1, 2, x]", "list_value", 3),
        ("x AT TIME ZONE 'UTC'", "timezone", 2),
        ("now()", "now", 0),
    ],
)
def test_a_call_has_arguments_and_no_schema(
    text: str, name: str, count: int, connection: duckdb.DuckDBPyConnection
) -> None:
    found = call_of(expression(text, connection))

    assert found is not None
    assert (found[0], len(found[1])) == (name, count)


@pytest.mark.parametrize("text", ["main.abs(x)", 'Main . "abs"(x)', "system.main.abs(x)"])
def test_a_schema_that_is_written_stays(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    found = expression(text, connection)

    assert found["schema"].lower() == "main"
    assert call_of(found) is None


def test_a_named_argument_has_its_name(connection: duckdb.DuckDBPyConnection) -> None:
    found = expression("struct_pack(a := 1, b := x)", connection)

    assert [each["name"] for each in found["arguments"]] == ["a", "b"]
    assert call_of(found) is None


def test_not_in_is_not_over_in(connection: duckdb.DuckDBPyConnection) -> None:
    found = expression("x NOT IN (1, 2)", connection)

    assert found["type"] == "OPERATOR_NOT"
    (inner,) = found["children"]
    assert (inner["type"], len(inner["children"])) == ("COMPARE_IN", 3)


@pytest.mark.parametrize(
    ("text", "arrow"), [("f(x, lambda y: y)", False), ("f(x, y -> y)", True), ("x -> 'a'", True)]
)
def test_a_lambda_has_its_syntax(
    text: str, connection: duckdb.DuckDBPyConnection, *, arrow: bool
) -> None:
    found = expression(text, connection)
    made = found if found["class"] == "LAMBDA" else found["arguments"][1]["expression"]

    assert made["syntax_type"] == ("SINGLE_ARROW" if arrow else "LAMBDA_KEYWORD")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('SELECT 名, "x y" . "a""b"  + 1', ["名", '"x y" . "a""b"']),
        ("SELECT a.b /* ( */ . c[1]", ["a.b /* ( */ . c"]),
        ("SELECT  *  FROM t", ["*"]),
        ("SELECT t . *, x FROM t", ["t . *", "x"]),
        ("SELECT 1 WHERE x NOT IN ( SELECT '(' )", ["x", "( SELECT '(' )"]),
        ("SELECT 1 WHERE (x IN (SELECT (1))) AND y", ["x", "(SELECT (1))", "y"]),
        ("SELECT now ( )", ["now ( )"]),
    ],
)
def test_places_are_those_of_the_text(
    text: str, written: list[str], connection: duckdb.DuckDBPyConnection
) -> None:
    found: list[tuple[int, str]] = []

    def collect(tree: object) -> None:
        if isinstance(tree, list):
            for each in tree:
                collect(each)
        elif isinstance(tree, dict):
            place, length = tree.get("query_location"), tree.get("query_location_length")
            called = tree.get("class") == "FUNCTION" and not tree.get("arguments")
            if called or tree.get("class") in ("COLUMN_REF", "STAR", "SUBQUERY"):
                assert isinstance(place, int)
                assert isinstance(length, int)
                found.append((place, text.encode()[place : place + length].decode()))
            for each in tree.values():
                collect(each)

    collect(syntax_tree(connection, text)["statements"])

    assert [each for _, each in sorted(found)] == written


@pytest.mark.parametrize("text", ["FROM t", "TABLE t", "DESCRIBE t"])
def test_what_is_not_written_has_no_place(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    (statement,) = syntax_tree(connection, text)["statements"]
    (star,) = statement["node"]["select_list"]

    assert star["query_location"] == NOWHERE


def test_a_position_counts_bytes(connection: duckdb.DuckDBPyConnection) -> None:
    assert int(syntax_tree(connection, "SELECT 名 = = 1")["position"]) == 13


def test_conditions_become_text_again(connection: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT 1 WHERE a = 1.5 AND b IN ('x', NULL) AND c NOT IN (1, 2) AND NOT d"
    (statement,) = syntax_tree(connection, text)["statements"]
    written = text_of(connection, statement["node"]["where_clause"]["children"])
    rows = "(VALUES (1.5, 'x', 3, false), (1.5, 'x', 1, false), (2, 'x', 3, false)) t(a, b, c, d)"

    assert connection.sql(f"FROM {rows} WHERE {written}").fetchall() == [(1.5, "x", 3, False)]


@pytest.mark.parametrize("text", ["x'AB'", "X'AB'"])
def test_bits_are_no_strings(text: str, connection: duckdb.DuckDBPyConnection) -> None:
    if DUCKDB_1:
        with pytest.raises(Unsupported, match="install duckdb>=2"):
            syntax_tree(connection, f"SELECT {text}")
    else:
        assert constant_of(expression(text, connection)) == ("HEX", "AB")


def test_a_query_of_with_is_there_once(connection: duckdb.DuckDBPyConnection) -> None:
    text = "WITH q AS MATERIALIZED (SELECT 1 FROM t) SELECT * FROM q"
    tables = str(syntax_tree(connection, text)).count("'table_name': 't'")

    assert tables == 1
