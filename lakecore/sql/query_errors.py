"""Converts errors that DuckDB raises during a query to errors of lakecore.

An interrupted query raises KeyboardInterrupt, whatever error DuckDB or Arrow raises.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import duckdb
import pyarrow as pa

from lakecore import errors
from lakecore.errors import (
    KEPT_LONGER,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
    did_you_mean,
)
from lakecore.scalar.syntax_trees import IS_DUCKDB_1, syntax_tree
from lakecore.sql import statements as s
from lakecore.sql.references import placeholders
from lakecore.sql.tokens import syntax_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


# --- duckdb messages -----------------------------------------------------------------------------
# Messages of DuckDB as a cause and facts, without what only makes sense in DuckDB itself.
#
# Dropped: the class of the error, the line of a text that lakecore has rewritten, advice to change
# settings, names of lakecore's views, and suggestions that no user can follow.

OWN = "_lakecore_"
"""The beginning of every name that lakecore gives to objects in DuckDB."""
_CLASS = re.compile(r"\A(?:[A-Z][A-Za-z]* ){1,3}?Error: ")
_LINE = re.compile(r"\n\nLINE \d+: .*", re.DOTALL)
_OWN_NAME = re.compile(rf'"?\b(?:memory\.main\.)?{OWN}\w+"?( AS )?|\b(?:memory|temp)\.main\.')
_SETTING = re.compile(r"\b(?:SET|PRAGMA|INSTALL|LOAD) ")
_SENTENCE = re.compile(r"(?<=[.!]) (?=[A-Z])")
_LITERALS = {"STRING_LITERAL": "VARCHAR", "INTEGER_LITERAL": "INTEGER"}
_PYTHON = re.compile(r"\.? Detail: Python exception: .*", re.DOTALL)
_READING = re.compile(
    r"\A(?:.*?(?:reading the Arrow source failed|get_next failed\(\)): )(?:\w+(?: \w+)?: )?",
    re.DOTALL,
)
_COLUMN = re.compile(r'(?:Referenced column|does not have a column named|Column) "?(.+?)"?(?: |\Z)')
_TABLE = re.compile(r'Referenced table "(.+?)" not found')
_THING = re.compile(r'((?:\w+ )?Function|Type|Table) with name "?(.+?)"? does not exist')
_CANDIDATES = re.compile(r"Candidate (?:bindings|tables|Entries):[ :]*(.*)")
_SIGNATURE = re.compile(r"^\t(\S.* -> .*)$", re.MULTILINE)
_SUGGESTED = re.compile(r'Did you mean "(.+?)"')
_SIGNATURES_MAX = 3
_CALLED = re.compile(r"argument types '([^(]+)\(")
_WRITTEN = {"<=>": "x IS NOT DISTINCT FROM y", "map": "MAP {'key': value}"}
_INSTEAD = {
    "add_months": "time + INTERVAL 1 MONTH",
    "array_agg": "list(x)",
    "charindex": "strpos(text, part)",
    "collect_list": "list(x)",
    "collect_set": "list(DISTINCT x)",
    "date_add": "time + INTERVAL 1 DAY",
    "date_format": "strftime(time, '%Y-%m-%d')",
    "date_sub": "time - INTERVAL 1 DAY",
    "explode": "unnest(list)",
    "from_unixtime": "to_timestamp(seconds)",
    "get_json_object": "json_extract_string(text, path)",
    "instr": "strpos(text, part)",
    "listagg": "string_agg(x, ',')",
    "locate": "strpos(text, part)",
    "map_from_arrays": "map(keys, values)",
    "named_struct": "{'name': value}",
    "nvl": "coalesce(x, y)",
    "nvl2": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
    "percentile": "quantile_cont(x, 0.5)",
    "percentile_approx": "approx_quantile(x, 0.5)",
    "posexplode": "unnest(list) WITH ORDINALITY",
    "proctime": "now()",
    "rlike": "regexp_matches(text, pattern)",
    "size": "len(list)",
    "str_to_date": "strptime(text, '%Y-%m-%d')",
    "timestampadd": "time + INTERVAL 1 DAY",
    "timestampdiff": "date_diff('day', start, end)",
    "to_date": "CAST(text AS DATE), or strptime(text, format)",
    "to_unix_timestamp": "epoch(time)",
    "unix_timestamp": "epoch(time), or epoch(now())",
}
"""What DuckDB has in place of functions of Flink and Spark, by name."""


_OTHER_SYNTAX = [
    (re.compile(before, re.IGNORECASE), re.compile(after, re.IGNORECASE), write)
    for before, after, write in (
        (r"", r"(rlike|regexp)\b", "regexp_matches(text, pattern)"),
        (r"", r"lateral\b", "CROSS JOIN unnest(list) AS u(x)"),
        (r"\btop\s*\Z", r"\d", "LIMIT at the end"),
        (r"\blimit\s+\w+\s*\Z", r",", "LIMIT rows OFFSET first"),
        (r"", r"@", "t VERSION AS OF 1, or t TIMESTAMP AS OF '...'"),
        (r"", r"(sort|distribute|cluster)\b", "ORDER BY"),
        (r"", r"minus\b", "EXCEPT"),
    )
]


def cause(text: str) -> tuple[str, Mapping[str, object]]:
    r"""What DuckDB's message says, as a sentence and facts about unknown names.

    cause('Binder Error: Referenced column "itm" not found in FROM clause!\n...')
    # ("unknown column", {"column": "itm", "did_you_mean": "item", "columns": ["item", "id"]})
    """
    said = _PYTHON.sub("", _CLASS.sub("", _LINE.sub("", text.strip())))
    said = _READING.sub("", said)
    for literal, kind in _LITERALS.items():
        said = said.replace(literal, kind)
    first, _, rest = said.partition("\n")
    known = [name.strip(' "') for name in _listed(rest)]
    known = [name for name in known if not name.startswith(OWN)]
    thing, column, table = (each.search(first) for each in (_THING, _COLUMN, _TABLE))
    if thing is not None:
        return _missing(thing[1].lower(), thing[2], _SUGGESTED.search(rest))
    if table is not None:
        facts = {"table": table[1], **did_you_mean(table[1], known)}
        return "the query has no table of this name", {
            **facts,
            **({"tables": known} if known else {}),
        }
    if column is not None and ("not found" in first or "does not have" in first):
        name = column[1]
        without = "; the query has no FROM" if "FROM clause is missing" in first else ""
        facts = {"column": name, **did_you_mean(name, known)}
        return f"unknown column{without}", {**facts, **({"columns": known} if known else {})}
    sentences = [each for each in _SENTENCE.split(first) if not _SETTING.search(each)]
    sentences += [line for line in rest.splitlines() if line.startswith("Either ")]
    plain = _OWN_NAME.sub("", " ".join(sentences)).rstrip(" .!:")
    called = _CALLED.search(first)
    if called is not None and called[1] in _WRITTEN:
        return _lowered(plain), {"write": _WRITTEN[called[1]]}
    signatures = _SIGNATURE.findall(rest)[:_SIGNATURES_MAX]
    return _lowered(plain), {"such_as": signatures} if signatures else {}


def syntax_hint(text: str, place: int) -> str:
    """What to write in place of other systems' syntax at a syntax error; empty if unknown."""
    for before, after, write in _OTHER_SYNTAX:
        if before.search(text[:place]) and after.match(text, place):
            return f"; write {write}"
    return ""


