"""The metadata columns in a query: which tables provide them, and which `*` must omit them.

A metadata column is hidden: as in Spark, a query gets it only if the query names it. The view of a
table includes the metadata columns that the query names, so each `*` over such a view must omit
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakecore.errors import Unsupported
from lakecore.sql.semi_joins import sources_of
from lakecore.sql.syntax_tree import selects
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.sql.syntax_tree import Node

__all__ = ["PREFIX", "stars_without", "wanted_at"]

PREFIX = "__paimon_"
_NOWHERE = 2**63
_CHANGES = ("exclude_list", "qualified_exclude_list", "replace_list", "rename_list", "expr")


def wanted_at(tree: object) -> dict[int, tuple[str, ...]]:
    """The names of the metadata columns that a query reads from the table at each position.

    A name without a table belongs to all tables of its own SELECT. A name with a table may also
    refer to tables of the surrounding queries.
    """
    found: dict[int, set[str]] = {}
    for select in selects(tree):
        own = set(_names(select, nested=False))
        every = set(_names(select, nested=True))
        for source, place in sources_of(select.get("from_table")):
            if place is not None:
                names = {name for qualifier, name in own if qualifier is None}
                names |= {name for qualifier, name in every if qualifier == source.lower()}
                found.setdefault(place, set()).update(names)
    return {place: tuple(sorted(names)) for place, names in found.items() if names}


def stars_without(
    tree: object, hidden_at: Mapping[int, Sequence[str]]
) -> list[tuple[int, int, str]]:
    """Text patches that make `*` omit the metadata columns; `hidden_at` has those of each table.

    Raises Unsupported for a `*` that cannot be patched.
    """
    patches: list[tuple[int, int, str]] = []
    if not hidden_at:
        return patches
    for select in selects(tree):
        sources = {
            source.lower(): hidden_at[place]
            for source, place in sources_of(select.get("from_table"))
            if place is not None and place in hidden_at
        }
        if not sources:
            continue
        if _joins_naturally(select.get("from_table")):
            raise Unsupported("NATURAL JOIN with metadata columns: write JOIN ... USING")
        for item in cast("list[object]", select.get("select_list")):
            is_star = isinstance(item, dict) and item.get("class") == "STAR"
            if is_star:
                patches += _patched(cast("Node", item), sources)
            elif next(_stars(item), None) is not None:
                raise Unsupported(
                    "a metadata column is next to a `*` in an expression; name the columns"
                )
    return patches


def _patched(star: Node, sources: Mapping[str, Sequence[str]]) -> list[tuple[int, int, str]]:
    relation = str(star.get("relation_name") or "").lower()
    lists = [sources.get(relation, ())] if relation else list(sources.values())
    names = sorted({name for names in lists for name in names})
    if not names:
        return []
    place, length = cast("int", star["query_location"]), star.get("query_location_length")
    if place >= _NOWHERE or star.get("columns") or any(star.get(key) for key in _CHANGES):
        raise Unsupported(
            "a metadata column is next to a `*` that is not plain; name the columns", columns=names
        )
    end = place + cast("int", length)
    return [(end, end, f" EXCLUDE ({', '.join(map(quoted, names))})")]


def _names(node: object, *, nested: bool, top: bool = True) -> Iterator[tuple[str | None, str]]:
    """The metadata columns that a SELECT names, each with its table's name in lower case."""
    if isinstance(node, list):
        for each in node:
            yield from _names(each, nested=nested, top=False)
    elif isinstance(node, dict):
        if node.get("type") == "SELECT_NODE" and not top and not nested:
            return
        if node.get("class") == "COLUMN_REF":
            names = [str(each) for each in cast("list[object]", node.get("column_names"))]
            if names[-1].lower().startswith(PREFIX):
                yield names[-2].lower() if len(names) > 1 else None, names[-1].lower()
            elif len(names) > 1 and names[-2].lower().startswith(PREFIX):
                # A field of the partition: `__paimon_partition.dt`, or with the table before it.
                yield names[-3].lower() if len(names) > 2 else None, names[-2].lower()
        for each in node.values():
            yield from _names(each, nested=nested, top=False)


def _stars(node: object) -> Iterator[Node]:
    if isinstance(node, list):
        for each in node:
            yield from _stars(each)
    elif isinstance(node, dict) and node.get("type") != "SELECT_NODE":
        if node.get("class") == "STAR":
            yield node
        for each in node.values():
            yield from _stars(each)


def _joins_naturally(node: object) -> bool:
    return isinstance(node, dict) and (
        (node.get("type") == "JOIN" and node.get("ref_type") == "NATURAL")
        or any(_joins_naturally(node.get(side)) for side in ("left", "right"))
    )
