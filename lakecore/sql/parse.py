"""Parses one SQL statement into a value of `statements.py`.

The first word selects the parser of the rest. DuckDB parses queries.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.errors import Unsupported, did_you_mean
from lakecore.sql import statements as s
from lakecore.sql.cursor import Cursor
from lakecore.sql.parse_rows import (
    parse_copy,
    parse_delete,
    parse_insert,
    parse_merge,
    parse_update,
)
from lakecore.sql.parse_tables import (
    parse_analyze,
    parse_create,
    parse_drop,
    parse_replace,
    parse_truncate,
    partition,
)
from lakecore.sql.tokens import Kind, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.sql.parse_alter import parse_alter, parse_comment_on
else:
    parse_alter = deferred("lakecore.sql.parse_alter", "parse_alter")
    parse_comment_on = deferred("lakecore.sql.parse_alter", "parse_comment_on")


# --- map literals --------------------------------------------------------------------------------
# Flink's `MAP['k', 1, 'l', 2]` as DuckDB's `MAP{'k': 1, 'l': 2}`; all positions stay the same.

_MAY_HAVE = re.compile(r"\bmap\s*\[", re.IGNORECASE)


def with_maps(text: str) -> str:
    """The text with maps written as DuckDB writes them."""
    if _MAY_HAVE.search(text) is None:
        return text
    characters = list(text)
    commas: list[int | None] = []
    """For each open bracket, the number of commas in a map; None in other brackets."""
    before = ""
    for token in tokenize(text):
        symbol = token.value if token.kind is Kind.OTHER else ""
        if symbol and symbol in "([{":
            is_map = symbol == "[" and before == "MAP"
            commas.append(0 if is_map else None)
            characters[token.start] = "{" if is_map else symbol
        elif symbol and symbol in ")]}" and commas:
            characters[token.start] = symbol if commas.pop() is None else "}"
        elif symbol == "," and commas and (count := commas[-1]) is not None:
            characters[token.start] = "," if count % 2 else ":"
            commas[-1] = count + 1
        before = token.word
    return "".join(characters)


# --- parse ---------------------------------------------------------------------------------------

_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "PIVOT", "UNPIVOT", "SUMMARIZE"})
_OWN = frozenset({"PRAGMA", "CHECKPOINT"})
_SHOWN = {
    "DATABASES": "databases",
    "SCHEMAS": "databases",
    "CATALOGS": "catalogs",
    "TABLES": "tables",
    "VIEWS": "views",
    "PARTITIONS": "partitions",
    "TBLPROPERTIES": "properties",
    "COLUMNS": "columns",
    "TAGS": "tags",
    "BRANCHES": "branches",
    "VARIABLES": "variables",
    "PROCEDURES": "procedures",
    "FUNCTIONS": "functions",
}
_EACH_COMMITS = (
    "each statement commits by itself; CALL sys.rollback_to goes back to an earlier snapshot"
)
_NO_EXTENSIONS = "queries use no extensions of DuckDB that must be installed or loaded"
_NO_USERS = "lakecore has no users; the storage decides who may read and write"
_INSTEAD = {
    "ATTACH": "CREATE CATALOG opens another warehouse",
    "BEGIN": _EACH_COMMITS,
    "COMMIT": _EACH_COMMITS,
    "CACHE": "CREATE TEMPORARY VIEW names a query; nothing is cached",
    "GRANT": _NO_USERS,
    "INSTALL": _NO_EXTENSIONS,
    "LOAD": _NO_EXTENSIONS,
    "MSCK": "CALL sys.repair adds the tables of a warehouse to its catalog",
    "OPTIMIZE": "CALL sys.compact compacts a table",
    "REFRESH": "each statement reads the newest snapshot",
    "RESTORE": "CALL sys.rollback_to goes back to an earlier snapshot",
    "REVOKE": _NO_USERS,
    "ROLLBACK": _EACH_COMMITS,
    "START": _EACH_COMMITS,
    "UPSERT": "an INSERT into a table with a primary key replaces the rows of the same keys",
    "VACUUM": "CALL sys.expire_snapshots, and CALL sys.remove_orphan_files, delete old files",
}
"""What to use instead of statements of other systems, or why there is nothing."""
_SHOW_INSTEAD = {
    "ALL": "SHOW VARIABLES lists what SET has set",
    "FULL": "write SHOW TABLES",
    "HISTORY": 'write SELECT * FROM "t$snapshots"',
    "INDEX": "DESCRIBE t shows the primary key, and SHOW TBLPROPERTIES t the options of indexes",
    "INDEXES": "DESCRIBE t shows the primary key, and SHOW TBLPROPERTIES t the options of indexes",
    "JOBS": "statements run in this process; there are no jobs",
    "OPTIONS": "write SHOW TBLPROPERTIES t",
    "SETTINGS": "SHOW VARIABLES lists what SET has set",
    "SNAPSHOTS": 'write SELECT * FROM "t$snapshots"',
}
"""What to write instead of lists that other systems show."""
_DESCRIBE_INSTEAD = {
    "DETAIL": "write DESCRIBE EXTENDED t",
    "HISTORY": 'write SELECT * FROM "t$snapshots"',
}
_OF_TABLE = frozenset({"partitions", "properties", "columns", "tags", "branches"})


def parse(text: str, *, spark_types: bool = False) -> s.Statement:
    """Parse a text as one statement. Raises InvalidRequest, with line, column and a caret.

    With `spark_types`, the names of types have Spark's meaning.
    """
    text = with_maps(text)
    cursor = Cursor(text, spark_types=spark_types)
    word = cursor.token.word
    start = _insert_after_with(text) if word == "WITH" else None
    if start is not None:
        return _with_insert(text, start)
    if word in _QUERIES or cursor.at_symbol("("):
        return s.Query(text=text)
    if word in _OWN:
        return s.Own(text=text)
    parser = _PARSERS.get(word)
    if parser is None:
        if cursor.done():
            raise cursor.error("the statement is empty")
        first = cursor.text[: cursor.token.end].strip()
        hint = f": {_INSTEAD[word]}" if word in _INSTEAD else ""
        near = {} if hint else did_you_mean(word, [*_PARSERS, *_QUERIES])
        raise Unsupported(f"{first!r} starts no statement that is supported{hint}", **near)
    cursor.take()
    statement = parser(cursor)
    cursor.end()
    return statement


def _insert_after_with(text: str) -> int | None:
    """The position of INSERT in Spark's `WITH name AS (...) INSERT ...`; None for a query."""
    depth = 0
    for token, following in pairwise(tokenize(text)):
        if token.kind is Kind.OTHER:
            depth += {"(": 1, ")": -1}.get(token.value, 0)
        elif not depth and token.word == "INSERT" and following.word in {"INTO", "OVERWRITE"}:
            return token.start
    return None


