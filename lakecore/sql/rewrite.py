"""Rewrites the text of a query for DuckDB, and finds the tables that it names.

1. Tokens: backquotes become double quotes. A table with time travel or a hint, and a table function
   of Paimon, become placeholders.
2. DuckDB parses the text. The tree gives the position of each table and the names defined by WITH.
3. The caller provides a view for each lakecore table. The view's name replaces the table's name in
   the text, with the table's name as alias. All other text is unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.scalar.syntax_trees import syntax_tree
from lakecore.sql.cursor import Cursor
from lakecore.sql.query_errors import syntax_hint
from lakecore.sql.references import PLACEHOLDER, Node, Reference, placeholders, selects
from lakecore.sql.semi_joins import Candidate, candidates, sources_of
from lakecore.sql.tokens import Kind, quoted, syntax_error, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import duckdb

    from lakecore.sql.statements import Chain


# --- metadata columns ----------------------------------------------------------------------------
# The metadata columns in a query: which tables provide them, and which `*` must omit them.
#
# A metadata column is hidden: as in Spark, a query gets it only if the query names it. The view of
# a table includes the metadata columns that the query names, so each `*` over such a view must omit
# them.

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


# --- rewrite -------------------------------------------------------------------------------------

_MAY_HAVE_QUERY = re.compile(r"\b(?:IN|ANY|SOME)\b", re.IGNORECASE)
"""A text with `IN (SELECT ...)` has one of these words."""
_PLAIN_NAME = re.compile(rb"[A-Za-z_][A-Za-z_0-9]*(?![A-Za-z_0-9$\x80-\xff])")
_VERBS = frozenset({"SUMMARIZE", "PIVOT", "UNPIVOT", "FROM", "JOIN", "DESCRIBE", "TABLE"})


class Views(Protocol):
    """The views that replace the tables of one statement."""

    def view_of(self, reference: Reference) -> str | None:
        """The view of a reference; None if the name is not a table of a catalog."""

    def full_names(self, reference: Reference) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""

    def metadata_of(self, view: str) -> tuple[str, ...]:
        """The metadata columns that a view has because its reference asks for them."""

    def semi_join(
        self, query: str, candidate: Candidate, view_at: Callable[[int], str | None]
    ) -> str | None:
        """The text that replaces the query in `IN (query)`; None if the query is not replaced.

        `view_at` gives the view of the table at a position in the text.
        """

    def key_filters(self, tree: object, view_at: Callable[[int], str | None]) -> Mapping[int, str]:
        """The filters that small sides of joins imply, by the position of the filtered table."""

    def scan_of(self, view: str, tree: object) -> str:
        """A view of the same rows that DuckDB scans itself, if that is faster; otherwise `view`."""


def rewritten(text: str, connection: duckdb.DuckDBPyConnection, views: Views) -> str:
    """The text of a query, rewritten for DuckDB: views replace the tables of catalogs."""
    text, references = placeholders(text)
    used: list[Reference] = []

    def noted(reference: Reference, metadata: tuple[str, ...] = ()) -> str | None:
        used.append(reference)
        return views.view_of(replace(reference, metadata=metadata) if metadata else reference)

    found = _Rewrite(connection, references, noted, views).replaced(text)
    for reference in references:
        if not any(reference is each for each in used):
            raise InvalidRequest(
                "time travel and options follow the name of a table, before its alias",
                name=".".join(reference.chain),
            )
    return found


class _ViewOf(Protocol):
    def __call__(self, reference: Reference, metadata: tuple[str, ...] = ()) -> str | None: ...


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Rewrites one statement; `references` belong to the placeholders in its text."""

    connection: duckdb.DuckDBPyConnection
    references: Sequence[Reference]
    view_of: _ViewOf
    views: Views
    chains: set[tuple[str, ...]] = field(default_factory=set)
    """The lower-case names of the tables that were replaced by views."""
    metadata: dict[Chain, tuple[str, ...]] = field(default_factory=dict)
    """The metadata columns that the statement names, by table."""

    def replaced(self, text: str) -> str:
        """The text with views in place of tables."""
        tree = syntax_tree(self.connection, text)
        if tree["error"]:
            if "Only SELECT" not in tree["error_message"]:
                raise _bad(text, tree)
            return _by_tokens(text, self.references, self.view_of)
        tables: list[_Table] = []
        columns: list[Node] = []
        _walk(tree, frozenset(), tables, columns)
        if any(table.place >= _NOWHERE for table in tables):
            return _by_tokens(text, self.references, self.view_of)
        encoded = text.encode()
        held = candidates(tree, encoded) if _MAY_HAVE_QUERY.search(text) else []
        if PREFIX in text.lower():
            self._note_metadata(tables, wanted_at(tree))
        patches, views = self._tables(tables, held, encoded)
        filters = self.views.key_filters(tree, views.get)
        patches = [
            (start, end, self._from(new, views[start], filters.get(start), tree))
            for start, end, new in patches
        ]
        for each in held:
            query = self.replaced(encoded[each.start + 1 : each.end - 1].decode())
            new = self.views.semi_join(query, each, views.get)
            patches.append((each.start, each.end, f"({query}\n)" if new is None else new))
        patches += _unqualified(columns, self.chains, encoded, held)
        hidden = {place: self.views.metadata_of(view) for place, view in views.items()}
        hidden = {place: names for place, names in hidden.items() if names}
        patches += stars_without(tree, hidden)
        for start, end, new in sorted(patches, reverse=True):
            encoded = encoded[:start] + new.encode() + encoded[end:]
        return encoded.decode()

    def _from(self, new: str, view: str, condition: str | None, tree: object) -> str:
        """The text that replaces a table: `view` with a condition, or else the fastest view."""
        alias = new[len(quoted(view)) :]
        if condition is None:
            return quoted(self.views.scan_of(view, tree)) + alias
        return f"(FROM {quoted(view)} WHERE {condition}){alias}"

    def _note_metadata(
        self, tables: Sequence[_Table], wanted: Mapping[int, tuple[str, ...]]
    ) -> None:
        """Record the metadata columns that each view needs. A table named twice has one view."""
        for table in tables:
            names = {*self.metadata.get(table.chain, ()), *wanted.get(table.place, ())}
            self.metadata[table.chain] = tuple(sorted(names))

    def _tables(
        self, tables: Sequence[_Table], held: Sequence[Candidate], encoded: bytes
    ) -> tuple[list[tuple[int, int, str]], dict[int, str]]:
        """Patches that replace tables outside of `held` by views, and the view at each position."""
        patches: list[tuple[int, int, str]] = []
        views: dict[int, str] = {}
        for table in tables:
            if _is_within(table.place, held):
                continue
            reference = _named(table.chain, self.references)
            view = self.view_of(reference, self.metadata.get(table.chain, ()))
            if view is None:
                if table.chain[-1].startswith(PLACEHOLDER):
                    raise Unsupported(
                        "time travel and options are for tables of the catalog",
                        table=".".join(reference.chain),
                    )
                continue
            end = table.place + _length(encoded, table.place, len(table.chain))
            alias = "" if table.alias else f" AS {quoted(reference.chain[-1])}"
            patches.append((table.place, end, quoted(view) + alias))
            views[table.place] = view
            for names in (reference.chain, *self.views.full_names(reference)):
                self.chains.add(tuple(part.lower() for part in names))
        return patches, views


