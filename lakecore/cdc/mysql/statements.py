"""Reads statements of the binary log: which tables they change, and how.

The log has DDL, and some changes of rows, as the text of the statement.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lakecore.cdc.events import SourceTable

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = r"(`(?:[^`]|``)+`|[\w$]+)"
_QUALIFIED = re.compile(rf"{_NAME}\s*\.\s*{_NAME}")
_TABLE = rf"(?:{_NAME}\s*\.\s*)?{_NAME}"
_INSERT_WORDS = r"(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*(?:INTO\s+)?"
_LOAD_WORDS = r"(?:(?:LOW_PRIORITY|CONCURRENT)\s+)?(?:LOCAL\s+)?INFILE\s+'[^'\\]*'\s+"
_ENDS = r"(?:;|\Z|WHERE\b|ORDER\b|LIMIT\b|RETURNING\b)"
_ONE_TABLE = tuple(
    re.compile(rf"\s*{each}", re.IGNORECASE | re.DOTALL)
    for each in (
        rf"(?:INSERT|REPLACE)\s+{_INSERT_WORDS}{_TABLE}",
        rf"UPDATE\s+(?:(?:LOW_PRIORITY|IGNORE)\s+)*{_TABLE}\s+SET\b",
        rf"DELETE\s+(?:(?:LOW_PRIORITY|QUICK|IGNORE)\s+)*FROM\s+{_TABLE}\s*{_ENDS}",
        rf"LOAD\s+DATA\s+{_LOAD_WORDS}(?:(?:REPLACE|IGNORE)\s+)?INTO\s+TABLE\s+{_TABLE}",
    )
)
"""Statements that change the rows of one table, which they name."""
_HIDDEN = re.compile(
    r"(`(?:[^`]|``)*`)"
    r"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|/\*[^!].*?\*/|-- [^\n]*|#[^\n]*",
    re.DOTALL,
)
"""Quoted strings, comments, and as a group, quoted names."""
_TRUNCATES = re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_ALTERS = re.compile(
    rf"\s*ALTER\s+(?:(?:ONLINE|IGNORE)\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_COLUMN = (
    r"(?:COLUMN\s+|(?!(?:PRIMARY|INDEX|KEY|FOREIGN|CONSTRAINT|CHECK|UNIQUE|FULLTEXT|SPATIAL|"
    r"PARTITION|PERIOD|SYSTEM)\b))(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
)
_CHANGES = tuple(
    re.compile(rf"\s*{each}", re.IGNORECASE | re.DOTALL)
    for each in (
        rf"DROP\s+{_COLUMN}(?P<old>{_NAME})",
        rf"ADD\s+{_COLUMN}(?P<new>{_NAME})",
        rf"RENAME\s+COLUMN\s+(?:IF\s+EXISTS\s+)?(?P<old>{_NAME})\s+TO\s+(?P<new>{_NAME})",
        rf"CHANGE\s+{_COLUMN}(?P<old>{_NAME})\s+(?P<new>{_NAME})(?P<type>.*)",
        rf"MODIFY\s+{_COLUMN}(?P<new>(?P<old>{_NAME}))(?P<type>.*)",
    )
)
_ADDS_SEVERAL = re.compile(rf"\s*ADD\s+{_COLUMN}\(", re.IGNORECASE)
_TYPE = re.compile(
    r"\s*((?:DOUBLE\s+PRECISION|\w+)\s*(?:\([^)]*\))?(?:\s*(?:UN)?SIGNED\b)?)", re.IGNORECASE
)
_NOT_NULL = re.compile(r"\bNOT\s+NULL\b", re.IGNORECASE)
_DROPS = re.compile(r"\s*DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", re.IGNORECASE | re.DOTALL)
_CREATES = re.compile(
    rf"\s*CREATE\s+(?P<replaces>OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_TABLE}",
    re.IGNORECASE,
)
_RENAMES = re.compile(r"\s*RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*)", re.IGNORECASE | re.DOTALL)
_PAIR = re.compile(rf"\s*{_TABLE}\s+(?:NOWAIT\s+|WAIT\s+\d+\s+)?TO\s+{_TABLE}", re.IGNORECASE)
_RENAMED = re.compile(
    rf"\s*RENAME\s+(?!(?:COLUMN|INDEX|KEY)\b)(?:TO\s+|AS\s+|=\s*)?{_TABLE}\s*\Z", re.IGNORECASE
)
_LISTED = re.compile(rf"\s*{_TABLE}")
_MARKS = re.compile(r"`(?:[^`]|``)*`|[(),]")
_BACKTICKS = re.compile(r"`(?:[^`]|``)*`")
_LOSES = re.compile(r"\b(?:DROP|TRUNCATE)\s+PARTITION\b", re.IGNORECASE)
_MOVES = re.compile(
    rf"\b(?:EXCHANGE\s+PARTITION\b.*?\bWITH\s+TABLE|CONVERT\s+PARTITION\b.*?\bTO\s+TABLE|"
    rf"CONVERT\s+TABLE)\s+{_TABLE}|\bIMPORT\s+(?:PARTITION\b.*?)?TABLESPACE\b",
    re.IGNORECASE | re.DOTALL,
)


class Removal(NamedTuple):
    """Tables from which a statement removed rows. `adds`: whether it may also have added rows."""

    tables: tuple[SourceTable, ...]
    adds: bool


def removal_of(text: str, database: str) -> Removal | None:
    """What TRUNCATE, or a change of partitions, removed; None for other statements."""
    plain = _HIDDEN.sub(lambda match: match[1] or " ", text)
    if (match := _TRUNCATES.match(plain)) is not None:
        return Removal((_named(match[1], match[2], database),), adds=False)
    if (match := _ALTERS.match(plain)) is None:
        return None
    table, rest = _named(match[1], match[2], database), plain[match.end() :]
    moves = list(_MOVES.finditer(rest))
    if moves:
        others = [_named(each[1], each[2], database) for each in moves if each[2] is not None]
        return Removal((table, *others), adds=True)
    loses = _LOSES.search(_BACKTICKS.sub("`", rest)) is not None
    return Removal((table,), adds=False) if loses else None


def _named(database: str | None, name: str, current: str) -> SourceTable:
    return SourceTable(_unquoted(database or current), _unquoted(name))


class NewType(NamedTuple):
    """The type that a statement states for a column, without the values of an ENUM or SET."""

    text: str
    nullable: bool


class ColumnChanges(NamedTuple):
    """What a statement does to the columns of a table.

    - `gone`: names of columns that the statement dropped or renamed;
    - `come`: names that the statement gave to new or renamed columns;
    - `retyped`: columns that keep their name, with the stated type.

    Names are in lower case, because MySQL ignores their case.
    """

    table: SourceTable
    gone: frozenset[str]
    come: frozenset[str]
    retyped: dict[str, NewType]


def column_changes_of(text: str, database: str) -> ColumnChanges | None:
    """What ALTER TABLE does to columns; None for other statements."""
    plain = _HIDDEN.sub(lambda match: match[1] or "''", text)
    if (match := _ALTERS.match(plain)) is None:
        return None
    gone, come, retyped = set[str](), set[str](), dict[str, NewType]()
    for clause in _clauses(plain[match.end() :]):
        found = next(filter(None, (form.match(clause) for form in _CHANGES)), None)
        if found is None:
            continue
        parts = found.groupdict()
        old, new = (_unquoted(parts.get(key) or "").lower() for key in ("old", "new"))
        if old != new:
            gone |= {old} - {""}
            come |= {new} - {""}
        elif (stated := _TYPE.match(parts.get("type") or "")) is not None:
            is_null = _NOT_NULL.search(_BACKTICKS.sub("`", parts["type"])) is None
            retyped[new] = NewType(stated[1], is_null)
    table = _named(match[1], match[2], database)
    return ColumnChanges(table, frozenset(gone), frozenset(come), retyped)


def tables_replaced_by(text: str, database: str) -> list[tuple[SourceTable, bool]]:
    """In order, the tables that lose their name by a statement (False), and that get one (True)."""
    plain = _HIDDEN.sub(lambda match: match[1] or "''", text)
    if (drops := _DROPS.match(plain)) is not None:
        names = filter(None, map(_LISTED.match, _clauses(drops[1])))
        return [(_named(each[1], each[2], database), False) for each in names]
    if (creates := _CREATES.match(plain)) is not None:
        table = _named(creates[2], creates[3], database)
        return [*([(table, False)] if creates["replaces"] else []), (table, True)]
    pairs: list[tuple[SourceTable, SourceTable]] = []
    if (renames := _RENAMES.match(plain)) is not None:
        pairs = [
            (_named(each[1], each[2], database), _named(each[3], each[4], database))
            for each in filter(None, map(_PAIR.match, _clauses(renames[1])))
        ]
    elif (alters := _ALTERS.match(plain)) is not None:
        old = _named(alters[1], alters[2], database)
        news = filter(None, map(_RENAMED.match, _clauses(plain[alters.end() :])))
        pairs = [(old, _named(each[1], each[2], old.database)) for each in news]
    return [part for old, new in pairs for part in ((old, False), (new, True))]


def _clauses(text: str) -> Iterator[str]:
    """The parts of ALTER TABLE between commas. ADD of several columns has a part for each."""
    depth, start = 0, 0
    parts = []
    for mark in _MARKS.finditer(text):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if mark[0] == "," and depth == 0:
            parts.append(text[start : mark.start()])
            start = mark.end()
    for part in (*parts, text[start:]):
        if (several := _ADDS_SEVERAL.match(part)) is not None:
            inside = part[several.end() : part.rfind(")")]
            yield from (f"ADD {each}" for each in _clauses(inside))
        else:
            yield part


def changed_table(text: str, database: str) -> SourceTable | None:
    """The only table that a statement changes; None if not certain.

    `database`: the current database of the session.
    """
    for form in _ONE_TABLE:
        if (match := form.match(text)) is not None:
            return _named(match[1], match[2], database)
    return None


def named_tables(text: str) -> frozenset[SourceTable]:
    """The tables that a statement names with their database."""
    return frozenset(SourceTable(*map(_unquoted, each)) for each in _QUALIFIED.findall(text))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
