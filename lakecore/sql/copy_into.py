"""COPY INTO: loads the files of a directory into a table, or writes a query to files.

1. List the files of the directory, and leave out those that do not match PATTERN.
2. Unless FORCE = TRUE, leave out files that were loaded into the table before.
   Copy remote files to the local disk (`copy_format.py`).
3. ON_ERROR = CONTINUE or SKIP_FILE: read the files once, and count the rows and errors of each.
4. Write the rows. ON_ERROR = ABORT_STATEMENT raises at the first error, and nothing is committed.
5. Record the files that were loaded.

Names, defaults and results are Paimon's.

https://paimon.apache.org/docs/master/spark/sql-write/#copy-into
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count as numbers_from
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.catalog.file_tables import is_table
from lakecore.display import one_line
from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.format.metadata import (
    LoadRecord,
    decode_load_record,
    encode_load_record,
    record_name,
    record_prefix,
)
from lakecore.io.ambient import SYSTEM
from lakecore.io.local_files import local_output
from lakecore.io.parallel import read_all
from lakecore.io.stores.open import without_links
from lakecore.sql.copy_columns import (
    FILE,
    WHOLE_TYPES,
    Column,
    columns_of,
    files_of,
    malformed,
    source_of,
)
from lakecore.sql.copy_format import (
    ExportFormat,
    ImportFormat,
    Place,
    Sources,
    export_format,
    import_format,
    is_file,
    name_of,
    recorded,
    sources_of,
)
from lakecore.sql.merge_texts import column_of
from lakecore.sql.queries import Queries, reader_of
from lakecore.sql.query_errors import FAILURES, drop_table, error_of, written
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import duckdb

    from lakecore.io.stores.store import FileStatus, Store
    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.run_show import Rows
    from lakecore.sql.statements import CopyInto, CopyOut
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

# --- copy parquet --------------------------------------------------------------------------------
# Checks of the Parquet files that one COPY INTO loads together.

_EXACT = {"FLOAT": 2**24 - 1, "DOUBLE": 2**53 - 1}
"""By type: every integer up to this number has an exact value in the type."""


def check_parquet(queries: Queries, paths: Sequence[str], columns: Sequence[str]) -> None:
    """Raise InvalidRequest or Unsupported if the columns of the files are ambiguous.

    A file that has none of the columns to load would load rows of nulls: it is the wrong file.
    """
    names = _names(queries, paths)
    for path, found in names.items():
        if found.isdisjoint(column.lower() for column in columns):
            raise InvalidRequest(
                "a Parquet file has none of the columns to load",
                file=path,
                columns=list(columns),
                there=sorted(found),
            )
    _check_types(queries, paths)


def fetched(queries: Queries, query: str) -> list[tuple[object, ...]]:
    """All rows of a query. Raises only lakecore errors."""
    try:
        return queries.execute(query).fetchall()
    except FAILURES as error:
        raise error_of(error) from error


def _names(queries: Queries, paths: Sequence[str]) -> dict[str, set[str]]:
    """The columns of each file, in lower case.

    Raises InvalidRequest for a Parquet file with columns whose names differ only in case.
    """
    query = f"FROM parquet_schema({files_of(paths)}) SELECT file_name, name, num_children"
    seen: dict[str, set[str]] = {}
    open_groups: list[int] = []
    for path, name, children in fetched(queries, query):
        # The rows are the nodes of each file's schema tree, depth first. The root comes first.
        while open_groups and open_groups[-1] == 0:
            open_groups.pop()
        if open_groups:
            open_groups[-1] -= 1
        if len(open_groups) == 1:
            known = seen.setdefault(str(path), set())
            if str(name).lower() in known:
                raise InvalidRequest(
                    "two columns of a Parquet file have names that differ only in case",
                    file=path,
                    column=name,
                )
            known.add(str(name).lower())
        open_groups.append(int(str(children or 0)))
    return seen


def _check_types(queries: Queries, paths: Sequence[str]) -> None:
    """Raise Unsupported if the types of a number column differ, and DuckDB would change a value.

    DuckDB reads all files with one type: integers become floating-point numbers if another file has
    floating-point numbers.
    """
    if len(paths) == 1:
        return
    kinds: dict[str, set[str]] = {}
    for path in paths:
        relation = queries.execute(f"FROM read_parquet({files_of([path])}) LIMIT 0")
        for name, kind in zip(relation.columns, map(str, relation.types), strict=True):
            kinds.setdefault(name.lower(), set()).add(kind)
    for name, found in kinds.items():
        if found.isdisjoint(_EXACT) or not any(map(_is_other_number, found)):
            continue
        limit = min(_EXACT[kind] for kind in found & _EXACT.keys())
        source = f"read_parquet({files_of(paths)}, union_by_name = true)"
        query = f"FROM {source} SELECT coalesce(max(abs({quoted(name)})), 0) > {limit}"
        if any(kind.startswith("DECIMAL") for kind in found) or fetched(queries, query)[0][0]:
            raise Unsupported(
                "the files have a column under different types, and DuckDB would change its "
                "values; load the files one by one",
                column=name,
                types=sorted(found),
            )


def _is_other_number(kind: str) -> bool:
    return kind in WHOLE_TYPES or kind in {"UBIGINT", "HUGEINT"} or kind.startswith("DECIMAL")


# --- copy into -----------------------------------------------------------------------------------

_COLUMNS = ("file_name", "status", "rows_loaded", "rows_parsed", "errors_seen", "first_error")
_ABORT, _CONTINUE = "ABORT_STATEMENT", "CONTINUE"
_LOADED, _PARTLY, _FAILED, _SKIPPED = "LOADED", "PARTIALLY_LOADED", "LOAD_FAILED", "SKIPPED"
_ERROR = "__lakecore_error"
_VALUE = "__lakecore_value_"
_numbers = numbers_from(1)


@dataclass(slots=True, kw_only=True)
class _Found:
    """The counts and errors of the rows of one file."""

    parsed: int = 0
    errors: int = 0
    first_error: str | None = None


@dataclass(slots=True, kw_only=True)
class _Load:
    """One COPY INTO: the table, the columns it fills, and the files."""

    queries: Queries
    table: Table
    format: ImportFormat
    columns: Sequence[str]
    on_error: str
    found: dict[str, _Found] = field(default_factory=dict)


def copy_into(
    queries: Queries, table: Table, statement: CopyInto, storage: Mapping[str, str]
) -> Rows:
    """Load the files. Returns a row for each file; skipped files come last.

    `storage` are the options of the storage that holds the files.
    """
    chosen = import_format(statement.format, statement.options)
    names = table.schema.arrow.names
    columns = [column_of(name, names) for name in statement.columns or names]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidRequest("a column occurs twice", columns=twice)
    place = Place.of(statement.source, storage)
    files, skipped = _chosen(table, statement, place)
    load = _Load(
        queries=queries, table=table, format=chosen, columns=columns, on_error=statement.on_error
    )
    rows: list[tuple[object, ...]] = []
    if files:
        with sources_of(place, files) as sources:
            rows = _loaded(load, sources)
    return _COLUMNS, [*rows, *((name_of(each), _SKIPPED, 0, 0, 0, None) for each in skipped)]


def _chosen(
    table: Table, statement: CopyInto, place: Place
) -> tuple[list[FileStatus], list[FileStatus]]:
    """The files to load, and the files that were loaded before; each sorted by name."""
    listed = place.files()
    if statement.pattern is not None:
        try:
            pattern = re.compile(statement.pattern)
        except re.error as error:
            raise InvalidRequest(
                "PATTERN is no regular expression", pattern=statement.pattern, why=error
            ) from error
        listed = [each for each in listed if pattern.search(name_of(each))]
    if statement.force or not listed:
        return listed, []
    records = load_records(table.context, (recorded(each) for each in listed))
    skipped = [
        each
        for each in listed
        if is_loaded(records, recorded(each), each.size_bytes, each.modified_ms)
    ]
    return [each for each in listed if each not in skipped], skipped


def _loaded(load: _Load, sources: Sources) -> list[tuple[object, ...]]:
    paths = sources.local
    load.found = {path: _Found() for path in paths}
    good = list(paths)
    if load.on_error != _ABORT:
        _check(load, paths)
        good = [path for path in paths if _may_load(load, path)]
    result = _written(load, good) if good else None
    rows: list[tuple[object, ...]] = []
    records = []
    now = load.table.context.ambient.now_ms()
    snapshot_id = _snapshot_id(load.table, result)
    for each, path in zip(sources.files, paths, strict=True):
        found = load.found[path]
        failed = load.on_error not in {_ABORT, _CONTINUE} and found.errors > 0
        count = 0 if failed else found.parsed - found.errors
        status = _PARTLY if found.errors else _LOADED
        status = _FAILED if found.errors and not count else status
        first = sources.shown(found.first_error)
        rows.append((name_of(each), status, count, found.parsed, found.errors, first))
        if status != _FAILED:
            records.append(
                LoadRecord(
                    path=recorded(each),
                    size_bytes=each.size_bytes,
                    modified_ms=each.modified_ms or 0,
                    loaded_ms=now,
                    snapshot_id=snapshot_id,
                    rows=count,
                )
            )
    try:
        record_loads(load.table.context, records)
    except LakecoreError as error:
        raise StorageError(
            "the rows are committed, but the table could not record which files it has loaded: "
            "loading them again would add the rows twice",
            table=load.table.identifier,
            snapshot_id=snapshot_id,
            files=[name_of(each) for each in sources.files],
            reason=error,
        ) from error
    return rows


def _may_load(load: _Load, path: str) -> bool:
    found = load.found[path]
    return found.errors == 0 if load.on_error != _CONTINUE else found.errors < found.parsed


def _snapshot_id(table: Table, result: CommitResult | None) -> int:
    ids = result.snapshot_ids if result is not None else ()
    return ids[-1] if ids else table.context.history.latest_snapshot_id() or 0


# --- reading --------------------------------------------------------------------------------------


def _check(load: _Load, paths: Sequence[str]) -> None:
    """Count the rows and the errors of each file, without writing rows."""
    whole = list(paths)
    if load.format.kind != "CSV" and (load.format.multi_line or load.format.kind == "PARQUET"):
        # Such a file is readable or not: it has no single bad lines.
        whole = [path for path in paths if _is_readable(load, path)]
    if not whole:
        return
    rejects = f"_lakecore_rejects_{next(_numbers)}"
    try:
        _count(load, whole, rejects)
    finally:
        for name in (rejects, f"{rejects}_scan"):
            drop_table(load.queries.connection, name)


def _count(load: _Load, paths: Sequence[str], rejects: str) -> None:
    """Count the rows and errors of readable files.

    For CSV, DuckDB records lines that do not parse in the tables `rejects` and `rejects`_scan.
    """
    source, columns = _source(load, paths, skip_bad=True, rejects=rejects)
    query = (
        f"FROM (FROM {source} SELECT {FILE}, {_error(load, columns)} AS {_ERROR}) "
        f"SELECT {FILE}, count(*), count({_ERROR}), any_value({_ERROR}) GROUP BY {FILE}"
    )
    for path, count, errors, first in fetched(load.queries, query):
        load.found[str(path)] = _Found(
            parsed=int(str(count)),
            errors=int(str(errors)),
            first_error=None if first is None else str(first),
        )
    if load.format.kind != "CSV":
        return
    query = (
        f"FROM {rejects} JOIN {rejects}_scan USING (scan_id, file_id) "
        "SELECT file_path, count(DISTINCT line), arg_min(error_message, line), "
        "arg_min(csv_line, line) GROUP BY file_path"
    )
    for path, lines, message, line in fetched(load.queries, query):
        found = load.found[str(path)]
        found.parsed += int(str(lines))
        found.errors += int(str(lines))
        found.first_error = f"malformed record: {message} {str(line).strip()[:100]}"


def _is_readable(load: _Load, path: str) -> bool:
    try:
        source, _ = _source(load, [path], skip_bad=True)
        load.queries.execute(f"FROM {source} SELECT count(*)").fetchall()
    except Unsupported:
        raise
    except (LakecoreError, *FAILURES) as error:
        reason = error if isinstance(error, LakecoreError) else error_of(error)
        first = f"malformed record: {str(reason).splitlines()[0]}"
        load.found[path] = _Found(parsed=1, errors=1, first_error=first)
        return False
    return True


def _source(
    load: _Load, paths: Sequence[str], *, skip_bad: bool, rejects: str = ""
) -> tuple[str, list[Column]]:
    """The source of the rows of files, and the columns that the table takes from them."""
    source = source_of(paths, load.format, len(load.columns), skip_bad=skip_bad, rejects=rejects)
    stored: Mapping[str, str] = {}
    if load.format.kind == "PARQUET":
        check_parquet(load.queries, paths, load.columns)
        relation = load.queries.execute(f"FROM {source} LIMIT 0")
        stored = {
            name: str(kind)
            for name, kind in zip(relation.columns, relation.types, strict=True)
            if name != FILE
        }
    schema = load.table.schema
    fields = [schema.field(name) for name in load.columns]
    types = load.queries.types(pa.schema([schema.arrow.field(name) for name in load.columns]))
    by_row = load.on_error != _ABORT
    return source, columns_of(fields, types, load.format, stored, by_row=by_row)


def _error(load: _Load, columns: Sequence[Column]) -> str:
    parts = [malformed(load.format), *(column.error for column in columns)]
    return f"coalesce({', '.join(parts)})"


# --- writing --------------------------------------------------------------------------------------


def _written(load: _Load, paths: Sequence[str]) -> CommitResult:
    """Write the rows of files. With ON_ERROR = CONTINUE, bad rows are left out."""
    leaves_out = load.on_error == _CONTINUE
    # NOTE: without a table of rejected lines, DuckDB ends a file at a line with a wrong quote.
    rejects = f"_lakecore_rejects_{next(_numbers)}" if leaves_out else ""
    source, columns = _source(load, paths, skip_bad=leaves_out, rejects=rejects)
    values = ", ".join(f"{each.value} AS {_VALUE}{place}" for place, each in enumerate(columns))
    bad = _error(load, columns)
    if leaves_out:
        query = f"FROM {source} SELECT {FILE}, {values} WHERE {bad} IS NULL"
    else:
        query = (
            f"FROM {source} "
            f"SELECT CASE WHEN {bad} IS NULL THEN {FILE} ELSE error({bad}) END, {values}"
        )
    counts: Counter[str] = Counter()
    expected = {path: load.found[path].parsed - load.found[path].errors for path in paths}
    try:
        result = _streamed(
            load,
            query,
            [column.name for column in columns],
            counts,
            expected if load.on_error != _ABORT else {},
        )
    except InvalidRequest as error:
        if not isinstance(error.__cause__, FAILURES):
            raise
        reason = _brief(str(error.__cause__))
        doubled = "quote" in reason and load.format.escape != '"'
        raise InvalidRequest(
            "COPY INTO met a bad row, and nothing was committed; ON_ERROR = CONTINUE leaves bad "
            "rows out" + ("; ESCAPE = '\"' reads quotes that are doubled" if doubled else ""),
            reason=reason,
        ) from error
    finally:
        for name in (rejects, f"{rejects}_scan") if rejects else ():
            drop_table(load.queries.connection, name)
    if not leaves_out:
        for path in paths:
            load.found[path] = replace(load.found[path], parsed=counts[path])
    return result


def _streamed(
    load: _Load, query: str, names: list[str], counts: Counter[str], expected: Mapping[str, int]
) -> CommitResult:
    """Write the rows of a query.

    The first column names the file. The rows of each file are counted. If a file has more or fewer
    rows than `expected`, nothing is committed.
    """
    relation = load.queries.execute(query)
    with reader_of(lambda: relation) as reader:
        given = list(reader.schema)[1:]
        schema = pa.schema([each.with_name(name) for name, each in zip(names, given, strict=True)])
        rows = pa.RecordBatchReader.from_batches(schema, _counted(reader, names, counts, expected))
        return written(rows, lambda: load.table.write(rows))


def _counted(
    reader: pa.RecordBatchReader,
    names: list[str],
    counts: Counter[str],
    expected: Mapping[str, int],
) -> Iterator[pa.RecordBatch]:
    """The batches with the table's column names, without the column of file names.

    Counts the rows of each file. Raises CommitConflict, before the rows are committed, if a file
    has more or fewer rows than expected.
    """
    for batch in reader:
        for each in pc.value_counts(batch.column(0)):
            counts[each["values"].as_py()] += each["counts"].as_py()
        yield batch.remove_column(0).rename_columns(names)
    changed = {path: count for path, count in expected.items() if counts[path] != count}
    if changed:
        path, count = next(iter(changed.items()))
        raise CommitConflict(
            "a file changed while it was loaded, and nothing was committed; load it again",
            file=path,
            rows=counts[path],
            rows_expected=count,
        )


_LINE_MAX = 200


def _brief(text: str) -> str:
    """DuckDB's message about a bad row, whose line may be long: without advice, with the file."""
    said, _, settings = text.partition("\nPossible fixes:")
    lines = said.partition("\n\nLINE ")[0].splitlines()
    shown = [one_line(line.strip(), _LINE_MAX) for line in lines if line.strip()]
    shown += [line.strip() for line in settings.splitlines() if line.startswith("  file = ")]
    return " ".join(shown).removeprefix("Invalid Input Error: ")


