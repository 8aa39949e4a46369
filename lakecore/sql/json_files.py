"""Refuses JSON arrays after a byte order mark, which DuckDB reads as one value without an error.

Only a file that begins with `[` is an array for DuckDB, unless `format = 'array'` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.sql.tokens import Kind, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakecore.io.local_files import is_marked_array
else:
    is_marked_array = deferred("lakecore.io.local_files", "is_marked_array")

__all__ = ["check_no_marked_array", "check_query_of_json"]

_ENDS = (".json", ".jsonl", ".ndjson")
_READERS = ("READ_JSON", "READ_NDJSON")
_ARRAY = "array"


def check_query_of_json(
    text: str,
    parameters: Sequence[object] | Mapping[str, object] | None,
    connection: duckdb.DuckDBPyConnection,
    opened: Callable[[str], pa.NativeFile | str],
) -> None:
    """Raise InvalidRequest if a query reads a JSON array after a byte order mark.

    `opened` opens a file, or returns the path of a local one.
    """
    tokens = tokenize(text)
    given = parameters.values() if isinstance(parameters, dict) else parameters or ()
    names = [each.value for each in tokens if each.kind in {Kind.STRING, Kind.QUOTED}]
    names += [each for each in given if isinstance(each, str)]
    if _ARRAY in names:
        return
    if not any(each.word.startswith(_READERS) for each in tokens):
        names = [each for each in names if _plain_end(each).endswith(_ENDS)]
    for name in names:
        try:
            found = connection.execute("SELECT file FROM glob(?)", [name]).fetchall()
        except duckdb.Error:
            continue  # the query says why
        check_no_marked_array((opened(path), path) for (path,) in found)


def check_no_marked_array(files: Iterable[tuple[pa.NativeFile | str, str]]) -> None:
    """Raise InvalidRequest for a JSON array after a byte order mark.

    Each file comes with the name that the error shows.
    """
    for file, shown in files:
        if is_marked_array(file, shown):
            raise InvalidRequest(
                "the file is a JSON array after a byte order mark, which would be read as one "
                "value: save it without the mark, import it with --encoding utf-8, or read it "
                "by read_json(file, format = 'array')",
                file=shown,
            )


def _plain_end(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst")
