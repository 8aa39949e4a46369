"""References to tables in syntax that DuckDB cannot parse.

A table with time travel or a hint, and a call of a Paimon table function, are replaced by
placeholders in the text. Backquotes become double quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import Unsupported
from lakecore.sql.cursor import Cursor, read_hint
from lakecore.sql.tokens import Kind, quoted, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakecore.sql.statements import Chain

# --- processing time -----------------------------------------------------------------------------
# `FOR SYSTEM_TIME AS OF PROCTIME()`: the processing time of a query, for look-up joins.
#
# A look-up join reads the rows of a table as they are when a row of the other side is processed. In
# lakecore, a query processes all rows when it runs, so the table is read at its latest snapshot. A
# time that is a column (`o.proc_time`) is refused by other code, because it may differ between
# rows.

_FUNCTIONS = frozenset({"PROCTIME", "PROC_TIME"})


def skip_processing_time(cursor: Cursor) -> bool:
    """Whether a call of the processing time is next; if so, consumes it."""
    is_call = cursor.token.word in _FUNCTIONS and cursor.ahead(1).value == "("
    if not is_call or cursor.ahead(2).value != ")":
        return False
    cursor.take()
    cursor.group()
    return True


# --- references ----------------------------------------------------------------------------------

FUNCTIONS = {
    "paimon_incremental_query": 3,
    "paimon_incremental_between_timestamp": 3,
    "paimon_incremental_to_auto_tag": 2,
}
"""Paimon's table functions for Spark, and the number of arguments of each."""

PLACEHOLDER = "_lakecore_reference_"
_UNITS = ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
_MAY_DIFFER = re.compile(r"/\*|`|\bof\b|\bpaimon_|\bdefault\b", re.IGNORECASE)
"""Syntax that differs from DuckDB's has one of these: a hint, a backquote, AS OF, a table function,
or `default`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A table that a query names.

    - `unit`, `moment`: VERSION or TIMESTAMP of time travel, and the text of the expression after
      it. If `moment` is None, it is the processing time: the latest snapshot is read;
    - `function`, `arguments`: those of a table function;
    - `metadata`: the metadata columns that the query names.
    """

    chain: Chain
    unit: str | None = None
    moment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    function: str | None = None
    arguments: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()


def placeholders(text: str) -> tuple[str, list[Reference]]:
    """The text with placeholders for Paimon-only syntax, and their references in order."""
    if _MAY_DIFFER.search(text) is None:
        return text, []
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
            pieces.append(f'"{PLACEHOLDER}{len(references)}"')
            references.append(found)
            copied = end
            after_dot = False
            continue
        # `default` is a keyword of DuckDB, and also the name of Paimon's default database.
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
            is_now = word == "SYSTEM_TIME" and skip_processing_time(cursor)
            moment = None if is_now else _moment(cursor)
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
            "a lookup join names PROCTIME()",
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


# --- syntax tree ---------------------------------------------------------------------------------
# Walks the syntax tree of a query, as DuckDB's `json_serialize_sql` gives it.

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


def select_of_table(tree: object) -> tuple[Node, Node] | None:
    """The SELECT over one table of a parsed query, and the table; None if it has more clauses."""
    statements = tree.get("statements") if isinstance(tree, dict) else None
    node = statements[0].get("node") if statements and len(statements) == 1 else None
    if not isinstance(node, dict) or node.get("type") != "SELECT_NODE":
        return None
    source = node.get("from_table") or {}
    more = ("modifiers", "having", "qualify", "sample")
    has_more = any(map(node.get, more)) or (node.get("cte_map") or {}).get("map")
    return (node, source) if source.get("type") == "BASE_TABLE" and not has_more else None