def _listed(rest: str) -> list[str]:
    found = _CANDIDATES.search(rest)
    return found[1].split(", ") if found is not None and found[1] else []


def _missing(
    kind: str, name: str, suggested: re.Match[str] | None
) -> tuple[str, dict[str, object]]:
    what = kind.rpartition(" ")[2]
    facts: dict[str, object] = {what: name}
    instead = _INSTEAD.get(name.lower()) if what == "function" else None
    if instead is not None:
        facts["write"] = instead
    elif suggested is not None and what != "table":
        facts |= did_you_mean(name, [suggested[1]])
    return f"no such {kind.replace('scalar ', '')}", facts


def _lowered(sentence: str) -> str:
    """The sentence with a small first letter, unless it starts with a name in capitals."""
    starts_word = sentence[1:2].islower() or sentence[1:2] == " "
    return sentence[:1].lower() + sentence[1:] if starts_word else sentence


# --- query errors --------------------------------------------------------------------------------

FAILURES = (duckdb.Error, pa.ArrowException, OSError, RuntimeError)
"""The errors of DuckDB and Arrow. An interrupted query may raise a plain RuntimeError."""

T = TypeVar("T")
_GONE = ("No files found", "No such file")
_OF_PYTHON = re.compile(rf"^(?:[\w.]+\.)?({'|'.join(errors.__all__)}): (.*?)\s*$", re.MULTILINE)
"""The line of a Python traceback that DuckDB gives as the text of an error."""
_IN_PYTHON = re.compile(r"\ATraceback|\n\nAt:\n")  # of DuckDB 2 and DuckDB 1
_INTERRUPTED = ("INTERRUPT Error", "Query interrupted")


class _Closable(Protocol):
    def close(self) -> None: ...