def _with_insert(text: str, start: int) -> s.Statement:
    """Parse the INSERT at `start`; the text before it becomes the beginning of its query."""
    blank = re.sub(r"[^\n]", " ", text[:start])  # keeps the positions in error messages right
    statement = parse(blank + text[start:])
    assert isinstance(statement, s.Insert), "the text begins with INSERT"
    return replace(statement, query=f"{text[:start].rstrip()}\n{statement.query}")


def _table(cursor: Cursor) -> s.Statement:
    """TABLE name: a query for all rows of the table."""
    return s.Query(text="FROM " + cursor.rest("the name of a table"))


def _explain(cursor: Cursor) -> s.Statement:
    cursor.skip("PLAN", "FOR")
    if cursor.at("FORMAT") or cursor.at("FORMATTED") or cursor.at("CODEGEN") or cursor.at("COST"):
        raise Unsupported("EXPLAIN has one form: EXPLAIN [ANALYZE] query", form=cursor.token.word)
    cursor.skip("EXTENDED")
    analyze = cursor.skip("ANALYZE")
    text = cursor.rest()
    if not isinstance(parse(text), s.Query):
        raise Unsupported(
            "EXPLAIN is for queries, not for statements that change data or names", statement=text
        )
    return s.Explain(text=text, analyze=analyze)


def _use(cursor: Cursor) -> s.Statement:
    catalog = cursor.skip("CATALOG")
    if not catalog and (cursor.at("DATABASE") or cursor.at("SCHEMA")):
        cursor.take()
    return s.Use(chain=cursor.chain("the name of a database"), catalog=catalog)


def _show(cursor: Cursor) -> s.Statement:
    if cursor.skip("CREATE", "TABLE"):
        return s.Show(what="create", chain=cursor.chain("the name of the table"))
    if cursor.skip("CREATE", "DATABASE") or cursor.skip("CREATE", "SCHEMA"):
        return s.Show(what="create database", chain=cursor.chain("the name of the database"))
    if cursor.skip("CREATE", "VIEW"):
        return s.Show(what="create view", chain=cursor.chain("the name of the view"))
    if cursor.at("USER", "FUNCTIONS"):
        cursor.take()
    if cursor.skip("CURRENT"):
        what = cursor.take().word
        if what not in {"DATABASE", "CATALOG", "SCHEMA"}:
            raise cursor.expected("CATALOG or DATABASE")
        return s.Show(what="current " + ("catalog" if what == "CATALOG" else "database"))
    if cursor.at("TABLE", "EXTENDED"):
        raise Unsupported("SHOW TABLE EXTENDED: use DESCRIBE EXTENDED table")
    if cursor.token.word in _SHOW_INSTEAD:
        raise Unsupported(f"SHOW {cursor.token.word}: {_SHOW_INSTEAD[cursor.token.word]}")
    what = _SHOWN.get(cursor.token.word, "")
    if not what:
        raise cursor.expected("one of " + ", ".join(["CREATE TABLE", "CURRENT DATABASE", *_SHOWN]))
    cursor.take()
    return _show_list(cursor, what)