def _is_within(place: int, held: Sequence[Candidate]) -> bool:
    return any(each.start <= place < each.end for each in held)


@dataclass(frozen=True, slots=True)
class _Table:
    chain: Chain
    alias: str
    place: int


def _walk(node: object, defined: frozenset[str], tables: list[_Table], columns: list[Node]) -> None:
    """Collect tables that WITH does not define, and column references."""
    if isinstance(node, list):
        for each in node:
            _walk(each, defined, tables, columns)
        return
    if not isinstance(node, dict):
        return
    inner = defined
    for entry in _entries(node.get("cte_map")):
        # A query in WITH sees the earlier ones, and sees itself only if it is recursive.
        _walk(entry.get("value"), inner, tables, columns)
        inner |= {str(entry.get("key", "")).lower()}
    own = node.get("cte_name") if node.get("type") == "RECURSIVE_CTE_NODE" else None
    inner |= {str(own).lower()} if own else set()
    if node.get("type") == "BASE_TABLE":
        parts = [node.get("catalog_name"), node.get("schema_name"), node.get("table_name")]
        chain = tuple(str(part) for part in parts if part)
        # An empty name has no parts; DuckDB refuses it.
        if len(chain) > 1 or (chain and chain[0].lower() not in defined):
            place = node.get("query_location")
            tables.append(_Table(chain, str(node.get("alias") or ""), cast("int", place)))
    elif node.get("type") == "COLUMN_REF":
        columns.append(node)
    for key, each in node.items():
        if key != "cte_map":
            _walk(each, inner, tables, columns)


