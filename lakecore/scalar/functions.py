"""The functions that an expression may call: those that depend only on their arguments.

DuckDB's own catalog describes each function. Deterministic scalar functions are allowed, and macros
made of them. These are refused: aggregates and window functions, which need several rows; functions
that change the number of rows; random functions; and functions that describe the database itself.
The clock is read once per statement, by `syntax.py`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.scalar.engine import catalog, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.scalar.engine import Json, Node

_ROWS = frozenset({"unnest", "unlist"})
_SURROUNDINGS = frozenset(
    {
        "alias",
        "current_database",
        "current_schema",
        "current_schemas",
        "current_setting",
        "getenv",
        "getvariable",
        "in_search_path",
        "json_deserialize_sql",
        "json_serialize_plan",
        "json_serialize_sql",
        "txid_current",
        "version",
    }
)
_CHANCE = frozenset({"gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
_PURE = frozenset({"error"})
"""Allowed although DuckDB declares it volatile: its result depends only on its argument."""


def check_function(name: str, argument_count: int) -> None:
    """Raise Unsupported for a function that an expression may not call."""
    refusal = _refusal(name.lower())
    if name.lower() == "age" and argument_count == 1:
        refusal = "reads the clock: give it now() as its first argument"
    if refusal is not None:
        raise Unsupported(f"an SQL expression cannot call a function that {refusal}", function=name)


def is_function(name: str) -> bool:
    """Whether DuckDB has a function of that name."""
    return name.lower() in _kinds()


def refusal_in_query(name: str) -> str | None:
    """The reason why the query of a stored view must not call a function; None if it may.

    It may call functions of DuckDB that compute a value, also from the clock or by chance, and
    aggregate and window functions.
    """
    name = name.lower()
    kinds = _kinds().get(name, {})
    if name in _CHANCE or name in _ROWS or "aggregate" in kinds or "window" in kinds:
        return None
    return _refusal(name) if kinds else "is none of DuckDB's"


@cache
def reserved_words() -> frozenset[str]:
    """The keywords that cannot be a column name without quotes."""
    rows = catalog(
        "SELECT lower(keyword_name) FROM duckdb_keywords() "
        "WHERE keyword_category IN ('reserved', 'type_function')"
    )
    return frozenset(str(word) for (word,) in rows)


def takes_lambda(name: str) -> bool:
    """Whether an argument of the function may be a lambda."""
    return name.lower() in _lambda_functions()


def calls(tree: Json) -> Iterator[Node]:
    """The function calls of a syntax tree."""
    if isinstance(tree, dict):
        if tree.get("class") == "FUNCTION":
            yield tree
        for value in tree.values():
            yield from calls(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from calls(each)


@cache
def _refusal(name: str) -> str | None:
    """The reason why a function is not allowed; None if it is allowed, or does not exist."""
    if name.startswith("__") or name in _SURROUNDINGS:
        return "tells of the database and not of its arguments"
    if name in _ROWS:
        return "gives another number of rows"
    kinds = _kinds().get(name, {})
    if "scalar" in kinds:
        volatile = "VOLATILE" in kinds["scalar"] and name not in _PURE
        return "gives another value at each call" if volatile else None
    if "macro" in kinds:
        return next(filter(None, map(_refusal_of_macro, kinds["macro"])), None)
    if "aggregate" in kinds or "window" in kinds:
        return "looks at several rows: an aggregate or window function"
    return "gives a table" if kinds else None


def _refusal_of_macro(definition: str) -> str | None:
    tree = parse(definition)
    if _holds(tree, "SUBQUERY"):
        return "is a query"
    for call in calls(tree):
        refusal = _refusal(str(call["function_name"]).lower())
        if refusal is not None:
            return refusal
    words = {str(name) for name in _column_words(tree)}
    clock = words & {"current_timestamp", "current_date", "current_time"}
    return "reads the clock: use now()" if clock else None


def _holds(tree: Json, kind: str) -> bool:
    if isinstance(tree, dict):
        return tree.get("class") == kind or any(_holds(each, kind) for each in tree.values())
    return isinstance(tree, list) and any(_holds(each, kind) for each in tree)


def _column_words(tree: Json) -> Iterator[Json]:
    if isinstance(tree, dict):
        names = tree.get("column_names")
        if isinstance(names, list) and len(names) == 1:
            yield names[0]
        for value in tree.values():
            yield from _column_words(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from _column_words(each)


@cache
def _kinds() -> dict[str, dict[str, frozenset[str]]]:
    """For each function name and kind: its stabilities, or the definitions of a macro."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    rows = catalog(
        "SELECT lower(function_name), function_type, coalesce(macro_definition, stability, '') "
        "FROM duckdb_functions()"
    )
    for name, kind, fact in rows:
        kinds = found.setdefault(str(name), {})
        kinds[str(kind)] = kinds.get(str(kind), frozenset()) | {str(fact)}
    return found


@cache
def _lambda_functions() -> frozenset[str]:
    rows = catalog(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
        "WHERE list_contains(parameter_types, 'LAMBDA')"
    )
    return frozenset(str(name) for (name,) in rows)
