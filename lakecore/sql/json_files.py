"""JSON arrays after a byte order mark, which DuckDB reads as one value unless it is told otherwise.

Only a file that begins with `[` is an array for DuckDB, unless `format = 'array'` says so: this
module says it for the user. It is said of all files of one call; so such a file is refused among
files that are no arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.sql.tokens import Kind, Token, quoted, quoted_text, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.io.local_files import array_start
else:
    array_start = deferred("lakecore.io.local_files", "array_start")

_ENDS = (".json", ".jsonl", ".ndjson")
_READERS = ("READ_JSON", "READ_NDJSON")
_TABLE_BEFORE = {"FROM", "JOIN"}
_NO_ALIAS = {
    *("WHERE", "GROUP", "ORDER", "LIMIT", "OFFSET", "HAVING", "QUALIFY", "WINDOW", "SELECT"),
    *("JOIN", "LEFT", "RIGHT", "INNER", "OUTER", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI"),
    *("ASOF", "POSITIONAL", "ON", "USING", "UNION", "EXCEPT", "INTERSECT", "TABLESAMPLE"),
}


def with_stated_arrays(
    text: str,
    parameters: Sequence[object] | Mapping[str, object] | None,
    connection: duckdb.DuckDBPyConnection,
    opened: Callable[[str], pa.NativeFile | str],
) -> str:
    """The query, with `format = 'array'` wherever it reads JSON arrays after a byte order mark.

    `opened` opens a file, or returns the path of a local one. Raises InvalidRequest where the
    format cannot be stated.
    """
    given = parameters.values() if isinstance(parameters, dict) else parameters or ()
    names = [each for each in given if isinstance(each, str)]

    def is_marked(names: Iterable[str]) -> bool:
        return are_marked_arrays(
            (opened(path), path) for name in names for path in _found(name, connection)
        )

    changes = list(_changes(tokenize(text), names, is_marked))
    for start, end, new in reversed(changes):
        text = text[:start] + new + text[end:]
    return text


def _changes(
    tokens: Sequence[Token], given: Sequence[str], is_marked: Callable[[Iterable[str]], bool]
) -> Iterator[tuple[int, int, str]]:
    """What to put in place of which parts of a query. `given` are the values of parameters."""
    inside = 0  # the end of the last call that was looked at
    for at, token in enumerate(tokens):
        if token.start < inside:
            continue
        is_file = token.kind in {Kind.STRING, Kind.QUOTED}
        if token.word.startswith(_READERS) and tokens[at + 1].value == "(":
            call = list(_call(tokens, at + 1))
            inside = call[-1].end
            change = _of_call(token, call, given, is_marked)
            if change is not None:
                yield change
        elif is_file and _plain_end(token.value).endswith(_ENDS) and is_marked([token.value]):
            if not at or tokens[at - 1].word not in _TABLE_BEFORE:
                raise _not_stated([token.value])
            reader = f"read_json({quoted_text(token.value)}, format = 'array')"
            yield token.start, token.end, reader + _alias(token, tokens[at + 1])


def _of_call(
    reader: Token,
    call: Sequence[Token],
    given: Sequence[str],
    is_marked: Callable[[Iterable[str]], bool],
) -> tuple[int, int, str] | None:
    """The change in a call of a table function, whose tokens are those in its parentheses."""
    words = [each.word for each in call]
    stated = next(iter(call[words.index("FORMAT") + 2 :]), None) if "FORMAT" in words else None
    if stated is not None and stated.value != "auto":
        return None
    names = [each.value for each in call if each.kind is Kind.STRING and each is not stated]
    if any(each.kind is Kind.PARAMETER for each in call):
        names += given
    if not is_marked(names):
        return None
    if reader.word.startswith(_READERS[1]):
        raise _not_stated(names)
    if stated is not None:
        return stated.start, stated.end, "'array'"
    return call[-1].start, call[-1].start, ", format = 'array'"


def are_marked_arrays(files: Iterable[tuple[pa.NativeFile | str, str]]) -> bool:
    """Whether a byte order mark begins one of the files, and each is a JSON array.

    Each file comes with the name that an error shows. Raises InvalidRequest if there are other
    files next to an array after a mark.
    """
    starts = {shown: array_start(file, shown) for file, shown in files}
    marked = [shown for shown, start in starts.items() if all(start)]
    others = [shown for shown, (is_array, _) in starts.items() if not is_array]
    if marked and others:
        raise InvalidRequest(
            "the file is a JSON array after a byte order mark, and is read with files that are no "
            "arrays: read it alone, or save it without the mark",
            file=marked[0],
            other=others[0],
        )
    return bool(marked)


def _found(name: str, connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The files that a name stands for."""
    try:
        found = connection.execute("SELECT file FROM glob(?)", [name]).fetchall()
    except duckdb.Error:
        return []  # the query says why
    return [path for (path,) in found]


def _call(tokens: Sequence[Token], opening: int) -> Iterator[Token]:
    """The tokens from a parenthesis to the one that closes it, or to the end."""
    depth = 0
    for token in tokens[opening:]:
        depth += (token.value == "(") - (token.value == ")") if token.kind is Kind.OTHER else 0
        yield token
        if not depth:
            return


def _alias(token: Token, after: Token) -> str:
    """The alias that DuckDB gives to a file, unless the query does."""
    if after.kind is Kind.QUOTED or (after.word and after.word not in _NO_ALIAS):
        return ""
    name = token.value.replace("\\", "/").rpartition("/")[2]
    return f" AS {quoted(name.partition('.')[0])}"


def _not_stated(names: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        "the file is a JSON array after a byte order mark: read it by "
        "read_json(file, format = 'array')",
        file=names[0] if names else None,
    )


def _plain_end(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst")
