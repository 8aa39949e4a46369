"""Rows of CSV, JSON and Parquet files, read by a separate DuckDB connection.

The type of a CSV or JSON column is the one that the caller states; else that of the target table's
column; else it is inferred.

INVARIANT: nothing is rounded or cut. A CSV column stays text if a single number in it has leading
zeros, or more than 15 digits before the point. Dates are only inferred from ISO order (year, month,
day). The fraction of a DOUBLE is rounded to the digits that the type has.

1. DuckDB examines the first rows: dialect, names and types. No line is skipped, and a header that
   does not fit the lines is refused.
2. CSV: one pass over the text checks the inferred numbers of all rows.
3. CSV and JSON: one pass checks that all values fit the types that are stated (`file_checks.py`).
4. The rows stream in their order, in small batches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.io.json_lines import bad_record, line_of_record
from lakecore.io.local_files import line_of_row, remarks, undecodable, uneven_line
from lakecore.memory import Share, process_budget
from lakecore.model.types import (
    BINARIES,
    TIMESTAMPS,
    Atomic,
    Field,
    Root,
    Vector,
    arrow_schema,
    fields_from_arrow,
    leaves,
)
from lakecore.sql.copy_columns import FIELD, WHOLE_TYPES, columns_of
from lakecore.sql.copy_format import ImportFormat
from lakecore.sql.json_files import are_marked_arrays
from lakecore.sql.query_errors import error_of
from lakecore.sql.tokens import exactly, quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# --- file checks ---------------------------------------------------------------------------------
# Whether files are read without loss: the same columns in each, and values that fit their types.
#
# DuckDB rounds `1.5` to an INT, cuts a time off a DATE, and ignores the zone of a local time.
# Values of CSV and JSON files are therefore checked as texts before they are read in a stated type,
# by the rules of COPY INTO (`copy_columns.py`), except that `5.0` is an integer: other programs
# write whole numbers so if the column has nulls. A Parquet file states its types, and the write
# checks them.


def fields_to_check(types: Mapping[str, pa.DataType]) -> tuple[Field, ...]:
    """The columns of stated types whose values could lose something when they are read.

    Bytes are hexadecimal in files, and their reader accepts nothing else. Raises Unsupported for
    bytes within a nested column, which have no such reader.
    """
    checked = []
    for wanted in fields_from_arrow([pa.field(name, kind) for name, kind in types.items()]):
        has_bytes = any(leaf.root in BINARIES for leaf in leaves(wanted.type))
        if has_bytes and not isinstance(wanted.type, Atomic):
            raise Unsupported(
                "bytes within a nested column are not read from CSV and JSON files; import them "
                "from Parquet",
                column=wanted.name,
                type=wanted.type,
            )
        if not has_bytes and not isinstance(wanted.type, Vector):
            checked.append(wanted)
    return tuple(checked)


def check_values(
    connection: duckdb.DuckDBPyConnection,
    whole: str,
    sources: Sequence[tuple[str, str]],
    kind: str,
    fields: Sequence[Field],
) -> None:
    """Raise InvalidRequest for the first value of a file that does not fit the type of its column.

    `whole` is the source with the rows of all files, and `sources` has each file with its own. A
    source has the columns of CSV files as texts, or the records of JSON files as `json`.
    """
    if not fields:
        return
    empty = arrow_schema(fields).empty_table()
    types = [str(each) for each in connection.from_arrow(empty).types]
    columns = columns_of(
        fields, types, ImportFormat(kind=kind.upper()), {}, by_row=False, zeros=True
    )
    wrong = ", ".join(f"coalesce(bool_or(({each.error}) IS NOT NULL), false)" for each in columns)
    named = ", ".join(f"{quoted(each.name)} AS {FIELD}{n}" for n, each in enumerate(fields))

    def texts(source: str) -> str:
        return f"(FROM {source} SELECT {named})" if kind == "csv" else source

    def checked(source: str) -> tuple[bool, ...]:
        """For each column, whether a value of the source is wrong."""
        (found,) = connection.sql(f"FROM {texts(source)} SELECT {wrong}").fetchall()
        return tuple(found)

    if not any(checked(whole)):  # the usual case: one query for all files
        return
    for file, source in sources:
        for wanted, column, is_wrong in zip(fields, columns, checked(source), strict=True):
            if is_wrong:
                raise _misfit(connection, texts(source), wanted, column.error, file)


def check_columns(files: Mapping[str, Mapping[str, str]], kind: str) -> None:
    """Raise InvalidRequest if files differ in their columns, or Parquet files in a type.

    `files` maps each file to its columns and their types. Types of integers may differ: a value
    that is too large is an error.
    """
    first, *others = files
    for file in others:
        expected, found = files[first], files[file]
        if expected.keys() != found.keys():
            raise InvalidRequest(
                "the files do not have the same columns; import them one by one",
                files=[first, file],
                missing=sorted(expected.keys() - found.keys()),
                more=sorted(found.keys() - expected.keys()),
            )
        for name in expected if kind == "parquet" else ():
            types = {expected[name], found[name]}
            if len(types) > 1 and not types <= WHOLE_TYPES:
                raise InvalidRequest(
                    "a column has different types in the files; import them one by one",
                    column=name,
                    files=[first, file],
                    types=[expected[name], found[name]],
                )


def _misfit(
    connection: duckdb.DuckDBPyConnection, texts: str, wanted: Field, error: str, file: str
) -> InvalidRequest:
    """The error that names the first row whose value does not fit."""
    numbered = f"FROM {texts} SELECT row_number() OVER () - 1 AS place, {error} AS error"
    ((place, text),) = connection.sql(
        f"FROM ({numbered}) SELECT place, error WHERE error IS NOT NULL ORDER BY place LIMIT 1"
    ).fetchall()
    return InvalidRequest(
        "the value does not fit the type of its column",
        column=wanted.name,
        value=text.partition(f" type={wanted.type} value=")[2],
        row=place,
        type=wanted.type,
        files=[file],
    )


# --- file rows -----------------------------------------------------------------------------------

KINDS = ("csv", "json", "parquet")
_ENDS = {"csv": "csv", "tsv": "csv", "txt": "csv", "parquet": "parquet"} | dict.fromkeys(
    ("json", "jsonl", "ndjson"), "json"
)
_BATCH_ROWS = 65_536
_SAMPLE_ROWS = 200_000
_MEMORY_BYTES_MIN = 256 << 20
_CHECKED = ("BIGINT", "DOUBLE", "BOOLEAN")
_ZEROS = r"'^\s*[+-]?0[0-9].*$'"
_LONG_OR_ZEROS = r"'^\s*[+-]?(0[0-9].*|[0-9]{16,}(\.[0-9]*)?)\s*$'"
_STORED_AS = {
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "TIME_NS": "TIME",
    '"NULL"': "VARCHAR",
} | dict.fromkeys(("BIGNUM", "JSON", "UUID", "BIT", "TIME WITH TIME ZONE", "INTERVAL"), "VARCHAR")
"""DuckDB types that Paimon does not have, each with the DuckDB type that stores their values."""
_JSON = re.compile(r'"(?:[^"]|"")*"|\bJSON\b')
"""The type JSON, or a quoted name, in the text of a type of DuckDB."""
_NO_PARTITIONS = "hive_partitioning = false"
"""Otherwise a folder named `x=1` would give each row a column x."""
_DELIMITERS = frozenset(",;|\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How to read the files. A value of None is inferred from the first rows."""

    kind: str
    delimiter: str | None = None
    names: tuple[str, ...] = ()
    header: bool = True
    null: str = ""
    date_format: str | None = None
    timestamp_format: str | None = None