# --- COPY INTO a location -------------------------------------------------------------------------
# COPY INTO a directory: writes the rows of a query to a file of CSV, JSON or Parquet.
#
# If the storage renames directories atomically (local disk, HDFS):
#
# 1. Write one file, `part-00000-UUID-c000.ENDING`, and `_SUCCESS` to a hidden directory next to the
#    target.
# 2. With OVERWRITE = TRUE, rename the old directory to another name.
# 3. Rename the new directory to the target, then delete the old one. A reader sees either the old
#    files or the new ones.
#
# On an object store, the file is written to the target directory. Then the old files are deleted,
# `_SUCCESS` first, and a new `_SUCCESS` is written. A reader that waits for `_SUCCESS` never sees
# old and new files together.
#
# A wrong path cannot delete a warehouse: OVERWRITE = TRUE refuses a directory with subdirectories,
# and COPY INTO refuses any path within a table's directory.
#
# https://paimon.apache.org/docs/master/spark/sql-write/#copy-into

_OUT_COLUMNS = ("output_path", "file_count", "rows_written")
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
    return _OUT_COLUMNS, [(statement.target, 1, rows)]


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


# --- the loaded files -----------------------------------------------------------------------------
# Which files a table has loaded by COPY INTO: one small record for each, in the table's directory.
#
# A file counts as loaded if its path, size and time of the last change equal those in a record.


