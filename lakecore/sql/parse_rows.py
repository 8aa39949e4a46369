"""Parsers of the statements that write rows: INSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql import statements as s
from lakecore.sql.cursor import QUERY_STARTS, Cursor, hint_options
from lakecore.sql.parse_tables import partition
from lakecore.sql.tokens import Kind, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


_TRAVELS = ("FOR", "VERSION", "TIMESTAMP")


def parse_insert(cursor: Cursor) -> s.Insert:
    """Parse INSERT; the word INSERT has been read."""
    overwrite = cursor.skip("OVERWRITE")
    if overwrite:
        cursor.skip("INTO")
    else:
        cursor.expect("INTO")
    cursor.skip("TABLE")
    chain = cursor.chain("the name of the table")
    given = hint_options(cursor)
    static = columns = None
    if cursor.skip("PARTITION"):
        static = partition(cursor)
    by_name = cursor.skip("BY", "NAME")
    if not by_name and cursor.at_symbol("(") and not _opens_query(cursor):
        columns = tuple(cursor.listed(cursor.name))
        if cursor.skip("PARTITION"):
            static = partition(cursor)
        by_name = cursor.skip("BY", "NAME")
    if cursor.at("DEFAULT", "VALUES"):
        raise Unsupported("name a column: INSERT INTO t (id) VALUES (1)", clause="DEFAULT VALUES")
    return s.Insert(
        chain=chain,
        query=_rows(cursor),
        columns=columns,
        partition=static,
        overwrite=overwrite,
        by_name=by_name,
        options=given,
    )


def _rows(cursor: Cursor) -> str:
    mark = cursor.mark()
    text = cursor.query("a query or VALUES")
    words = [token.word for token in cursor.tokens_before(mark)]
    if any(pair in {("ON", "CONFLICT"), ("ON", "DUPLICATE")} for pair in pairwise(words)):
        raise Unsupported(
            "INSERT ... ON CONFLICT: an INSERT into a table with a primary key replaces the rows "
            "of the same keys; MERGE INTO decides for each row"
        )
    return text


def _opens_query(cursor: Cursor) -> bool:
    """Whether the parentheses that come next hold a query, not a list of columns."""
    steps = 0
    while cursor.ahead(steps).kind is Kind.OTHER and cursor.ahead(steps).value == "(":
        steps += 1
    return cursor.ahead(steps).word in QUERY_STARTS


def parse_update(cursor: Cursor) -> s.Update:
    """Parse UPDATE; the word UPDATE has been read."""
    chain = cursor.chain("the name of the table")
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    values = _assignments(cursor, chain, alias, "WHERE", "FROM")
    if cursor.at("FROM"):
        raise Unsupported(
            "UPDATE ... FROM: write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE "
            "SET x = s.x",
            clause="FROM",
        )
    where = cursor.until() if cursor.skip("WHERE") else None
    return s.Update(chain=chain, alias=alias, values=values, where=where)


def parse_delete(cursor: Cursor) -> s.Delete:
    """Parse DELETE FROM; the word DELETE has been read."""
    cursor.expect("FROM")
    chain = cursor.chain("the name of the table")
    alias = _alias(cursor, "WHERE", "USING")
    if cursor.at("USING"):
        raise Unsupported(
            "DELETE ... USING: write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE",
            clause="USING",
        )
    where = cursor.until() if cursor.skip("WHERE") else None
    return s.Delete(chain=chain, alias=alias, where=where)


def _alias(cursor: Cursor, *not_names: str) -> str | None:
    if cursor.skip("AS"):
        return cursor.name("an alias")
    is_name = cursor.token.kind in {Kind.WORD, Kind.QUOTED}
    return cursor.name() if is_name and cursor.token.word not in not_names else None


def _assignments(
    cursor: Cursor, chain: s.Chain, alias: str | None, *ends: str
) -> dict[s.Chain, str]:
    return set_values(cursor, {alias} if alias else {chain[-1], "target"}, *ends)


def set_values(cursor: Cursor, qualifiers: Collection[str], *ends: str) -> dict[s.Chain, str]:
    """`column = expression, ...` up to a keyword of `ends`; a qualifier may precede a column.

    `row.field = expression` sets a field of a ROW.
    """
    found: dict[s.Chain, str] = {}
    names = {each.lower() for each in qualifiers}
    while True:
        place = cursor.token
        path = cursor.chain("a column")
        if len(path) > 1 and path[0].lower() in names:
            path = path[1:]
        if path in found:
            raise cursor.error(f"the column {'.'.join(path)!r} is set twice", place)
        cursor.expect_symbol("=")
        found[path] = cursor.until(*ends, symbols=",")
        if not cursor.skip_symbol(","):
            return found


def parse_merge(cursor: Cursor) -> s.Merge:
    """Parse MERGE INTO; the word MERGE has been read."""
    cursor.expect("INTO")
    chain = cursor.chain("the name of the table")
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source_chain = None
    if cursor.at_symbol("("):
        source = f"({cursor.group()})"
    elif cursor.token.kind is Kind.STRING:
        start = cursor.take()
        source = cursor.text[start.start : start.end]
    else:
        start = cursor.token
        source_chain = cursor.chain("a table or a query")
        if cursor.at_symbol("("):  # a table function
            source_chain = None
            cursor.group()
        while cursor.at_kind(Kind.HINT):
            cursor.take()
        if any(cursor.at(word) for word in _TRAVELS):
            cursor.skip("FOR")
            cursor.take()
            cursor.expect("AS", "OF")
            cursor.until("ON", "AS")
        source = cursor.text[start.start : cursor.tokens_before(0)[-1].end]
    source_alias = _alias(cursor, "ON")
    if source_alias is not None and cursor.at_symbol("("):
        source += f" AS {quoted(source_alias)} ({cursor.group()})"
    cursor.expect("ON")
    on = cursor.until("WHEN")
    clauses: list[s.MergeClause] = []
    while cursor.skip("WHEN"):
        clauses.append(_clause(cursor, chain, alias))
    if not clauses:
        raise cursor.expected("WHEN MATCHED or WHEN NOT MATCHED")
    return s.Merge(
        chain=chain,
        alias=alias,
        source=source,
        source_chain=source_chain,
        source_alias=source_alias,
        on=on,
        clauses=tuple(clauses),
    )


def _clause(cursor: Cursor, chain: s.Chain, alias: str | None) -> s.MergeClause:
    if cursor.skip("MATCHED"):
        match = "matched"
    else:
        cursor.expect("NOT", "MATCHED")
        match = "by_source" if cursor.skip("BY", "SOURCE") else "not_matched"
        if match == "not_matched":
            cursor.skip("BY", "TARGET")
    condition = cursor.until("THEN") if cursor.skip("AND") else None
    cursor.expect("THEN")
    if match == "not_matched":
        cursor.expect("INSERT")
        row = None
        if cursor.skip("VALUES"):
            row = tuple(cursor.listed(lambda: cursor.until(symbols=",")))
        values = _inserted(cursor) if row is None else None
        return s.MergeClause(
            match=match, action="insert", condition=condition, values=values, row=row
        )
    if cursor.skip("DELETE"):
        return s.MergeClause(match=match, action="delete", condition=condition)
    cursor.expect("UPDATE")
    cursor.skip("SET")
    values = None
    if cursor.skip_symbol("*"):
        if match == "by_source":
            raise cursor.error("a row without a source row has no values for `*`")
    else:
        values = _assignments(cursor, chain, alias, "WHEN")
    return s.MergeClause(match=match, action="update", condition=condition, values=values)


def _inserted(cursor: Cursor) -> dict[s.Chain, str] | None:
    if cursor.skip_symbol("*"):
        return None
    place = cursor.token
    if cursor.skip("ROW"):
        return None
    names = [chain[-1:] for chain in cursor.listed(lambda: cursor.chain("a column"))]
    cursor.expect("VALUES")
    values = cursor.listed(lambda: cursor.until(symbols=","))
    if len(names) != len(values):
        raise cursor.error(f"{len(names)} columns, but {len(values)} values", place)
    return dict(zip(names, values, strict=True))


# --- parse copy ----------------------------------------------------------------------------------
# Parser of COPY INTO: files into a table, or rows into files.
#
#     COPY INTO table [(columns)] FROM 'path' FILE_FORMAT = (TYPE = CSV, ...)
#         [PATTERN = 'regex'] [FORCE = TRUE | FALSE] [ON_ERROR = ...]
#     COPY INTO 'path' FROM table | (query) FILE_FORMAT = (TYPE = CSV, ...) [OVERWRITE = TRUE |
#     FALSE]
#
# As in Paimon, `\n`, `\t`, `\r` and `\\` in a string of this statement stand for a newline, a tab,
# a carriage return and one backslash. Any other backslash stands for itself.
#
# https://paimon.apache.org/docs/master/spark/sql-write/#copy-into

_ESCAPE = re.compile(r"\\([ntr\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_ON_ERROR = ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE")
_TYPE = "TYPE"


def parse_copy(cursor: Cursor) -> s.CopyInto | s.CopyOut:
    """Parse COPY INTO; the word COPY has been read."""
    if not cursor.skip("INTO"):
        raise cursor.expected(
            "INTO: COPY INTO table FROM 'path', or COPY INTO 'path' FROM table or (query)"
        )
    if cursor.at_kind(Kind.STRING):
        return _export(cursor)
    chain = cursor.chain("the name of a table, or the path of a directory in quotes")
    columns = tuple(cursor.listed(cursor.name)) if cursor.at_symbol("(") else None
    cursor.expect("FROM")
    source = _string(cursor, "the path of a file or a directory, in quotes")
    kind, options, clauses = _clauses(cursor, ("PATTERN", "FORCE", "ON_ERROR"))
    return s.CopyInto(
        chain=chain,
        source=source,
        format=kind,
        options=options,
        columns=columns,
        pattern=clauses.get("PATTERN"),
        force=clauses.get("FORCE") == "TRUE",
        on_error=clauses.get("ON_ERROR", _ON_ERROR[0]),
    )


def _export(cursor: Cursor) -> s.CopyOut:
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
    return s.CopyOut(
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
