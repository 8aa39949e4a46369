"""The DuckDB that parses and evaluates expressions: in memory, one thread, sealed.

The text of an expression may come from anywhere, so this DuckDB reads no file, attaches no
database, loads no extension, sees no Python variable, and its settings are locked.

INVARIANT: no filter is pushed into the scan of an Arrow table, because Arrow compares NaN and
nested values differently from DuckDB. The optimizer rule that pushes filters is off.
"""

from __future__ import annotations

import os
import re
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import duckdb

from lakecore.errors import InvalidRequest
from lakecore.scalar import syntax_trees

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from lakecore.scalar.syntax_trees import Json, Node

MEMORY_LIMIT = "256MB"
"""What DuckDB may hold in its own buffers while it evaluates one batch."""

_WORD = re.compile(rb"\w+")
_PREFIX = "SELECT (\n"
_SUFFIX = "\n)"
_SETTINGS = (
    "SET GLOBAL threads = 1",
    "SET GLOBAL disabled_optimizers = 'filter_pushdown'",
    "SET GLOBAL python_enable_replacements = false",
    "SET GLOBAL autoinstall_known_extensions = false",
    "SET GLOBAL autoload_known_extensions = false",
    f"SET GLOBAL memory_limit = '{MEMORY_LIMIT}'",
)
_BROKEN = (duckdb.FatalException, duckdb.InternalException)
"""After one of these errors, a DuckDB database answers no further query."""

_lock = threading.Lock()
_databases: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}


class _OfThread(threading.local):
    """The connections of one thread. Threads must not share connections."""

    def __init__(self) -> None:
        self.connections: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}


_of_thread = _OfThread()


@cache
def local_zone() -> str:
    """The time zone of this machine, as DuckDB names it."""
    rows = _connection("").execute("SELECT current_setting('TimeZone')").fetchall()
    return str(rows[0][0])


def syntax_tree(text: str) -> Node:
    """The syntax tree of a text of SELECT statements, or of the error in it.

    Raises InvalidRequest for text that is not Unicode or is nested too deeply.
    """
    try:
        text.encode()
        return syntax_trees.syntax_tree(_connection(""), text)
    except UnicodeEncodeError as error:
        raise InvalidRequest("the SQL text is not Unicode", text=repr(text)) from error
    except RecursionError as error:
        raise _too_deep() from error


def bind(query: str, views: Mapping[str, Mapping[str, str]]) -> None:
    """Resolve all names in a query over these views only. Raises duckdb.Error.

    `views` has the DuckDB types of the columns of each view, by the names of view and column.
    """
    connection = _connection("")
    try:
        for name, types in views.items():
            columns = ", ".join(f"NULL::{kind} AS {quoted(each)}" for each, kind in types.items())
            connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT {columns}")
        connection.sql(query)
    except _BROKEN:
        _forget("")
        raise
    finally:
        for name in views:
            connection.execute(f"DROP VIEW IF EXISTS {quoted(name)}")


