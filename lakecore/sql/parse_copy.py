r"""Parser of COPY INTO: files into a table, or rows into files.

    COPY INTO table [(columns)] FROM 'path' FILE_FORMAT = (TYPE = CSV, ...)
        [PATTERN = 'regex'] [FORCE = TRUE | FALSE] [ON_ERROR = ...]
    COPY INTO 'path' FROM table | (query) FILE_FORMAT = (TYPE = CSV, ...) [OVERWRITE = TRUE | FALSE]

As in Paimon, `\n`, `\t`, `\r` and `\\` in a string of this statement stand for a newline, a tab,
a carriage return and one backslash. Any other backslash stands for itself.

https://paimon.apache.org/docs/master/spark/sql-write/#copy-into
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.statements import CopyInto, CopyOut
from lakecore.sql.tokens import Kind, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.sql.cursor import Cursor

__all__ = ["parse_copy"]

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_ON_ERROR = ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE")
_TYPE = "TYPE"


def parse_copy(cursor: Cursor) -> CopyInto | CopyOut:
    """Parse COPY INTO; the word COPY has been read."""
    if not cursor.skip("INTO"):
        raise cursor.expected("INTO: COPY INTO table FROM 'path', or COPY INTO 'path' FROM table")
    if cursor.at_kind(Kind.STRING):
        return _export(cursor)
    chain = cursor.chain("the name of a table, or the path of a directory in quotes")
    columns = tuple(cursor.listed(cursor.name)) if cursor.at_symbol("(") else None
    cursor.expect("FROM")
    source = _string(cursor, "the path of a file or a directory, in quotes")
    kind, options, clauses = _clauses(cursor, ("PATTERN", "FORCE", "ON_ERROR"))
    return CopyInto(
        chain=chain,
        source=source,
        format=kind,
        options=options,
        columns=columns,
        pattern=clauses.get("PATTERN"),
        force=clauses.get("FORCE") == "TRUE",
        on_error=clauses.get("ON_ERROR", _ON_ERROR[0]),
    )


def _export(cursor: Cursor) -> CopyOut:
    target = _string(cursor, "a path")
    cursor.expect("FROM")
    if cursor.at_symbol("("):
        place = cursor.token
        query = cursor.group()
        if not query:
            raise cursor.error("COPY INTO a directory needs a query in the parentheses", place)
    else:
        names = cursor.chain("the name of a table, or a query in parentheses")
        query = f"FROM {'.'.join(map(quoted, names))}"
    kind, options, clauses = _clauses(cursor, ("OVERWRITE",))
    return CopyOut(
        target=target,
        query=query,
        format=kind,
        options=options,
        overwrite=clauses.get("OVERWRITE") == "TRUE",
    )


def _clauses(
    cursor: Cursor, known: tuple[str, ...]
) -> tuple[str, Mapping[str, str | tuple[str, ...]], dict[str, str]]:
    """The type of the files, the options of FILE_FORMAT, and the other clauses."""
    options: dict[str, str | tuple[str, ...]] | None = None
    clauses: dict[str, str] = {}
    while not cursor.done():
        place, word = cursor.token, cursor.token.word
        if word == "SINGLE":
            raise Unsupported("COPY INTO has no clause SINGLE", clause=word)
        if word not in {"FILE_FORMAT", *known}:
            raise cursor.expected(", ".join(("FILE_FORMAT", *known)))
        if word in clauses or (word == "FILE_FORMAT" and options is not None):
            raise cursor.error(f"{word} is given twice", place)
        cursor.take()
        cursor.expect_symbol("=")
        if word == "FILE_FORMAT":
            options = _file_format(cursor)
        elif word == "PATTERN":
            clauses[word] = _string(cursor, "a regular expression in quotes")
        elif word == "ON_ERROR":
            clauses[word] = _on_error(cursor)
        else:
            clauses[word] = _choice(cursor, ("TRUE", "FALSE"))
    if options is None:
        raise cursor.expected("FILE_FORMAT = (TYPE = CSV, JSON or PARQUET)")
    kind = options.pop(_TYPE, None)
    if not isinstance(kind, str):
        raise InvalidRequest("FILE_FORMAT needs TYPE = CSV, JSON or PARQUET")
    return kind, options, clauses


def _file_format(cursor: Cursor) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {}

    def one() -> None:
        place = cursor.token
        key = cursor.name("an option of FILE_FORMAT").upper()
        if key in found:
            raise cursor.error(f"the option {key} is given twice", place)
        cursor.expect_symbol("=")
        if cursor.at_symbol("("):
            found[key] = tuple(cursor.listed(lambda: _string(cursor, "a string in quotes")))
        elif cursor.at_kind(Kind.STRING):
            found[key] = _string(cursor, "a string")
        elif cursor.at_kind(Kind.WORD, Kind.NUMBER, Kind.QUOTED):
            found[key] = cursor.take().value
        else:
            raise cursor.expected("the value of an option")

    cursor.listed(one)
    return found


def _on_error(cursor: Cursor) -> str:
    word = cursor.token.word
    if word.startswith("SKIP_FILE_"):
        raise Unsupported("ON_ERROR does not count errors", on_error=word, known=_ON_ERROR)
    return _choice(cursor, _ON_ERROR)


def _choice(cursor: Cursor, words: tuple[str, ...]) -> str:
    if cursor.token.word not in words:
        raise cursor.expected(" or ".join(words))
    return cursor.take().word


def _string(cursor: Cursor, what: str) -> str:
    """The value of a string. Its backslashes are read as in Paimon, unless it is `E'...'`."""
    token = cursor.token
    text = cursor.string(what)
    if cursor.text[token.start] != "'":
        return text
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], text)
