"""COPY INTO a directory: writes the rows of a query to a file of CSV, JSON or Parquet.

If the storage renames directories atomically (local disk, HDFS):

1. Write one file, `part-00000-UUID-c000.ENDING`, and `_SUCCESS` to a hidden directory next to the
   target.
2. With OVERWRITE = TRUE, rename the old directory to another name.
3. Rename the new directory to the target, then delete the old one. A reader sees either the old
   files or the new ones.

On an object store, the file is written to the target directory. Then the old files are deleted,
`_SUCCESS` first, and a new `_SUCCESS` is written. A reader that waits for `_SUCCESS` never sees old
and new files together.

A wrong path cannot delete a warehouse: OVERWRITE = TRUE refuses a directory with subdirectories,
and COPY INTO refuses any path within a table's directory.

https://paimon.apache.org/docs/master/spark/sql-write/#copy-into
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.catalog.file_tables import is_table
from lakecore.errors import AlreadyExists, InvalidRequest, Unsupported
from lakecore.io.ambient import SYSTEM
from lakecore.io.local_files import local_output
from lakecore.io.stores.open import without_links
from lakecore.sql.copy_format import Place, export_format, is_file
from lakecore.sql.query_errors import FAILURES, error_of
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import duckdb

    from lakecore.io.stores.store import Store
    from lakecore.sql.copy_format import ExportFormat
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Queries
    from lakecore.sql.run_show import Rows
    from lakecore.sql.statements import CopyOut

_COLUMNS = ("output_path", "file_count", "rows_written")
_SUCCESS = "_SUCCESS"
_NESTED = ("STRUCT", "MAP", "UNION")
_FLOATS = ("FLOAT", "DOUBLE")
_PARTS = re.compile(r'"(?:[^"]|"")*"|\w+')
_TEXTS = r"""'"(?:[^"\\]|\\.)*"'"""
"""A regular expression, as an SQL string: the strings within a JSON value."""
_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_PARQUET_ENDINGS = {"uncompressed": "", "gzip": ".gz", "brotli": ".br", "lz4_raw": ".lz4raw"}


def copy_out(
    queries: Queries, statement: CopyOut, scope: Scope, storage: Mapping[str, str]
) -> Rows:
    """Write the rows. Returns one row: the result of the statement.

    `storage` has the options of the storage of the files.
    """
    chosen = export_format(statement.format, statement.options)
    place = Place.of(statement.target, storage)
    _check_target(place, overwrite=statement.overwrite)
    relation = queries.relation(statement.query, None, scope)
    name = SYSTEM.new_uuid()
    file = f"part-00000-{name}-c000{_ending(chosen)}"

    def write(directory: str) -> int:
        with local_output(place.store, f"{directory}/{file}") as path:
            return _write(queries, relation, path, chosen)

    rows = _renamed(place, name, write) if place.store.renames_at_once else _put(place, write)
    return _COLUMNS, [(statement.target, 1, rows)]


def _renamed(place: Place, name: str, write: Callable[[str], int]) -> int:
    """Write the files to a new directory, and make it the target."""
    store = place.store
    parent, _, last = place.path.rpartition("/")
    made = f"{parent}/.{last}.{name}.tmp"
    try:
        store.make_directory(made)
        rows = write(made)
        store.put(f"{made}/{_SUCCESS}", b"")
        _publish(store, made, place.path, f"{parent}/.{last}.{name}.old")
    finally:
        store.delete_directory(made)
    return rows


def _put(place: Place, write: Callable[[str], int]) -> int:
    """Write the files to the target itself, and delete the old ones."""
    store = place.store
    old = [each.path for each in store.list(place.path)]
    rows = write(place.path)
    for path in sorted(old, key=lambda path: not path.endswith(f"/{_SUCCESS}")):
        store.delete(path)
    store.put(f"{place.path}/{_SUCCESS}", b"")
    return rows


def _check_target(place: Place, *, overwrite: bool) -> None:
    path, store = place.path, place.store
    root = path[: path.find("://") + 3] if "://" in path else ""
    parent, _, name = path.removeprefix(root).rpartition("/")
    if not name or (root and not parent):
        raise InvalidRequest("COPY INTO writes to a directory of its own, not to the root")
    above = without_links(path)
    while len(above) > len(root):
        if is_table(store, above):
            raise InvalidRequest(
                "COPY INTO does not write to the directories of a table", path=path, table=above
            )
        above = above.rpartition("/")[0]
    if not store.exists(path):
        return
    if not overwrite:
        raise AlreadyExists(
            "COPY INTO writes to a directory that does not exist, or with OVERWRITE = TRUE",
            path=path,
        )
    if is_file(store, path):
        raise InvalidRequest("COPY INTO cannot replace a file by a directory", path=path)
    inner = [each.path for each in store.list(path) if each.is_directory]
    if inner:
        raise InvalidRequest(
            "OVERWRITE = TRUE replaces a directory of files, but this one holds directories",
            path=path,
            directories=inner[:3],
        )


def _write(
    queries: Queries, relation: duckdb.DuckDBPyRelation, path: str, chosen: ExportFormat
) -> int:
    """Write the file. Returns the number of rows."""
    columns = [
        _shown(name, str(kind), chosen, alone=len(relation.columns) == 1)
        for name, kind in zip(relation.columns, relation.types, strict=True)
    ]
    view = queries.create_view(relation)
    settings = [f"FORMAT {chosen.kind.lower()}", f"COMPRESSION {chosen.compression}"]
    if chosen.kind == "CSV":
        settings += [
            f"HEADER {str(chosen.header).lower()}",
            f"DELIMITER {quoted_text(chosen.delimiter)}",
            f"QUOTE {quoted_text(chosen.quote)}",
            f"ESCAPE {quoted_text(chosen.escape)}",
            "NULLSTR ''",
        ]
    for key, value in (
        ("DATEFORMAT", chosen.date_format),
        ("TIMESTAMPFORMAT", chosen.timestamp_format),
    ):
        if value is not None:
            settings.append(f"{key} {quoted_text(value)}")
    query = f"FROM {quoted(view)} SELECT {', '.join(columns)}"
    try:
        row = queries.connection.execute(
            f"COPY ({query}) TO {quoted_text(path)} ({', '.join(settings)})"
        ).fetchone()
    except FAILURES as error:
        raise error_of(error) from error
    assert row is not None, "COPY returns its number of rows"
    return int(row[0])


def _shown(name: str, kind: str, chosen: ExportFormat, *, alone: bool) -> str:
    """A column of the file as SQL. Raises Unsupported for a value that has no text form."""
    own = quoted(name)
    if chosen.kind == "PARQUET":
        return own
    nested = kind.endswith("]") or kind.startswith(_NESTED)
    parts = {part[0] for part in _PARTS.finditer(kind)}
    if "BLOB" in parts or (chosen.kind == "CSV" and nested):
        raise Unsupported(
            "COPY INTO does not write values of this type as text; use TYPE = PARQUET",
            column=name,
            type=kind,
            format=chosen.kind,
        )
    if chosen.kind == "CSV" and alone:
        # Its line would be blank, and COPY INTO skips blank lines.
        said = f"a CSV file of one column cannot hold a null; use JSON or PARQUET. column={name}"
        return f"CASE WHEN {own} IS NULL THEN error({quoted_text(said)}) ELSE {own} END AS {own}"
    if chosen.kind == "JSON" and kind in _FLOATS:
        # JSON has no number for NaN and infinity. Spark also writes them as strings.
        return (
            f"CASE WHEN isfinite({own}) OR {own} IS NULL THEN to_json({own}) "
            f"ELSE to_json(CAST({own} AS VARCHAR)) END AS {own}"
        )
    if chosen.kind == "JSON" and nested and not parts.isdisjoint(_FLOATS):
        # DuckDB would write the words NaN and Infinity as numbers, which is not valid JSON.
        said = f"NaN and infinity within a value cannot be written as JSON. column={name}"
        words = f"regexp_replace(to_json({own})::VARCHAR, {_TEXTS}, '', 'g')"
        return (
            f"CASE WHEN regexp_matches({words}, 'NaN|Infinity') THEN error({quoted_text(said)}) "
            f"ELSE {own} END AS {own}"
        )
    return own


def _publish(store: Store, made: str, place: str, aside: str) -> None:
    """Rename the new directory `made` to `place`, and delete an old one."""
    if not store.exists(place):
        store.rename_directory(made, place)
        return
    store.rename_directory(place, aside)
    try:
        store.rename_directory(made, place)
    except BaseException:
        store.rename_directory(aside, place)
        raise
    store.delete_directory(aside)


def _ending(chosen: ExportFormat) -> str:
    if chosen.kind == "PARQUET":
        inner = _PARQUET_ENDINGS.get(chosen.compression, f".{chosen.compression}")
        return f"{inner}.parquet"
    return f".{chosen.kind.lower()}{_ENDINGS[chosen.compression]}"
