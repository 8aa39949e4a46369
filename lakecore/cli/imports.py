"""`lakecore import` and `lakecore write`: write rows of files to a table, in one commit.

CSV and JSON files are read in the types of the table's columns; for a new table the types are
inferred. Rows stream within the memory budget. A terminal shows how many rows are read.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lakecore.cli.arguments import Format, stated
from lakecore.cli.confirm import require_consent
from lakecore.cli.printing import note, write_frame, write_record
from lakecore.cli.target import place_of, storage_options, table_of
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound
from lakecore.io.local_files import local_files
from lakecore.io.spill import SpillDirectory
from lakecore.io.stores.open import locate, open_store
from lakecore.model.types import Field, arrow_field, fields_from_arrow, parse_type, with_nullable
from lakecore.sql.file_rows import KINDS, FileFormat, FileRows, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import CommitResult
    from lakecore.model.types import DataType
    from lakecore.table.handle import Table

__all__ = ["STDIN", "Reading", "counted", "import_files", "opened", "rows_text", "summary", "write"]

STDIN = "-"
_PREPOSITIONS = {"imported": "into", "wrote": "to", "deleted": "from"}
Reading = tuple[str | None, str | None, bool, str | None, str, str | None, str | None, str | None]
Made = tuple[bool, "list[str] | None", "list[str] | None", int | None, str | None]


def import_files(  # noqa: PLR0913, PLR0917  the parameters of the command
    name: str,
    files: list[str],
    warehouse: str | None,
    option: list[str] | None,
    made: Made,
    column: list[str] | None,
    reading: Reading,
    form: Format,
    *,
    evolve_schema: bool,
    dry_run: bool,
) -> None:
    """Load files into a table, and create the table if requested."""
    create, keys, partitions, bucket, comment = made
    types = {key: parse_type(text, context=key) for key, text in stated(column, "a column").items()}
    table = _existing(name, warehouse, option, create=create)
    if table is None:
        _load_new(
            name, files, warehouse, option, (keys, partitions, bucket, comment), types, reading,
            form, dry_run=dry_run,
        )  # fmt: skip
        return
    for flag, given in (
        ("--primary-key", keys),
        ("--partition-by", partitions),
        ("--bucket", bucket),
        ("--comment", comment),
    ):
        if given is not None:
            _check_same(flag, given, table)
    if types and not evolve_schema:
        raise InvalidRequest(
            "the table exists and has its types; --column is for new columns: add --evolve-schema",
            table=table.identifier,
            columns=sorted(types),
        )
    with opened(files, reading, table.schema, types, storage=storage_options(option)) as rows:
        if dry_run:
            _show_plan(rows, _fields(rows, types), form)
            note(f"dry run: nothing was written to {table.identifier}")
            return
        result = table.write(counted(rows), evolve_schema=evolve_schema or None)
    _report("imported", table.identifier, result, form)


def _existing(
    name: str, warehouse: str | None, option: list[str] | None, *, create: bool
) -> Table | None:
    """The table; None if it does not exist and `create` is set."""
    try:
        return table_of(name, warehouse, option)
    except NotFound as error:
        if not create:
            raise NotFound(
                "no such table; --create makes it, its database and its warehouse from the files, "
                "and a name DATABASE.TABLE needs --warehouse",
                table=name,
                **({"warehouse": warehouse} if warehouse else {}),
            ) from error
    except InvalidRequest:
        # Options of a new table, such as the number of buckets, are refused by an existing one.
        if not create:
            raise
        session, identifier, _ = place_of(name, warehouse, option, create=True)
        if session.table_exists(identifier):
            raise
    return None


def _load_new(  # noqa: PLR0913, PLR0917  the parts of a table definition
    name: str,
    files: list[str],
    warehouse: str | None,
    option: list[str] | None,
    made: tuple[list[str] | None, list[str] | None, int | None, str | None],
    types: Mapping[str, DataType],
    reading: Reading,
    form: Format,
    *,
    dry_run: bool,
) -> None:
    keys, partitions, bucket, comment = made
    with opened(files, reading, None, types, storage=storage_options(option)) as rows:
        unknown = sorted(set(types) - set(rows.schema.names))
        if unknown:
            raise InvalidRequest(
                "--column names a column that the file lacks",
                columns=unknown,
                file_has=rows.schema.names,
            )
        fields = _fields(rows, types, keys or ())
        if dry_run:
            _show_plan(rows, fields, form)
            note(f"dry run: {name} was not created")
            return
        session, identifier, own = place_of(name, warehouse, option, create=True)
        if bucket is not None:
            own["bucket"] = str(bucket)
        session.create_database(_database(identifier), ignore_if_exists=True)
        try:
            table = session.create_table(
                identifier,
                {field.name: field for field in fields},
                data=counted(rows),
                primary_keys=keys or (),
                partition_keys=partitions or (),
                options=own,
                comment=comment,
            )
        except AlreadyExists as error:
            raise AlreadyExists(
                "another program created the table meanwhile; run the import again",
                table=identifier,
            ) from error
    latest = table.context.history.latest_snapshot()
    count = 0 if latest is None else table.count()
    record = {
        "table": table.identifier,
        "created": True,
        "rows": count,
        "snapshot_id": None if latest is None else latest.id,
    }
    state = "no snapshot" if latest is None else f"snapshot {latest.id}"
    write_record(record, form, f"created {table.identifier} with {rows_text(count)}: {state}")


def write(  # noqa: PLR0913, PLR0917  the parameters of the command
    name: str,
    files: list[str],
    warehouse: str | None,
    option: list[str] | None,
    replaced: tuple[bool, str | None, bool | None],
    reading: Reading,
    form: Format,
    *,
    evolve_schema: bool,
    yes: bool,
) -> None:
    """Write the rows of files to a table."""
    overwrite, partition, dynamic = replaced
    table = table_of(name, warehouse, option)
    evolve = evolve_schema or None
    with opened(files, reading, table.schema, storage=storage_options(option)) as rows:
        if not overwrite:
            _report("wrote", name, table.write(counted(rows), evolve_schema=evolve), form)
            return
        spec = None if partition is None else {**stated(partition.split(","), "a partition")}
        what = f"partition {partition} of {name}" if partition else name
        require_consent(f"replace the rows of {what}?", yes=yes)
        result = table.overwrite(counted(rows), spec, dynamic=dynamic, evolve_schema=evolve)
    _report("replaced", name, result, form)


@contextmanager
def opened(
    files: Sequence[str],
    reading: Reading,
    schema: TableSchema | None,
    types: Mapping[str, DataType] | None = None,
    *,
    storage: Mapping[str, str],
) -> Iterator[FileRows]:
    """The rows of files. Their types are stated, or else those of a table's schema.

    `storage`: the options of the storage of remote files.
    """
    kind, delimiter, no_header, header_names, null, date_format, timestamp_format, encoding = (
        reading
    )
    arrow = {} if schema is None else {field.name: field.type for field in schema.arrow}
    arrow |= {key: _arrow(key, each) for key, each in (types or {}).items()}
    header = tuple(each.strip() for each in header_names.split(",")) if header_names else ()
    if no_header and not header and schema is not None:
        header = tuple(schema.arrow.names)
    if no_header and not header:
        raise InvalidRequest("--no-header needs the names of the columns: --names a,b,c")
    if files.count(STDIN) > 1:
        raise InvalidRequest("standard input can be read once")
    with ExitStack() as kept:
        paths = tuple(kept.enter_context(_local(each, storage, encoding)) for each in files)
        found = FileFormat(
            kind=_kind(files, kind),
            delimiter=delimiter,
            names=header,
            header=not no_header,
            null=null,
            date_format=date_format,
            timestamp_format=timestamp_format,
        )
        shown = {
            path: _shown(given) for given, path in zip(files, paths, strict=True) if given != path
        }
        rows = FileRows(paths=paths, format=found, types=arrow, shown=shown)
        for each in rows.notes:
            note(f"note: {each}")
        try:
            yield rows
        finally:
            rows.close()


def _arrow(name: str, kind: DataType) -> pa.DataType:
    return arrow_field(Field(id=0, name=name, type=kind)).type


def _kind(files: Sequence[str], kind: str | None) -> str:
    """The format of all files."""
    if kind is not None:
        if kind not in KINDS:
            raise InvalidRequest("unknown format of files", format=kind, known=list(KINDS))
        return kind
    found = {kind_of(each) for each in files}
    if len(found) != 1 or None in found:
        raise InvalidRequest(
            "say the format of the files: --format csv, json or parquet", files=list(files)
        )
    return str(found.pop())


@contextmanager
def _local(file: str, storage: Mapping[str, str], encoding: str | None) -> Iterator[str]:
    """The path of a file that exists and is not empty, in UTF-8.

    Standard input and a remote file are copied first; the copy is deleted afterwards.
    """
    with ExitStack() as kept:
        path = file
        if file == STDIN:
            with tempfile.NamedTemporaryFile("wb", prefix="lakecore-", delete=False) as copy:
                path = copy.name
                kept.callback(Path(path).unlink, missing_ok=True)
                shutil.copyfileobj(sys.stdin.buffer, copy)
        elif "://" in file:
            uri = locate(file)
            (path,) = kept.enter_context(local_files(open_store(uri, storage), [uri]))
        found = Path(path)
        if not found.is_file():
            raise NotFound("no such file", file=file)
        if not found.stat().st_size:
            raise InvalidRequest("the file is empty: it has no columns", file=_shown(file))
        yield (
            path if encoding is None else kept.enter_context(_as_utf8(path, _shown(file), encoding))
        )


@contextmanager
def _as_utf8(path: str, shown: str, encoding: str) -> Iterator[str]:
    """A copy of the file in UTF-8, with its ending; it is deleted afterwards."""
    with closing(SpillDirectory()) as directory:
        copy, line = directory.next_path(Path(path).suffix.lstrip(".") or "csv"), 0
        try:
            with (
                Path(path).open(encoding=encoding, newline="") as source,
                Path(copy).open("w", encoding="utf-8", newline="") as target,
            ):
                for line, text in enumerate(source, 1):
                    target.write(text.removeprefix("\ufeff") if line == 1 else text)
        except LookupError as error:
            raise InvalidRequest("no such encoding", encoding=encoding) from error
        except UnicodeError as error:
            raise InvalidRequest(
                "the file is not in this encoding",
                file=shown,
                encoding=encoding,
                after_line=line,
                reason=error,
            ) from error
        yield copy


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else file


def _database(identifier: str) -> str:
    database = identifier.rpartition(".")[0]
    return database.removeprefix("`").removesuffix("`")


def _fields(
    rows: FileRows, types: Mapping[str, DataType], keys: Sequence[str] = ()
) -> tuple[Field, ...]:
    """The columns of a new table: stated types, and inferred ones."""
    inferred = fields_from_arrow([rows.schema.field(place) for place in range(len(rows.schema))])
    found = []
    for field in inferred:
        kind = types.get(field.name, field.type)
        if field.name in keys:
            kind = with_nullable(kind, nullable=False)
        found.append(Field(id=field.id, name=field.name, type=kind))
    return tuple(found)


def _check_same(flag: str, given: object, table: Table) -> None:
    """Raise InvalidRequest if an existing table differs from a flag for new tables."""
    schema = table.schema
    has: object = {
        "--primary-key": list(schema.primary_keys),
        "--partition-by": list(schema.partition_keys),
        "--bucket": table.options.bucket,
        "--comment": schema.comment,
    }[flag]
    if given != has:
        raise InvalidRequest(
            f"the table exists and differs from {flag}",
            table=table.identifier,
            given=given,
            has=has,
        )


def _show_plan(rows: FileRows, fields: Sequence[Field], form: Format) -> None:
    """Print the columns; the number of rows goes to standard error."""
    frame = pl.DataFrame(
        [(field.name, str(field.type)) for field in fields],
        {"column": pl.String, "type": pl.String},
        orient="row",
    )
    write_frame(frame, form)
    count = sum(batch.num_rows for batch in counted(rows))
    note(rows_text(count))


def counted(rows: FileRows) -> Iterator[pa.RecordBatch]:
    """The batches of `rows`. Shows the number of rows read so far in a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("reading", total=rows.rows_if_known())
        count, some = 0, False
        for batch in rows.batches():
            count, some = count + batch.num_rows, True
            bar.update(task, description=f"{count:,} rows", completed=count)
            yield batch
        if not some:
            yield pa.RecordBatch.from_pylist([], rows.schema)


def _report(verb: str, name: str, result: CommitResult, form: Format) -> None:
    record = {"table": name, **asdict(result)}
    write_record(record, form, summary(verb, name, result, result.rows))


def summary(verb: str, name: str, result: CommitResult, count: int) -> str:
    """The result of a commit in one line."""
    ids = ", ".join(map(str, result.snapshot_ids))
    state = f"snapshot {ids}" if ids else "nothing to commit"
    return f"{verb} {rows_text(count)} {_PREPOSITIONS.get(verb, 'of')} {name}: {state}"


def rows_text(count: int) -> str:
    """A number of rows in words."""
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
