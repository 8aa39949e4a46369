"""What a query that a catalog stores may do: it is one SELECT that reads tables and computes.

Whoever stores a view writes text that runs in the processes of its readers. Two checks, each of
them sufficient, keep the text from files, networks, settings and other databases:

1. `check_stored_query`: every node of DuckDB's syntax tree is of a kind that is listed here, and
   every function is one that computes a value from its arguments, the clock or chance;
2. `check_sealed`: after views have replaced the tables, the text is bound in a DuckDB without
   access to files and networks, with locked settings, which holds nothing but these views.

A reader's own macros, attached databases, settings and variables are therefore out of reach, too.
How much a query computes is not limited: a reader stops one that is too expensive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import duckdb

from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.scalar.engine import bind, syntax_tree
from lakecore.scalar.syntax import is_function, refusal_in_query
from lakecore.sql.query_errors import error_of
from lakecore.sql.references import Node, nodes, placeholders
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


_NO_SELECT = "Only SELECT"
_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
_PARTS = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
        "CTE_NODE",
        "BASE_TABLE",
        "EMPTY",
        "EXPRESSION_LIST",
        "JOIN",
        "PIVOT",
        "SUBQUERY",
        "TABLE_FUNCTION",
        "DISTINCT_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "ORDER_MODIFIER",
        "ASCENDING",
        "DESCENDING",
        "ORDER_DEFAULT",
    }
)
_EXPRESSIONS = frozenset(
    {
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "DEFAULT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    }
)
_PLACES = frozenset("/\\.:*?[")
"""Characters of a path or a URL. No query of WITH has one in its name, so that no such name can be
taken for a file."""


def check_stored_query(text: str, view: str, *, foreign: bool = False) -> None:
    """Raise InvalidRequest unless the text is one SELECT over tables, with functions that compute.

    `foreign` says that the text may be of another engine: text that DuckDB cannot parse and
    functions that it does not know are then accepted.
    """
    try:
        plain, references = placeholders(text)
    except LakecoreError:
        if foreign:
            return
        raise
    _check(plain, view, tables=True, foreign=foreign)
    for reference in references:
        # These expressions are no part of the text that DuckDB gets, but are evaluated before it.
        for expression in (reference.moment, *reference.arguments):
            if expression is not None:
                _check(f"SELECT ({expression}\n)", view, tables=False, foreign=foreign)


def check_sealed(text: str, views: Mapping[str, Mapping[str, str]]) -> None:
    """Raise an error unless the text binds in a sealed DuckDB that has only these views.

    `views` has the types of the columns of each view, by its name.
    """
    used = {name: types for name, types in views.items() if quoted(name) in text}
    try:
        bind(text, used)
    except duckdb.Error as error:
        raise error_of(error) from error


def _check(text: str, view: str, *, tables: bool, foreign: bool) -> None:
    tree = syntax_tree(text)
    reason = str(tree.get("error_message", "")).partition("\n")[0]
    if tree["error"] and foreign and not reason.startswith(_NO_SELECT):
        return
    statements = cast("list[Node]", tree.get("statements", []))
    if len(statements) != 1:
        facts = {"reason": reason} if reason and not reason.startswith(_NO_SELECT) else {}
        raise InvalidRequest("the query of a stored view must be one SELECT", view=view, **facts)
    sources: list[int] = []
    """The calls of table functions, which have a list of their own."""
    for node in nodes(statements):
        name = str(node.get("function_name", ""))
        if node.get("type") == "TABLE_FUNCTION":
            sources.append(id(node["function"]))
        refusal = _refusal(node, tables=tables)
        if refusal is None and name:
            refusal = _refusal_of_call(node, name, source=id(node) in sources)
            if foreign and not is_function(name):
                refusal = None
        if refusal is not None:
            what, found = refusal
            raise InvalidRequest(
                "the query of a stored view may only read tables of its catalog and compute; it "
                f"has {what}",
                view=view,
                found=found,
            )


def _refusal(node: Node, *, tables: bool) -> tuple[str, object] | None:
    """What is wrong with a node, apart from the function that it calls; None if it may stay."""
    kind, group = node.get("type"), node.get("class")
    if isinstance(group, str):
        if group not in _EXPRESSIONS:
            return "an expression of this kind", group.lower()
    elif isinstance(kind, str) and kind not in _PARTS and not kind.endswith("_TYPE_INFO"):
        return "a part of this kind", kind.lower()
    if kind == "BASE_TABLE" and not tables:
        return "a query in a version or a time", node.get("table_name")
    like_files = [name for name in _named_queries(node) if _PLACES & set(name)]
    return ("a name of WITH that could be a file", like_files[0]) if like_files else None


def _refusal_of_call(call: Node, name: str, *, source: bool) -> tuple[str, str] | None:
    if call.get("catalog") or call.get("schema"):
        return "a function with a schema", name
    if source:
        return None if name.lower() in _TABLE_FUNCTIONS else ("this table function", name)
    refusal = refusal_in_query(name)
    return None if refusal is None else (f"a function that {refusal}", name)


def _named_queries(node: Node) -> list[str]:
    ctes = node.get("cte_map")
    entries = ctes.get("map") if isinstance(ctes, dict) else None
    names = [each.get("key") for each in entries or () if isinstance(each, dict)]
    return [str(name) for name in (*names, node.get("cte_name")) if name]
