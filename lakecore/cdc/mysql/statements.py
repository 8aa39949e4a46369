"""Reads statements of the binary log: which tables they change, and how.

The log has DDL, and some changes of rows, as the text of the statement.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakecore.cdc.events import SourceTable

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
"""Quoted texts and comments, and as a group, quoted names."""
_TRUNCATES = re.compile(rf"\s*TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_ALTERS = re.compile(
    rf"\s*ALTER\s+(?:(?:ONLINE|IGNORE)\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_BACKTICKS = re.compile(r"`(?:[^`]|``)*`")
_LOSES = re.compile(r"\b(?:DROP|TRUNCATE)\s+PARTITION\b", re.IGNORECASE)
_MOVES = re.compile(
    rf"\b(?:EXCHANGE\s+PARTITION\b.*?\bWITH\s+TABLE|CONVERT\s+PARTITION\b.*?\bTO\s+TABLE|"
    rf"CONVERT\s+TABLE)\s+{_TABLE}|\bIMPORT\s+(?:PARTITION\b.*?)?TABLESPACE\b",
    re.IGNORECASE | re.DOTALL,
)


class Removal(NamedTuple):
    """Tables of which a statement removed rows; `adds`: it may also have added some."""

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


def changed_table(text: str, database: str) -> SourceTable | None:
    """The only table that a statement names as changed; None if that is not certain.

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