def load_records(context: TableContext, paths: Iterable[str]) -> frozenset[tuple[str, int, int]]:
    """For each recorded load of these files: path, size and time of the last change.

    Raises CorruptTable if a record cannot be read: otherwise the file would be loaded twice.
    """
    prefixes = {record_prefix(path) for path in paths}
    directory = context.layout.load_history_dir
    names = [status.path for status in context.store.list(directory) if not status.is_directory]
    chosen = [
        path for path in names if path.rpartition("/")[2].rpartition("-")[0] + "-" in prefixes
    ]

    def read(path: str) -> LoadRecord | None:
        try:
            return decode_load_record(context.store.read(path), path)
        except NotFound:  # removed since it was listed
            return None

    found = filter(None, read_all(read, chosen))
    return frozenset((each.path, each.size_bytes, each.modified_ms) for each in found)


def is_loaded(
    records: frozenset[tuple[str, int, int]], path: str, size_bytes: int, modified_ms: int | None
) -> bool:
    """Whether a record says that the file was loaded as it is now."""
    return modified_ms is not None and (path, size_bytes, modified_ms) in records


def record_loads(context: TableContext, records: Sequence[LoadRecord]) -> None:
    """Write a record for each loaded file."""

    def write(record: LoadRecord) -> None:
        path = f"{context.layout.load_history_dir}/{record_name(record)}"
        context.store.put(path, encode_load_record(record))

    read_all(write, records)
