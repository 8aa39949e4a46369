"""Walks the syntax tree of a query, as DuckDB's `json_serialize_sql` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Node", "nodes", "selects"]

Node: TypeAlias = dict[str, object]


def nodes(tree: object) -> Iterator[Node]:
    """All nodes of a tree, each before the nodes below it."""
    left = [tree]  # no recursion: a tree may be deeper than Python's stack
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left += reversed(each.values())
        elif isinstance(each, list):
            left += reversed(each)


def selects(tree: object) -> Iterator[Node]:
    """Every SELECT of a parsed query."""
    return (each for each in nodes(tree) if each.get("type") == "SELECT_NODE")
