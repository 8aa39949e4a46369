"""Parsers of the statements that write rows: INSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.sql.cursor import QUERY_STARTS
from lakecore.sql.hints import hint_options
from lakecore.sql.parse_tables import partition
from lakecore.sql.statements import Delete, Insert, Merge, MergeClause, Update
from lakecore.sql.tokens import Kind, quoted

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakecore.sql.cursor import Cursor
    from lakecore.sql.statements import Chain

__all__ = [
    "parse_delete",
    "parse_insert",
    "parse_merge",
    "parse_update",
    "set_values",
]

_TRAVELS = ("FOR", "VERSION", "TIMESTAMP")


def parse_insert(cursor: Cursor) -> Insert:
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
    return Insert(
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


def parse_update(cursor: Cursor) -> Update:
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
    return Update(chain=chain, alias=alias, values=values, where=where)


def parse_delete(cursor: Cursor) -> Delete:
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
    return Delete(chain=chain, alias=alias, where=where)


def _alias(cursor: Cursor, *not_names: str) -> str | None:
    if cursor.skip("AS"):
        return cursor.name("an alias")
    is_name = cursor.token.kind in {Kind.WORD, Kind.QUOTED}
    return cursor.name() if is_name and cursor.token.word not in not_names else None


def _assignments(cursor: Cursor, chain: Chain, alias: str | None, *ends: str) -> dict[Chain, str]:
    return set_values(cursor, {alias} if alias else {chain[-1], "target"}, *ends)


def set_values(cursor: Cursor, qualifiers: Collection[str], *ends: str) -> dict[Chain, str]:
    """`column = expression, ...` up to a keyword of `ends`; a qualifier may precede a column.

    `row.field = expression` sets a field of a ROW.
    """
    found: dict[Chain, str] = {}
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


def parse_merge(cursor: Cursor) -> Merge:
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
    clauses: list[MergeClause] = []
    while cursor.skip("WHEN"):
        clauses.append(_clause(cursor, chain, alias))
    if not clauses:
        raise cursor.expected("WHEN MATCHED or WHEN NOT MATCHED")
    return Merge(
        chain=chain,
        alias=alias,
        source=source,
        source_chain=source_chain,
        source_alias=source_alias,
        on=on,
        clauses=tuple(clauses),
    )


def _clause(cursor: Cursor, chain: Chain, alias: str | None) -> MergeClause:
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
        return MergeClause(
            match=match, action="insert", condition=condition, values=values, row=row
        )
    if cursor.skip("DELETE"):
        return MergeClause(match=match, action="delete", condition=condition)
    cursor.expect("UPDATE")
    cursor.skip("SET")
    values = None
    if cursor.skip_symbol("*"):
        if match == "by_source":
            raise cursor.error("a row without a source row has no values for `*`")
    else:
        values = _assignments(cursor, chain, alias, "WHEN")
    return MergeClause(match=match, action="update", condition=condition, values=values)


def _inserted(cursor: Cursor) -> dict[Chain, str] | None:
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