def _show_list(cursor: Cursor, what: str) -> s.Show:
    """Parse the rest of SHOW TABLES and other lists."""
    chain: tuple[str, ...] = ()
    if cursor.skip("FROM") or cursor.skip("IN") or what in {"tags", "branches", "partitions"}:
        chain = cursor.chain()
    elif what in _OF_TABLE:
        chain = cursor.chain("the name of the table")
    if what == "columns" and len(chain) == 1 and (cursor.skip("IN") or cursor.skip("FROM")):
        chain = (*cursor.chain("the name of the database"), *chain)
    if what == "properties" and cursor.at_symbol("("):
        (key,) = cursor.listed(lambda: cursor.string("the key of an option"))
        return s.Show(what=what, chain=chain, like=key)
    wanted = partition(cursor) if what == "partitions" and cursor.skip("PARTITION") else None
    like = cursor.string("a pattern") if cursor.skip("LIKE") else None
    return s.Show(what=what, chain=chain, partition=wanted, like=like)


def _describe(cursor: Cursor) -> s.Statement:
    if cursor.token.word in _QUERIES or cursor.at_symbol("("):
        return s.Query(text="DESCRIBE " + cursor.rest())
    extended = cursor.skip("EXTENDED") or cursor.skip("FORMATTED")
    if cursor.at("FUNCTION") and cursor.ahead(1).kind in {Kind.WORD, Kind.QUOTED}:
        cursor.take()
        extended = cursor.skip("EXTENDED") or extended
        return s.Describe(chain=cursor.chain(), extended=extended, function=True)
    instead = _DESCRIBE_INSTEAD.get(cursor.token.word)
    if instead is not None and cursor.ahead(1).kind in {Kind.WORD, Kind.QUOTED}:
        raise Unsupported(f"DESCRIBE {cursor.token.word}: {instead}")
    database = cursor.skip("DATABASE") or cursor.skip("SCHEMA")
    if cursor.skip("TABLE"):
        extended = cursor.skip("EXTENDED") or cursor.skip("FORMATTED") or extended
    return s.Describe(chain=cursor.chain(), extended=extended, database=database)


def _set(cursor: Cursor) -> s.Statement:
    if cursor.done():
        return s.SetVariable()
    is_text = cursor.token.kind is Kind.STRING
    key = cursor.string() if is_text else cursor.until(symbols="=")
    if not cursor.skip_symbol("="):
        if not is_text and key.split() != [key]:
            raise cursor.expected("= and a value")  # such as SET key TO value
        return s.SetVariable(key=key)
    if cursor.token.kind is Kind.STRING:
        return s.SetVariable(key=key, value=cursor.string())
    return s.SetVariable(key=key, value=cursor.rest("a value"))


def _reset(cursor: Cursor) -> s.Statement:
    if cursor.done():
        return s.Reset()
    return s.Reset(key=cursor.string() if cursor.token.kind is Kind.STRING else cursor.rest())


def _call(cursor: Cursor) -> s.Statement:
    chain = cursor.chain("the name of a procedure")
    positional: list[str] = []
    named: dict[str, str] = {}
    cursor.expect_symbol("(")
    while not cursor.at_symbol(")"):
        place = cursor.token
        arrow = cursor.ahead(1)
        if arrow.kind is Kind.OTHER and arrow.value in {"=>", ":="}:
            key = cursor.name("the name of an argument").lower()
            cursor.take()
            if key in named:
                raise cursor.error(f"the argument {key!r} is given twice", place)
            named[key] = cursor.until(symbols=",")
        else:
            if named:
                raise cursor.error("an argument without a name follows one with a name")
            positional.append(cursor.until(symbols=","))
        if not cursor.skip_symbol(","):
            break
    cursor.expect_symbol(")")
    return s.Call(procedure=".".join(chain), positional=tuple(positional), named=named)


_PARSERS: dict[str, Callable[[Cursor], s.Statement]] = {
    "ALTER": parse_alter,
    "ANALYZE": parse_analyze,
    "CALL": _call,
    "COMMENT": parse_comment_on,
    "COPY": parse_copy,
    "CREATE": parse_create,
    "DELETE": parse_delete,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "DROP": parse_drop,
    "EXPLAIN": _explain,
    "INSERT": parse_insert,
    "MERGE": parse_merge,
    "REPLACE": parse_replace,
    "RESET": _reset,
    "SET": _set,
    "SHOW": _show,
    "TABLE": _table,
    "TRUNCATE": parse_truncate,
    "UPDATE": parse_update,
    "USE": _use,
}

_GRAMMAR = """
    ADD AND AS BETWEEN BY CASCADE CASE CATALOG COLUMN COMMENT DATABASE DISTINCT ELSE END ENFORCED
    EXISTS EXTENDED FOR GROUP HAVING IF IN INTO IS JOIN KEY LEFT LIKE LIMIT MATCHED NOT NULL OF ON
    OPTIONS OR ORDER OVERWRITE PARTITION PARTITIONED PRIMARY RENAME TABLE TEMPORARY THEN TIMESTAMP
    TO UNION USING VALUES VERSION VIEW WHEN WHERE WINDOW WITH
"""
WORDS = tuple(sorted({*_PARSERS, *_QUERIES, *_SHOWN, *re.findall(r"\w+", _GRAMMAR)}))
"""Keywords, for completion."""