def parse(text: str, what: str = "expression") -> Node:
    """The syntax tree of one expression; locations count bytes of the text.

    `what`: the name of the expression in errors. Raises InvalidRequest, with the position of the
    fault, for text that is not an expression.
    """
    try:
        text.encode()
        found = cast("dict[str, Any]", syntax_tree(_PREFIX + text + _SUFFIX))
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the SQL {what} is not Unicode text", text=repr(text)) from error
    except duckdb.Error as error:
        raise InvalidRequest(f"bad SQL {what}", text=text, reason=reason_of(error)) from error
    if found["error"]:
        raise _syntax_error(found, text, what)
    statements = found["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    (expression, *more) = node.get("select_list") or [None]
    if more or not isinstance(expression, dict) or not _is_bare(node):
        raise InvalidRequest(f"not an SQL {what}", text=text)
    if expression.get("function_name") == "row" and not expression.get("arguments"):
        raise InvalidRequest(f"not an SQL {what}", text=text)
    return cast("Node", _moved(expression, -len(_PREFIX)))


def quoted_words(text: str, words: Collection[str]) -> str:
    """The text with each of these keywords in double quotes, except as a function name."""
    data = text.encode()
    for begin, kind in reversed(duckdb.tokenize(text)):
        match = _WORD.match(data, begin)
        if kind != duckdb.token_type.keyword or match is None:
            continue
        if match[0].decode().lower() in words and not data[match.end() :].lstrip().startswith(b"("):
            data = data[:begin] + b'"' + match[0] + b'"' + data[match.end() :]
    return data.decode()


def evaluate(query: str, tables: Mapping[str, pa.Table], zone: str) -> pa.Table:
    """The rows of a query over these tables. Raises duckdb.Error, which the caller translates."""
    connection = _connection(zone)
    try:
        for name, rows in tables.items():
            connection.register(name, rows)
        return connection.sql(query).to_arrow_table()
    except _BROKEN:
        _forget(zone)
        raise
    finally:
        for name in tables:
            connection.unregister(name)


def catalog(query: str) -> list[tuple[object, ...]]:
    """The rows of a query about DuckDB itself."""
    return cast("list[tuple[object, ...]]", _connection("").execute(query).fetchall())


def reason_of(error: BaseException) -> str:
    """DuckDB's message in one line, without the class of the error and the marked position."""
    text = str(error).split("\n\nLINE ")[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    kind, separator, rest = first.partition(" Error: ")
    first = rest if separator and len(kind) < 40 else first
    hints = [line for line in lines[1:] if line.startswith("Did you mean")]
    return " ".join([first, *hints])


def _connection(zone: str) -> duckdb.DuckDBPyConnection:
    """The connection of this thread to the database for a time zone (empty: the machine's zone)."""
    key = (os.getpid(), zone)
    own = _of_thread.connections
    found = own.get(key)
    if found is None:
        with _lock:
            if key not in _databases:
                _databases[key] = _sealed(zone)
            found = own[key] = _databases[key].cursor()
    return found


def _sealed(zone: str) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"enable_external_access": "false", "temp_directory": ""})
    for setting in _SETTINGS:
        database.execute(setting)
    if zone:
        quoted = zone.replace("'", "''")
        try:
            database.execute(f"SET GLOBAL TimeZone = '{quoted}'")
        except duckdb.Error as error:
            raise InvalidRequest("unknown time zone", zone=zone) from error
    database.execute("SET GLOBAL lock_configuration = true")
    return database


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _forget(zone: str) -> None:
    """Drop a database that cannot be used after an error; the next use creates another."""
    key = (os.getpid(), zone)
    with _lock:
        _databases.pop(key, None)
    _of_thread.connections.pop(key, None)


def _is_bare(node: Node) -> bool:
    """Whether a SELECT has only a select list and no other clause."""
    empty: list[Json] = [None, "", False, [], {}, {"map": []}, "STANDARD_HANDLING", "SELECT_NODE"]
    return all(
        key == "select_list"
        or (isinstance(value, dict) and value.get("type") == "EMPTY")
        or value in empty
        for key, value in node.items()
    )


def _moved(tree: Json, by: int) -> Json:
    """The tree with `by` added to all locations.

    A location of -1 means that DuckDB does not know it.
    """
    if isinstance(tree, list):
        return [_moved(each, by) for each in tree]
    if not isinstance(tree, dict):
        return tree
    found: Node = {}
    for key, value in tree.items():
        if key == "query_location" and isinstance(value, int):
            found[key] = value + by if value < 1 << 63 else -1
        else:
            found[key] = _moved(value, by)
    return found


def _syntax_error(found: Node, text: str, what: str) -> InvalidRequest:
    message = str(found.get("error_message", ""))
    if "expression depth limit" in message:
        return _too_deep()
    facts: dict[str, object] = {"text": text, "reason": message}
    position = str(found.get("position", ""))
    if position.isdigit():
        at = int(position) - len(_PREFIX)
        before = text.encode()[: max(at, 0)].decode(errors="ignore")
        if at >= len(text.encode()):
            facts["reason"] = "the text ends too early"
        facts["position"] = len(before) + 1
    return InvalidRequest(f"bad SQL {what}", **facts)


def _too_deep() -> InvalidRequest:
    return InvalidRequest("the SQL text is nested too deeply; name many values by IN (...)")