def _entries(cte_map: object) -> list[Node]:
    found = cte_map.get("map") if isinstance(cte_map, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _named(chain: Chain, references: Sequence[Reference]) -> Reference:
    if len(chain) == 1 and chain[0].startswith(PLACEHOLDER):
        return references[int(chain[0].removeprefix(PLACEHOLDER))]
    return Reference(chain=chain)


def _length(encoded: bytes, start: int, parts: int) -> int:
    """The length in bytes of a name with this many parts, at a position of the text."""
    plain = _PLAIN_NAME.match(encoded, start)
    if parts == 1 and plain is not None:
        return plain.end() - start
    text = encoded[start:].decode()
    last = tokenize(text)[2 * parts - 2]
    return len(text[: last.end].encode())


def _unqualified(
    columns: Sequence[Node], chains: set[tuple[str, ...]], encoded: bytes, held: Sequence[Candidate]
) -> list[tuple[int, int, str]]:
    """Patches that shorten `database.table.column` to `table.column` for tables with a new name."""
    patches: list[tuple[int, int, str]] = []
    for node in columns:
        if _is_within(cast("int", node["query_location"]), held):
            continue
        names = [str(name) for name in cast("list[object]", node.get("column_names", []))]
        lowered = [name.lower() for name in names]
        for size in (3, 2):
            if len(names) > size and tuple(lowered[:size]) in chains:
                start = cast("int", node["query_location"])
                end = start + _length(encoded, start, size)
                patches.append((start, end, quoted(names[size - 1])))
                break
    return patches


def _by_tokens(text: str, references: Sequence[Reference], view_of: _ViewOf) -> str:
    """As `rewritten`, for statements of which DuckDB gives no syntax tree.

    It works on tokens: a name is a table if it follows FROM, JOIN or a verb such as PIVOT.
    """
    cursor = Cursor(text)
    pieces: list[str] = []
    copied = 0
    while not cursor.done():
        verb = cursor.take().word
        if verb not in _VERBS or cursor.token.kind not in {Kind.WORD, Kind.QUOTED}:
            continue
        mark, start = cursor.mark(), cursor.token.start
        chain = cursor.chain()
        view = None if cursor.at_symbol("(") else view_of(_named(chain, references))
        if view is None:
            cursor.back(mark + 1)
            continue
        pieces += [text[copied:start], quoted(view)]
        copied = cursor.tokens_before(mark)[-1].end
    return "".join([*pieces, text[copied:]])


def _bad(text: str, tree: Mapping[str, object]) -> InvalidRequest:
    place = tree.get("position")
    message = str(tree.get("error_message", "")).splitlines()[0]
    if place is None:
        return InvalidRequest("bad SQL", reason=message)
    before = len(text.encode()[: int(str(place))].decode(errors="ignore"))
    return syntax_error(text, before, message + syntax_hint(text, before))