@dataclass(frozen=True, slots=True)
class _Column:
    """The types of a column as read and as stored; `how` is the SQL that converts its values."""

    name: str
    read_as: str
    stored_as: str
    how: str


def kind_of(path: str) -> str | None:
    """The kind of a file by the end of its name: csv, json or parquet; None for any other name."""
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    return _ENDS.get(name.rpartition(".")[2]) if "." in name else None


@dataclass(slots=True, kw_only=True)
class FileRows:
    """The rows of files. `types` holds required Arrow types; other columns are inferred."""

    paths: tuple[str, ...]
    format: FileFormat
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    """How error messages name a path that is not the user's, such as a local copy."""
    notes: list[str] = field(default_factory=list)
    """What a user should know about the inference."""
    _connection: duckdb.DuckDBPyConnection = field(init=False, repr=False)
    _columns: tuple[_Column, ...] = field(init=False, repr=False)
    _is_marked: bool = field(init=False, repr=False, default=False)
    """Whether a byte order mark hides from DuckDB that the files are JSON arrays."""

    def __post_init__(self) -> None:
        """Examine the files. Raises InvalidRequest if they cannot be read."""
        if self.format.kind not in KINDS:
            raise Unsupported("files are CSV, JSON or Parquet", format=self.format.kind)
        memory = max(Share.LINE_FILES.of(process_budget().size_bytes), _MEMORY_BYTES_MIN)
        self._connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": f"{memory}B",
            }
        )
        if self.format.kind == "csv":
            for path, shown in zip(self.paths, self._shown(), strict=True):
                self.notes += remarks(path, shown)
        if self.format.kind == "json":
            self._is_marked = are_marked_arrays(zip(self.paths, self._shown(), strict=True))
        try:
            self._columns = tuple(self._examined())
            self._check_values()
        except (duckdb.Error, RuntimeError) as error:
            raise self._wrong(error) from error
        except InvalidRequest as error:
            raise self._with_line(error) from error.__cause__

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, in their stored types."""
        try:
            return self._relation().limit(0).to_arrow_table().schema
        except (duckdb.Error, RuntimeError) as error:
            raise self._wrong(error) from error

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in file order. Raises InvalidRequest, naming the row, for a wrong row."""
        try:
            yield from self._relation().to_arrow_reader(_BATCH_ROWS)
        except LakecoreError:
            raise
        except (duckdb.Error, RuntimeError, pa.ArrowException, OSError) as error:
            raise self._wrong(error) from error

    def rows_if_known(self) -> int | None:
        """The number of rows, if the files state it, as Parquet does."""
        if self.format.kind != "parquet":
            return None
        ((count,),) = self._connection.sql(f"FROM {self._source({})} SELECT count(*)").fetchall()
        return int(count)

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()

    # --- examining --------------------------------------------------------------------------------

    def _examined(self) -> Iterator[_Column]:
        found = self._connection.sql(f"FROM {self._source({})}")
        names = list(found.columns)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not all(names):
            raise InvalidRequest("each column of a file needs a name of its own", columns=twice)
        if self.format.kind == "csv" and self.format.header and not self.format.names:
            self._check_header(names)
        if self.format.kind != "json" and len(self.paths) > 1:  # JSON records may differ
            check_columns(
                dict(zip(self._shown(), self._columns_by_file(), strict=True)), self.format.kind
            )
        given = {name: self.types[name] for name in names if name in self.types}
        targets = {}
        if given:
            empty = pa.schema(list(given.items())).empty_table()
            types = map(str, self._connection.from_arrow(empty).types)
            targets = dict(zip(given, types, strict=True))
        inferred = {
            name: str(kind)
            for name, kind in zip(names, found.types, strict=True)
            if name not in targets
        }
        if self.format.kind == "csv":
            inferred |= self._kept_as_text(inferred, names)
        for name in names:
            yield self._column(name, targets.get(name), inferred.get(name))

    def _check_header(self, names: list[str]) -> None:
        """Raise InvalidRequest for a header that was not split into names, or that repeats a name.

        DuckDB reads whole lines as one column if their numbers of values differ. It renames columns
        whose names are equal or differ only in case.
        """
        if len(names) == 1 and self.format.delimiter is None and _DELIMITERS & {*names[0]}:
            raise InvalidRequest(
                "the lines of the file do not have the same number of values; if the file has one "
                "column, state a delimiter that it does not contain (--delimiter)",
                files=self._shown(),
                first_line=names[0],
                **uneven_line(self.paths[0], None),
            )
        texts = self._read(self.paths[:1], {}, header=False)
        first = self._connection.sql(f"FROM {texts} LIMIT 1").fetchall()
        lower = [str(name).strip().lower() for row in first for name in row if name is not None]
        twice = sorted({name for name in lower if name and lower.count(name) > 1})
        if "" in lower or any(name is None for row in first for name in row):
            raise InvalidRequest(
                "a column of the file has no name; if every line ends with a delimiter, take it "
                "away, or state the names (--names) with --no-header",
                files=self._shown(),
                names=[name or "" for row in first for name in row],
            )
        if twice:
            raise InvalidRequest(
                "each column of a file needs a name of its own, also without regard to case; "
                "state the names (--names) with --no-header, and leave out the first line",
                columns=twice,
                files=self._shown(),
            )

    def _column(self, name: str, target: str | None, inferred: str | None) -> _Column:
        own = quoted(name)
        if target is None:
            assert inferred is not None, "a column has a stated type or an inferred one"
            if self.format.kind == "json":
                # Values of several types become texts. As JSON, a text would have quotes.
                inferred = _JSON.sub(
                    lambda each: "VARCHAR" if each[0] == "JSON" else each[0], inferred
                )
            stored = (
                "VARCHAR" if inferred.startswith("ENUM") else _STORED_AS.get(inferred, inferred)
            )
            return _Column(name, inferred, stored, f"CAST({own} AS {stored})")
        if self.format.kind == "parquet":  # the write checks the types itself
            return _Column(name, target, target, own)
        if target == "BLOB":
            return _Column(name, "VARCHAR", target, f"unhex({own})")
        nested = target.endswith("]") or target.startswith(("STRUCT", "MAP"))
        if self.format.kind == "csv" and nested:
            return _Column(name, "VARCHAR", target, f"CAST(CAST({own} AS JSON) AS {target})")
        return _Column(name, target, target, own)

    def _kept_as_text(self, inferred: Mapping[str, str], names: list[str]) -> dict[str, str]:
        """VARCHAR for each CSV column whose inferred type would not keep its values exactly."""
        found = self._text_dates(inferred)
        numbers = [name for name, kind in inferred.items() if kind in _CHECKED]
        if not numbers:
            return found
        tests = []
        for name in numbers:
            text, kind = quoted(name), inferred[name]
            no_value = f"{text} IS NOT NULL AND TRY_CAST({text} AS {kind}) IS NULL"
            lossy = _LONG_OR_ZEROS if kind == "DOUBLE" else _ZEROS
            tests.append(f"coalesce(bool_or({no_value} OR regexp_matches({text}, {lossy})), false)")
        texts = self._source(dict.fromkeys(names, "VARCHAR"))
        query = f"FROM {texts} SELECT {', '.join(tests)}"
        (row,) = self._connection.sql(query).fetchall()
        kept = [name for name, lossy in zip(numbers, row, strict=True) if lossy]
        if kept:
            self.notes.append(
                f"read as text, because a number has leading zeros, more than 15 digits, or "
                f"something else in its place: {', '.join(kept)}"
            )
        return found | dict.fromkeys(kept, "VARCHAR")

    def _text_dates(self, inferred: Mapping[str, str]) -> dict[str, str]:
        """VARCHAR for each column of inferred dates or timestamps that are not in ISO order."""
        dated = {"DATE": self.format.date_format, "TIMESTAMP": self.format.timestamp_format}
        columns = {
            name: kind for name, kind in inferred.items() if kind in dated and dated[kind] is None
        }
        if not columns:
            return {}
        pattern = r"'^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?$'"
        tests = ", ".join(
            f"coalesce(bool_and(regexp_matches({quoted(name)}, {pattern})), true)"
            for name in columns
        )
        texts = self._source(dict.fromkeys(columns, "VARCHAR"))
        (row,) = self._connection.sql(f"FROM {texts} SELECT {tests}").fetchall()
        kept = [name for name, is_iso in zip(columns, row, strict=True) if not is_iso]
        if kept:
            self.notes.append(
                f"read as text, because day and month may be in any order: {', '.join(kept)}; "
                "state their type and --date-format or --timestamp-format"
            )
        return dict.fromkeys(kept, "VARCHAR")

    # --- reading ----------------------------------------------------------------------------------

    def _relation(self) -> duckdb.DuckDBPyRelation:
        parts = ", ".join(f"{each.how} AS {quoted(each.name)}" for each in self._columns)
        types = {each.name: each.read_as for each in self._columns}
        return self._connection.sql(f"FROM {self._source(types)} SELECT {parts}")

    def _columns_by_file(self) -> Iterator[dict[str, str]]:
        for path in self.paths:
            found = self._connection.sql(f"FROM {self._read((path,), {})}")
            yield dict(zip(found.columns, map(str, found.types), strict=True))

    def _check_values(self) -> None:
        """Raise InvalidRequest for a value that does not fit a stated type."""
        if self.format.kind == "parquet":
            return
        by_format = {Root.DATE} if self.format.date_format is not None else set()
        by_format |= TIMESTAMPS if self.format.timestamp_format is not None else set()
        stated = {
            each.name: self.types[each.name] for each in self._columns if each.name in self.types
        }
        fields = [
            field
            for field in fields_to_check(stated)
            if getattr(field.type, "root", None) not in by_format
        ]
        check_values(
            self._connection,
            self._texts(self.paths),
            [
                (shown, self._texts((path,)))
                for path, shown in zip(self.paths, self._shown(), strict=True)
            ],
            self.format.kind,
            fields,
        )

    def _texts(self, paths: Sequence[str]) -> str:
        """The source with the columns of CSV files as texts, or with the records of JSON files."""
        if self.format.kind == "csv":
            return self._source(
                dict.fromkeys((each.name for each in self._columns), "VARCHAR"), paths
            )
        files = ", ".join(quoted_text(exactly(path)) for path in paths)
        how = "array" if self._is_marked else "auto"
        return f"read_json_objects([{files}], format = '{how}', {_NO_PARTITIONS})"

    def _source(self, types: Mapping[str, str], paths: Sequence[str] = ()) -> str:
        """The rows of files as SQL; by default of all. Types that are not given are inferred."""
        paths = paths or self.paths
        if self.format.kind != "csv" or not types:
            return self._read(paths, types)
        # NOTE: one call of DuckDB for several CSV files gives stated types by place, not by name.
        each = (f"FROM {self._read((path,), types)}" for path in paths)
        return f"({' UNION ALL BY NAME '.join(each)})"

    def _read(self, paths: Sequence[str], types: Mapping[str, str], *, header: bool = True) -> str:
        """The table function that reads files.

        Without `header`, the first line of a CSV file is read as a row of strings.
        """
        files = ", ".join(quoted_text(exactly(path)) for path in paths)
        chosen = self.format
        if chosen.kind == "parquet":
            return f"read_parquet([{files}], {_NO_PARTITIONS})"
        stated = (
            "{" + ", ".join(f"{quoted_text(n)}: {quoted_text(t)}" for n, t in types.items()) + "}"
        )
        if chosen.kind == "json":
            # DuckDB drops fields that are missing in its sample of rows, so it samples all rows.
            # `records` refuses values that are not objects.
            inferred = "sample_size = -1, records = true"
            how = f"columns = {stated}" if types else inferred
            how += ", format = 'array'" if self._is_marked else ""
            return f"read_json([{files}], {how}, {_NO_PARTITIONS})"
        settings = [
            _NO_PARTITIONS,
            f"header = {str(chosen.header and header).lower()}",
            "skip = 0",  # otherwise DuckDB skips first lines that do not fit the following ones
            "comment = ''",
            f"sample_size = {_SAMPLE_ROWS}",
            f"nullstr = {quoted_text(chosen.null)}",
            "allow_quoted_nulls = false",
            "quote = '\"'",
            "escape = '\"'",
        ]
        if chosen.names:
            settings.append(f"names = [{', '.join(map(quoted_text, chosen.names))}]")
        if types:
            settings.append(f"types = {stated}")
        if not header:
            settings.append("all_varchar = true")
        for key, value in (
            ("delim", chosen.delimiter),
            ("dateformat", chosen.date_format),
            ("timestampformat", chosen.timestamp_format),
        ):
            if value is not None:
                settings.append(f"{key} = {quoted_text(value)}")
        return f"read_csv([{files}], {', '.join(settings)})"

    def _with_line(self, error: InvalidRequest) -> InvalidRequest:
        """The error about a row of a CSV or JSON file, with the number of its line."""
        row, files = error.facts.get("row"), error.facts.get("files")
        if not isinstance(row, int) or not isinstance(files, list):
            return error
        path = self.paths[self._shown().index(files[0])]
        if self.format.kind == "json":
            return type(error)(error.message, **error.facts, **line_of_record(path, row))
        header = self.format.header
        line = line_of_row(path, row, self.format.delimiter, header=header)
        return type(error)(error.message, **error.facts, **line)

    def _shown(self) -> list[str]:
        return [self.shown.get(path, path) for path in self.paths]

    def _wrong(self, error: BaseException) -> LakecoreError:
        if isinstance(error, LakecoreError):
            return error
        found = error_of(error) if isinstance(error, duckdb.Error) else None
        reason = str(error).partition("\n\nLINE ")[0]
        for path, name in self.shown.items():
            reason = reason.replace(path, name)
        if re.search(r"not utf-8|invalid utf-8|Invalid unicode", reason, re.IGNORECASE):
            place = next((facts for path in self.paths if (facts := undecodable(path))), {})
            return InvalidRequest(
                "the file is not UTF-8; --encoding states another encoding, such as latin-1 or "
                "utf-16",
                files=self._shown(),
                **place,
            )
        if isinstance(found, InvalidRequest) or found is None:
            bad = self._bad_record()
            first = [line.strip() for line in reason.splitlines() if line.strip()][:4]
            return InvalidRequest(
                "the file cannot be read as rows; --column NAME=TYPE states the type of a column",
                **bad or {"files": self._shown()},
                format=self.format.kind,
                reason="this is not a JSON object" if bad else " ".join(first),
            )
        return found

    def _bad_record(self) -> dict[str, object]:
        """The JSON file, and the line in it, of the first record that is no JSON object."""
        pairs = zip(self.paths, self._shown(), strict=True) if self.format.kind == "json" else ()
        lines = ((shown, bad_record(path)) for path, shown in pairs)
        return next(({"files": [shown], **line} for shown, line in lines if line), {})
