"""Replaces the table names and aliases that qualify columns in an expression.

In a MERGE, `source` or `target` replaces them; in an UPDATE or DELETE, they are dropped. A query
within an expression, `(SELECT ...)`, has names of its own, and is copied unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.tokens import Kind, quoted, tokenize

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakecore.sql.tokens import Token

__all__ = ["has_query", "renamed"]

_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def has_query(text: str) -> bool:
    """Whether an expression holds a query in parentheses."""
    tokens = tokenize(text)
    return any(
        token.word == "SELECT" or _opens_query(tokens, place) for place, token in enumerate(tokens)
    )


def renamed(text: str, names: Mapping[str, str], columns: Collection[str] = ()) -> str:
    """The text with each qualifier of `names` replaced; an empty replacement drops the qualifier.

    `names` maps a qualifier, which may have dots, to its replacement. Names match without regard to
    case. Backquotes become double quotes.

    A qualifier may also be one of `columns`. Then `name.part` means the table's column `part`, or,
    if there is no such column, the field `part` of the column `name`.
    """
    held = {column.lower() for column in columns}
    known = {tuple(name.lower().split(".")): new for name, new in names.items()}
    tokens = tokenize(text)
    pieces: list[str] = []
    copied = place = 0
    while tokens[place].kind is not Kind.END:
        token = tokens[place]
        if _opens_query(tokens, place):
            place = _end_of_query(tokens, place)
            pieces.append(text[copied : tokens[place].start])
            copied = tokens[place].start
            continue
        parts = _chain(tokens, place)
        lowered = [part.lower() for part in parts]
        size = next((n for n in (3, 2, 1) if len(parts) > n and tuple(lowered[:n]) in known), 0)
        if size == 1 and lowered[0] in held and lowered[1] not in held:
            size = 0
        pieces.append(text[copied : token.start])
        if size:
            new = known[tuple(lowered[:size])]
            pieces.append(f"{new}." if new else "")
            place += 2 * size
            copied = tokens[place].start
            parts = parts[size:]
        else:
            copied = token.start
        # The rest of the chain is copied unchanged, except for backquotes.
        steps = max(2 * len(parts) - 1, 1)
        for each in tokens[place : place + steps]:
            if each.kind is Kind.QUOTED and text[each.start] == "`":
                pieces += [text[copied : each.start], quoted(each.value)]
                copied = each.end
        place += steps
    return "".join([*pieces, text[copied:]])


def _chain(tokens: Sequence[Token], place: int) -> list[str]:
    """The names separated by dots that start at a token; empty if the token is not a name."""
    found: list[str] = []
    while tokens[place].kind in {Kind.WORD, Kind.QUOTED}:
        found.append(tokens[place].value)
        if not (tokens[place + 1].kind is Kind.OTHER and tokens[place + 1].value == "."):
            break
        place += 2
    return found


def _opens_query(tokens: Sequence[Token], place: int) -> bool:
    return _is(tokens[place], "(") and tokens[place + 1].word in _STARTS


def _end_of_query(tokens: Sequence[Token], place: int) -> int:
    """The place after the parenthesis that closes the one at `place`."""
    depth = 0
    while tokens[place].kind is not Kind.END:
        depth += _is(tokens[place], "(") - _is(tokens[place], ")")
        place += 1
        if depth == 0:
            break
    return place


def _is(token: Token, symbol: str) -> bool:
    return token.kind is Kind.OTHER and token.value == symbol
