"""The text of a query -> DuckDB's text, and the tables that it names.

1. Tokens: backquotes become double quotes. A table with time travel or a hint, and a table function
   of Paimon, become placeholders.
2. DuckDB parses the text. The tree gives the position of each table and the names defined by WITH.
3. The caller provides a view for each lakecore table. The view's name replaces the table's name in
   the text, with the table's name as alias. All other text is unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.cursor import Cursor
from lakecore.sql.hints import read_hint
from lakecore.sql.semi_joins import Candidate, candidates
from lakecore.sql.tokens import Kind, quoted, syntax_error, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import duckdb

    from lakecore.sql.statements import Chain

__all__ = ["FUNCTIONS", "Reference", "Views", "placeholders", "rewritten"]

FUNCTIONS = {
    "paimon_incremental_query": 3,
    "paimon_incremental_between_timestamp": 3,
    "paimon_incremental_to_auto_tag": 2,
}
"""Paimon's table functions of Spark and how many arguments each takes."""

_PLACEHOLDER = "_lakecore_reference_"
_UNITS = ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
_NOWHERE = 2**63
_VERBS = frozenset({"SUMMARIZE", "PIVOT", "UNPIVOT", "FROM", "JOIN", "DESCRIBE", "TABLE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A table that a query names. `function` and its arguments are those of a table function.

    `unit` is VERSION or TIMESTAMP, and `moment` the text of the expression that follows it.
    """

    chain: Chain
    unit: str | None = None
    moment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    function: str | None = None
    arguments: tuple[str, ...] = ()


def placeholders(text: str) -> tuple[str, list[Reference]]:
    """The text with placeholders for Paimon-only syntax, and their references in order."""
    cursor = Cursor(text)
    references: list[Reference] = []
    pieces: list[str] = []
    copied = 0
    after_dot = False
    while not cursor.done():
        token = cursor.token
        start = cursor.mark()
        found = None
        if not after_dot and token.kind in {Kind.WORD, Kind.QUOTED, Kind.STRING}:
            found = _reference(cursor)
            if found is None:
                cursor.back(start)
        if found is not None:
            end = cursor.tokens_before(start)[-1].end
            pieces.append(text[copied : token.start])
            pieces.append(f'"{_PLACEHOLDER}{len(references)}"')
            references.append(found)
            copied = end
            after_dot = False
            continue
        # `default` is a word of DuckDB's grammar, and the name of Paimon's first database.
        is_default = token.word == "DEFAULT" and cursor.ahead(1).value == "."
        if is_default or (token.kind is Kind.QUOTED and text[token.start] == "`"):
            pieces += [text[copied : token.start], quoted(token.value)]
            copied = token.end
        if token.kind is Kind.HINT:
            read_hint(token)
            raise cursor.error("a hint follows the name of a table, before its alias")
        cursor.take()
        after_dot = token.kind is Kind.OTHER and token.value == "."
    pieces.append(text[copied:])
    return "".join(pieces), references


def _reference(cursor: Cursor) -> Reference | None:
    """The next reference, if it has time travel, a hint or a table function; otherwise None."""
    if cursor.token.word.lower() in FUNCTIONS and cursor.ahead(1).value == "(":
        return _function(cursor)
    if cursor.at("SELECT"):
        return None
    names = [cursor.take().value]
    while cursor.at_symbol(".") and cursor.ahead(1).kind in {Kind.WORD, Kind.QUOTED}:
        cursor.take()
        names.append(cursor.take().value)
    options: dict[str, str] = {}
    while cursor.at_kind(Kind.HINT):
        options |= read_hint(cursor.take())
    unit = moment = None
    mark = cursor.mark()
    cursor.skip("FOR")
    for word in _UNITS:
        if cursor.skip(word, "AS", "OF"):
            unit = "VERSION" if word.endswith("VERSION") else "TIMESTAMP"
            moment = _moment(cursor)
            break
    else:
        cursor.back(mark)
    while unit and cursor.token.kind is Kind.HINT:
        options |= read_hint(cursor.take())
    if unit is None and not options:
        return None
    return Reference(chain=tuple(names), unit=unit, moment=moment, options=options)


def _moment(cursor: Cursor) -> str:
    """The text of a version or a time: a literal, a clock function, or an expression in `()`."""
    start = cursor.token.start
    if cursor.at_symbol("("):
        return "(" + cursor.group() + ")"
    if cursor.token.word in {"TIMESTAMP", "DATE"} and cursor.ahead(1).kind is Kind.STRING:
        cursor.take()
    token = cursor.take()
    if token.kind not in {Kind.STRING, Kind.NUMBER, Kind.WORD, Kind.PARAMETER, Kind.QUOTED}:
        raise cursor.error("expected a version or a time", token)
    if token.kind is Kind.PARAMETER:
        raise cursor.error("a version or a time must be in the text, not a parameter", token)
    end = token.end
    if token.kind in {Kind.WORD, Kind.QUOTED} and cursor.at_symbol("."):
        raise Unsupported(
            "a table is read at one time, not at a time of each row; "
            "a lookup join is a join without FOR SYSTEM_TIME",
            time=cursor.text[start : cursor.ahead(1).end],
        )
    if token.kind is Kind.WORD and cursor.at_symbol("("):
        cursor.group()
        end = cursor.tokens_before(0)[-1].end
    while (cursor.at_symbol("-") or cursor.at_symbol("+")) and cursor.ahead(1).word == "INTERVAL":
        cursor.take()
        cursor.take()
        last = cursor.take()
        if cursor.token.kind is Kind.WORD:
            last = cursor.take()
        end = last.end
    return cursor.text[start:end]


def _function(cursor: Cursor) -> Reference:
    place = cursor.token
    name = cursor.take().value.lower()
    arguments = tuple(cursor.listed(lambda: cursor.until(symbols=",")))
    if len(arguments) != FUNCTIONS[name]:
        raise cursor.error(f"{name} takes {FUNCTIONS[name]} arguments", place)
    first = tokenize(arguments[0])[0]
    if first.kind is not Kind.STRING:
        raise cursor.error("the first argument must be the name of a table, in quotes", place)
    chain = Cursor(first.value).chain()
    return Reference(chain=chain, function=name, arguments=arguments[1:])


class Views(Protocol):
    """Gives views for the tables of one statement."""

    def view_of(self, reference: Reference) -> str | None:
        """The view of a reference, or None for a table of DuckDB's own."""
        ...

    def full_names(self, reference: Reference) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        ...

    def semi_join(
        self, query: str, candidate: Candidate, view_at: Callable[[int], str | None]
    ) -> str | None:
        """The text that replaces the query of `IN (query)`; None leaves it.

        `view_at` gives the view of the table at a position in the text.
        """
        ...


def rewritten(text: str, connection: duckdb.DuckDBPyConnection, views: Views) -> str:
    """The text for DuckDB."""
    text, references = placeholders(text)
    used: list[Reference] = []

    def noted(reference: Reference) -> str | None:
        used.append(reference)
        return views.view_of(reference)

    found = _Rewrite(connection, references, noted, views).replaced(text)
    for reference in references:
        if not any(reference is each for each in used):
            raise InvalidRequest(
                "time travel and options follow the name of a table, before its alias",
                name=".".join(reference.chain),
            )
    return found


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Rewrites one statement; `references` belong to the placeholders in its text."""

    connection: duckdb.DuckDBPyConnection
    references: Sequence[Reference]
    view_of: Callable[[Reference], str | None]
    views: Views
    chains: set[tuple[str, ...]] = field(default_factory=set)
    """The names, in lower case, of the tables that views have replaced."""

    def replaced(self, text: str) -> str:
        """The text with views in place of tables."""
        answer = self.connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0]
        tree = json.loads(answer)
        if tree["error"]:
            if "Only SELECT" not in tree["error_message"]:
                raise _bad(text, tree)
            return _by_tokens(text, self.references, self.view_of)
        tables: list[_Table] = []
        columns: list[_Node] = []
        _walk(tree, frozenset(), tables, columns)
        if any(table.place >= _NOWHERE for table in tables):
            return _by_tokens(text, self.references, self.view_of)
        encoded = text.encode()
        held = candidates(tree, encoded)
        patches, views = self._tables(tables, held, encoded)
        for each in held:
            query = self.replaced(encoded[each.start + 1 : each.end - 1].decode())
            new = self.views.semi_join(query, each, views.get)
            patches.append((each.start, each.end, f"({query}\n)" if new is None else new))
        patches += _unqualified(columns, self.chains, encoded, held)
        for start, end, new in sorted(patches, reverse=True):
            encoded = encoded[:start] + new.encode() + encoded[end:]
        return encoded.decode()

    def _tables(
        self, tables: Sequence[_Table], held: Sequence[Candidate], encoded: bytes
    ) -> tuple[list[tuple[int, int, str]], dict[int, str]]:
        """Patches that replace tables by views outside of `held`; and the view at each position."""
        patches: list[tuple[int, int, str]] = []
        views: dict[int, str] = {}
        for table in tables:
            if _is_within(table.place, held):
                continue
            reference = _named(table.chain, self.references)
            view = self.view_of(reference)
            if view is None:
                if table.chain[-1].startswith(_PLACEHOLDER):
                    raise Unsupported(
                        "time travel and options are for tables of the catalog",
                        table=".".join(reference.chain),
                    )
                continue
            end = table.place + _length(encoded[table.place :].decode(), len(table.chain))
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


_Node = dict[str, object]


def _walk(
    node: object, defined: frozenset[str], tables: list[_Table], columns: list[_Node]
) -> None:
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
        if len(chain) > 1 or chain[0].lower() not in defined:
            place = node.get("query_location")
            tables.append(_Table(chain, str(node.get("alias") or ""), cast("int", place)))
    elif node.get("type") == "COLUMN_REF":
        columns.append(node)
    for key, each in node.items():
        if key != "cte_map":
            _walk(each, inner, tables, columns)


def _entries(cte_map: object) -> list[_Node]:
    found = cte_map.get("map") if isinstance(cte_map, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _named(chain: Chain, references: Sequence[Reference]) -> Reference:
    if len(chain) == 1 and chain[0].startswith(_PLACEHOLDER):
        return references[int(chain[0].removeprefix(_PLACEHOLDER))]
    return Reference(chain=chain)


def _length(text: str, parts: int) -> int:
    """The length in bytes of a name with this many parts at the start of a text."""
    last = tokenize(text)[2 * parts - 2]
    return len(text[: last.end].encode())


def _unqualified(
    columns: Sequence[_Node],
    chains: set[tuple[str, ...]],
    encoded: bytes,
    held: Sequence[Candidate],
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
                end = start + _length(encoded[start:].decode(), size)
                patches.append((start, end, quoted(names[size - 1])))
                break
    return patches


def _by_tokens(
    text: str, references: Sequence[Reference], view_of: Callable[[Reference], str | None]
) -> str:
    """Like `rewritten`, but by tokens: for statements of which DuckDB gives no syntax tree.

    A name is a table if it follows FROM, JOIN or a verb such as PIVOT.
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
    return syntax_error(text, before, message)
