"""Facts from the syntax tree of a query that show how much of its tables a read may skip."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compared_columns", "stops_early"]


def compared_columns(tree: object) -> frozenset[str]:
    """The columns, in lower case, that a query compares with constants or with results of queries.

    A condition on such a column may leave out files. Columns of different tables are not
    distinguished.
    """
    return frozenset(_compared(tree))


def stops_early(tree: object) -> bool:
    """Whether a parsed query has a LIMIT without an ORDER BY, so that few rows may be read."""
    if isinstance(tree, list):
        return any(map(stops_early, tree))
    if not isinstance(tree, dict):
        return False
    modifiers = tree.get("modifiers")
    kinds = {
        str(each.get("type"))
        for each in (modifiers if isinstance(modifiers, list) else ())
        if isinstance(each, dict)
    }
    limited = any(kind.startswith("LIMIT") for kind in kinds) and "ORDER_MODIFIER" not in kinds
    return limited or any(map(stops_early, tree.values()))


def _compared(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _compared(each)
        return
    if not isinstance(node, dict):
        return
    kind = str(node.get("type"))
    if kind.startswith("COMPARE_") or node.get("subquery_type") == "ANY":
        sides = [node.get(key) for key in ("left", "right", "input", "child")]
        children = node.get("children")
        sides += children[:1] if isinstance(children, list) else []
        columns = [_column(side) for side in sides]
        if sum(name is not None for name in columns) == 1:
            yield from filter(None, columns)
    for each in node.values():
        yield from _compared(each)


def _column(node: object) -> str | None:
    if not isinstance(node, dict) or node.get("class") != "COLUMN_REF":
        return None
    names = node.get("column_names")
    return str(names[-1]).lower() if isinstance(names, list) and names else None