def written(rows: _Closable, verb: Callable[[], T]) -> T:
    """Call `verb`, which writes `rows`, and return its result. Raises only lakecore errors.

    Closes `rows` afterwards: an open result would block the connection for other statements.
    """
    try:
        return verb()
    except LakecoreError:
        raise
    except FAILURES as error:
        raise_interrupt(error)
        found = error_of(error)
        said = f"{found.message}; nothing was committed"
        raise type(found)(said, **found.facts) from error
    finally:
        rows.close()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise lakecore errors, and KeyboardInterrupt, whatever part of a statement DuckDB ends."""
    try:
        yield
    except LakecoreError:
        raise
    except duckdb.Error as error:
        raise error_of(error) from error
    except RuntimeError as error:
        raise_interrupt(error)
        raise


def error_of(error: BaseException) -> LakecoreError:
    """A DuckDB error as a lakecore error, with a message that says what the user can change.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    raise_interrupt(error)
    text = str(error)
    own = _OF_PYTHON.search(text) if _IN_PYTHON.search(text) else None
    if own is not None:  # DuckDB called lakecore, which raised it
        return cast("LakecoreError", getattr(errors, own[1])(own[2]))
    if IS_DUCKDB_1 and "ArrowTypeError" in text:
        return Unsupported(
            "DuckDB 1 does not pass on the dates or times of a list; install DuckDB 2"
        )
    said, facts = cause(text)
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return Unsupported(
            "DuckDB failed at this query by a fault of its own; write the query in another way",
            reason=said,
        )
    if "requires the extension" in text or "it exists in the" in text:
        return Unsupported(
            "DuckDB would need an extension, and lakecore installs and loads none", reason=said
        )
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return NotFound(said, **facts)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return StorageError(said, **facts)
    if text.startswith("Resource In Use"):
        return InvalidRequest(
            "rows of an earlier statement are still being read; read them to the end, or close "
            "their reader"
        )
    return InvalidRequest(said, **facts)


def error_of_result(error: BaseException) -> LakecoreError:
    """An error of DuckDB while the rows of a result are read, perhaps long after its statement.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    text = str(error)
    if isinstance(error, duckdb.CatalogException) and OWN in text:
        return NotFound(
            "the session no longer keeps the state of a table that this result reads: run the "
            "statement again, and read its rows before those of many others"
        )
    if isinstance(error, duckdb.IOException) and any(each in text for each in _GONE):
        return NotFound(
            "a file that this result reads is not there; if a table was dropped, or its snapshot "
            f"has expired, since the statement, run the statement again; {KEPT_LONGER}",
            reason=cause(text)[0],
        )
    return error_of(error)


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if the error says that the query was interrupted."""
    said = any(text in str(error) for text in _INTERRUPTED)
    if said or isinstance(error, duckdb.InterruptException):
        raise KeyboardInterrupt from error


def drop_table(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a temporary table of a statement that has ended or was interrupted by Ctrl-C.

    The thread that interrupts the statement may also interrupt the next one on the connection, at
    most once for each Ctrl-C. The drop is therefore repeated.
    """
    while True:
        try:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        except duckdb.InterruptException:
            continue
        return


# --- syntax check --------------------------------------------------------------------------------
# Finds syntax errors in a statement before it, or an earlier one of the same text, runs.
#
# `parse` leaves queries and expressions as text for DuckDB. This module lets DuckDB parse them, and
# reports an error at its position in the statement.

_SELECT = "SELECT "
_NOT_A_QUERY = "Only SELECT"
"""DuckDB gives no tree for statements such as PIVOT, once it has parsed them."""


def check_syntax(text: str, statement: s.Statement, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise InvalidRequest if DuckDB cannot parse a query or an expression of the statement."""
    for query in _queries(statement):
        _check(text, query, "", connection)
    for expression in _expressions(statement):
        if expression.strip().upper() != "DEFAULT":
            _check(text, expression, _SELECT, connection)


def _check(text: str, part: str, before: str, connection: duckdb.DuckDBPyConnection) -> None:
    # Blanks keep the position of the part, and so that of its error.
    place = max(text.find(part) - len(before), 0)
    padded = re.sub(r"[^\n]", " ", text[:place]) + before + part
    tree = syntax_tree(connection, placeholders(padded)[0])
    message = str(tree.get("error_message", "")).partition("\n")[0]
    if not tree["error"] or _NOT_A_QUERY in message:
        return
    at = len(padded.encode()[: int(str(tree.get("position", 0)))].decode(errors="ignore"))
    at = min(at, len(text))
    raise syntax_error(text, at, message + syntax_hint(text, at))


def _queries(statement: s.Statement) -> Iterator[str]:
    match statement:
        case s.Query() | s.Explain():
            yield statement.text
        case s.Insert() | s.CreateView() | s.CopyOut():
            yield statement.query
        case s.CreateTable(query=str(query)) | s.AlterView(query=str(query)):
            yield query
        case s.Merge():
            yield f"FROM {statement.source}"


def _expressions(statement: s.Statement) -> Iterator[str]:
    found: Iterable[str | None] = ()
    match statement:
        case s.Update():
            found = [*statement.values.values(), statement.where]
        case s.Delete():
            found = [statement.where]
        case s.Merge():
            found = [statement.on, *(each.condition for each in statement.clauses)]
            for clause in statement.clauses:
                found += [*(clause.values or {}).values(), *(clause.row or ())]
        case s.Call():
            found = [*statement.positional, *statement.named.values()]
    yield from (each for each in found if each is not None)
