"""Parses the source in CREATE TABLE ... AS TABLE and CREATE DATABASE ... AS DATABASE.

The statements are those of Realtime Compute for Apache Flink, which Paimon's guides use:

    CREATE TABLE t ... AS TABLE source [/*+ OPTIONS(...) */] [ADD COLUMN (name AS expression, ...)]
    CREATE DATABASE d ... AS DATABASE source [INCLUDING ALL TABLES | INCLUDING TABLE 'regex']
        [EXCLUDING TABLE 'regex'] [/*+ OPTIONS(...) */]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.sql.cursor import Cursor
from lakecore.sql.hints import hint_options
from lakecore.sql.statements import Mirror
from lakecore.sql.tokens import Kind

if TYPE_CHECKING:
    from lakecore.errors import InvalidRequest

__all__ = ["read_database_mirror", "read_table_mirror"]

_MARKS = ",()="


def read_table_mirror(query: str) -> Mirror | None:
    """The source that `AS TABLE name` names; None if any other query follows AS."""
    cursor = Cursor(query)
    if not cursor.skip("TABLE") or not cursor.at_kind(Kind.WORD, Kind.QUOTED):
        return None
    chain = cursor.chain()
    settings = hint_options(cursor)
    computed: list[str] = []
    if cursor.skip("ADD", "COLUMN"):
        if cursor.at_symbol("("):
            computed = cursor.listed(lambda: _computed(cursor))
        else:
            computed = [_computed(cursor)]
        cursor.end()
    if not cursor.done():
        return None
    return Mirror(chain=chain, options=settings, computed=tuple(computed))


def _computed(cursor: Cursor) -> str:
    """`name AS function(arguments)` in the form of `--computed_column`, which has no quotes."""
    name = cursor.name("the name of a computed column")
    cursor.expect("AS")
    function = cursor.name("a function of --computed_column")
    arguments: list[str] = []
    cursor.expect_symbol("(")
    while not cursor.at_symbol(")"):
        arguments.append(_argument(cursor))
        if not cursor.skip_symbol(","):
            break
    cursor.expect_symbol(")")
    if cursor.token.word in {"FIRST", "AFTER", "COMMENT"}:
        raise Unsupported(
            "a computed column is the last one, and has no comment",
            column=name,
            clause=cursor.token.word,
        )
    return f"{name}={function}({','.join(arguments)})"


def _argument(cursor: Cursor) -> str:
    """One argument. In the form of a computed column, strings and names have no quotes."""
    place = cursor.token
    if not cursor.at_kind(Kind.STRING, Kind.QUOTED):
        return cursor.until(symbols=",")
    text = cursor.take().value
    if set(text) & set(_MARKS):
        raise cursor.error(f"an argument of a computed column has none of {_MARKS}", place)
    return text


def read_database_mirror(cursor: Cursor) -> Mirror:
    """The source after AS DATABASE, to the end of the statement."""
    chain = cursor.chain("the database of a source catalog")
    settings = hint_options(cursor)
    including = excluding = None
    if cursor.skip("INCLUDING", "ALL"):
        cursor.expect("TABLES")
    elif cursor.skip("INCLUDING"):
        cursor.expect("TABLE")
        including = cursor.string("a regular expression in quotes")
    if cursor.skip("EXCLUDING"):
        cursor.expect("TABLE")
        excluding = cursor.string("a regular expression in quotes")
    more = hint_options(cursor)
    twice = sorted(settings.keys() & more.keys())
    if twice:
        raise _given_twice(cursor, twice)
    cursor.end()
    return Mirror(
        chain=chain, options={**settings, **more}, including=including, excluding=excluding
    )


def _given_twice(cursor: Cursor, names: list[str]) -> InvalidRequest:
    return cursor.error(f"options are given twice: {', '.join(names)}")
