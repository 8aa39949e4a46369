"""`lakecore import`, `write`, `delete`, `update` and `merge`: each is one commit."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.cli.arguments import (
    DRY,
    STDIN,
    Care,
    EvolveSchema,
    Form,
    Format,
    OfTable,
    Reading,
    Verbs,
    Yes,
    argument,
    flag,
    names,
    require_consent,
    switch,
)
from lakecore.cli.printing import note, rows_text, write_frame, write_record
from lakecore.cli.settings import stated
from lakecore.deferred import deferred, deferred_module
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl
    import pyarrow as pa

    from lakecore.catalog.identifier import parse_identifier
    from lakecore.cli.imports import counted, fields_of, opened
    from lakecore.cli.target import storage_options, table_of
    from lakecore.model.snapshot import CommitResult
    from lakecore.model.types import DataType, Field, parse_type
    from lakecore.scalar.values import sql_expr
    from lakecore.session import sql_engine
    from lakecore.sql.file_rows import FileRows, kind_of
    from lakecore.sql.tokens import quoted, quoted_text
    from lakecore.table.handle import Table
else:
    counted = deferred("lakecore.cli.imports", "counted")
    fields_of = deferred("lakecore.cli.imports", "fields_of")
    kind_of = deferred("lakecore.sql.file_rows", "kind_of")
    opened = deferred("lakecore.cli.imports", "opened")
    pa = deferred_module("pyarrow")
    parse_identifier = deferred("lakecore.catalog.identifier", "parse_identifier")
    parse_type = deferred("lakecore.model.types", "parse_type")
    pl = deferred_module("polars")
    quoted = deferred("lakecore.sql.tokens", "quoted")
    quoted_text = deferred("lakecore.sql.tokens", "quoted_text")
    sql_engine = deferred("lakecore.session", "sql_engine")
    sql_expr = deferred("lakecore.scalar.values", "sql_expr")
    storage_options = deferred("lakecore.cli.target", "storage_options")
    table_of = deferred("lakecore.cli.target", "table_of")

commands = Verbs()
_PREPOSITIONS = {"imported": "into", "wrote": "to", "deleted": "from"}
_NAMES = re.compile(r"[\w ]+(,[\w ]+)*")
_SOURCE = "_lakecore_source"
_ACTION = re.compile(r"(UPDATE|DELETE|INSERT)\b", re.IGNORECASE)

Files = Annotated[
    list[str], argument("FILE...", "CSV, JSON or Parquet files; - is standard input.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewTable:
    create: Annotated[bool, switch("Create warehouse, database and table if they are missing.")] = (
        False
    )
    primary_key: Annotated[
        str | None, flag("NAMES", "Primary key of a new table, comma-separated.")
    ] = None
    partition_by: Annotated[
        str | None, flag("NAMES", "Partition keys of a new table, comma-separated.")
    ] = None
    bucket: Annotated[int | None, flag("N", "Number of buckets of a new table.")] = None
    comment: Annotated[str | None, flag("TEXT", "Comment of a new table.")] = None
    column: Annotated[
        list[str] | None,
        flag("NAME=TYPE", "Type of a column, such as price='DECIMAL(10,2)'; repeatable."),
    ] = None


@commands("import")
def import_files(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    file: Files,
    *,
    new: _NewTable,
    reading: Reading,
    evolve_schema: EvolveSchema = False,
    dry_run: Annotated[bool, switch("Only print the schema and the number of rows.")] = False,
    form: Form,
) -> None:
    """Load files into a table. With a primary key, rows replace those of the same key.

    With --create, a missing table is created: its columns are those of the files, and -o KEY=VALUE
    sets its options. All rows are committed at once, or none.
    """
    given = stated(new.column, "a column")
    types = {key: parse_type(text, context=key) for key, text in given.items()}
    table = _existing(of, create=new.create)
    if table is None:
        _load_new(of, file, new, types, reading, form, dry_run=dry_run)
        return
    _check_same(new, table)
    if types and not evolve_schema:
        raise InvalidRequest(
            "the table exists and has its types; --column is for new columns: add --evolve-schema",
            table=table.identifier,
            columns=sorted(types),
        )
    with opened(file, reading, table.schema, types, storage=storage_options(of.option)) as rows:
        if dry_run:
            _show_plan(rows, fields_of(rows, types), form)
            note(f"dry run: nothing was written to {table.identifier}")
            return
        result = table.write(counted(rows), evolve_schema=evolve_schema or None)
    _report("imported", table.identifier, result, result.rows, form)


def _existing(of: OfTable, *, create: bool) -> Table | None:
    """The table; None if it does not exist and `create` is set."""
    try:
        return of.open()
    except NotFound as error:
        if not create:
            raise NotFound(
                "no such table; --create makes it, its database and its warehouse from the files, "
                "and a name DATABASE.TABLE needs --warehouse",
                table=of.table,
                **({"warehouse": of.warehouse} if of.warehouse else {}),
            ) from error
    except InvalidRequest:
        # Options of a new table, such as the number of buckets, are refused by an existing one.
        if not create:
            raise
        session, identifier, _ = of.place(create=True)
        if session.table_exists(identifier):
            raise
    return None


def _load_new(  # noqa: PLR0913  the parts of the command
    of: OfTable,
    files: Sequence[str],
    new: _NewTable,
    types: Mapping[str, DataType],
    reading: Reading,
    form: Format,
    *,
    dry_run: bool,
) -> None:
    keys = names(new.primary_key) or ()
    with opened(files, reading, None, types, storage=storage_options(of.option)) as rows:
        unknown = sorted(set(types) - set(rows.schema.names))
        if unknown:
            raise InvalidRequest(
                "--column names a column that the file lacks",
                columns=unknown,
                file_has=rows.schema.names,
            )
        fields = fields_of(rows, types, keys)
        if dry_run:
            _show_plan(rows, fields, form)
            note(f"dry run: {of.table} was not created")
            return
        session, identifier, own = of.place(create=True)
        if new.bucket is not None:
            own["bucket"] = str(new.bucket)
        session.create_database(parse_identifier(identifier).database, ignore_if_exists=True)
        try:
            table = session.create_table(
                identifier,
                {field.name: field for field in fields},
                data=counted(rows),
                primary_keys=keys,
                partition_keys=names(new.partition_by) or (),
                options=own,
                comment=new.comment,
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


def _check_same(new: _NewTable, table: Table) -> None:
    """Raise InvalidRequest if an existing table differs from the flags for a new one."""
    schema = table.schema
    facts: dict[str, tuple[object, object]] = {
        "--primary-key": (names(new.primary_key), list(schema.primary_keys)),
        "--partition-by": (names(new.partition_by), list(schema.partition_keys)),
        "--bucket": (new.bucket, table.options.bucket),
        "--comment": (new.comment, schema.comment),
    }
    for name, (given, has) in facts.items():
        if given is not None and given != has:
            raise InvalidRequest(
                f"the table exists and differs from {name}",
                table=table.identifier,
                given=given,
                has=has,
            )


def _show_plan(rows: FileRows, fields: Sequence[Field], form: Format) -> None:
    """Print the columns; the number of rows goes to standard error."""
    columns = [(field.name, str(field.type)) for field in fields]
    write_frame(pl.DataFrame(columns, {"column": str, "type": str}, orient="row"), form)
    note(rows_text(sum(batch.num_rows for batch in counted(rows))))


@commands("write")
def write(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    file: Files,
    *,
    overwrite: Annotated[bool, switch("Replace the rows of the table or partition.")] = False,
    partition: Annotated[
        str | None, flag("KEY=VALUE,...", "With --overwrite: replace this partition.")
    ] = None,
    dynamic: Annotated[
        bool | None,
        typer.Option(
            "--dynamic/--static",
            help="With --overwrite: replace only partitions of the new rows, or all rows.",
            show_default=False,
        ),
    ] = None,
    evolve_schema: EvolveSchema = False,
    reading: Reading,
    yes: Yes = False,
    form: Form,
) -> None:
    """Write the rows of files to a table that exists, in one commit.

    A column _row_kind of the files states the kind of each row: +I, -U, +U or -D.
    """
    if not overwrite and (partition is not None or dynamic is not None):
        raise typer.BadParameter("--partition, --dynamic and --static need --overwrite")
    table, name = of.open(), of.table
    evolve = evolve_schema or None
    with opened(file, reading, table.schema, storage=storage_options(of.option)) as rows:
        if not overwrite:
            result = table.write(counted(rows), evolve_schema=evolve)
            _report("wrote", name, result, result.rows, form)
            return
        spec = None if partition is None else {**stated(partition.split(","), "a partition")}
        what = f"partition {partition} of {name}" if partition else name
        require_consent(f"replace the rows of {what}?", yes=yes)
        result = table.overwrite(counted(rows), spec, dynamic=dynamic, evolve_schema=evolve)
    _report("replaced", name, result, result.rows, form)


@commands("delete")
def delete(
    of: OfTable,
    *,
    where: Annotated[str, flag("SQL", "Delete the rows that match.")],
    care: Care,
    form: Form,
) -> None:
    """Delete the rows that match a condition, in one commit."""
    table = of.open()
    count = table.count(where) if care.dry_run or not care.yes else None
    if care.dry_run:
        _only_said("delete", of.table, count or 0, form)
        return
    if count:
        require_consent(f"delete {rows_text(count)} of {of.table}?", yes=care.yes)
    result = table.delete(where)
    _report("deleted", of.table, result, result.rows_deleted, form)


@commands("update")
def update(
    of: OfTable,
    *,
    values: Annotated[
        list[str], flag("COLUMN=SQL", "Set a column to an SQL expression; repeatable.", "--set")
    ],
    where: Annotated[str | None, flag("SQL", "Only rows that match.")] = None,
    care: Care,
    form: Form,
) -> None:
    """Set columns of the rows that match a condition, in one commit.

    A text is quoted within the expression: --set "name='Ada'". Without --where, all rows change.
    """
    table = of.open()
    found: dict[str, object] = {}
    for each in values:
        column, equals, text = each.partition("=")
        if not equals or not column.strip() or not text.strip():
            raise InvalidRequest("--set is written COLUMN=SQL", given=each)
        if column.strip() in found:
            raise InvalidRequest("--set names a column twice", column=column.strip())
        found[column.strip()] = sql_expr(text.strip())
    if care.dry_run:
        _only_said("update", of.table, table.count(where), form)
        return
    if where is None:
        require_consent(f"update all rows of {of.table}?", yes=care.yes)
    result = table.update(found, where)
    _report("updated", of.table, result, result.rows_updated, form)


@commands("merge")
def merge(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    source: Annotated[
        str, argument("FILE|DB.TABLE", "CSV, JSON or Parquet file, -, or another table.")
    ],
    *,
    on: Annotated[
        str, flag("NAMES|SQL", "Columns that are equal, or a condition on source and target.")
    ],
    upsert: Annotated[bool, switch("Update rows that match, insert the others.")] = False,
    when_matched: Annotated[
        list[str] | None, flag("CLAUSE", "What happens to a row that matches; repeatable.")
    ] = None,
    when_not_matched: Annotated[
        list[str] | None, flag("CLAUSE", "What happens to a new row; repeatable.")
    ] = None,
    when_not_matched_by_source: Annotated[
        list[str] | None, flag("CLAUSE", "What happens to all other rows; repeatable.")
    ] = None,
    reading: Reading,
    form: Form,
) -> None:
    """Merge a file or a table into a table, in one commit.

    A CLAUSE is the text after WHEN MATCHED in MERGE INTO: "UPDATE SET *", "INSERT *" or "DELETE".
    A condition may precede it: "source.gone THEN DELETE". The two sides are called source and
    target.
    """
    clauses = {
        "MATCHED": list(when_matched or ()),
        "NOT MATCHED": list(when_not_matched or ()),
        "NOT MATCHED BY SOURCE": list(when_not_matched_by_source or ()),
    }
    if upsert:
        clauses["MATCHED"].append("UPDATE SET *")
        clauses["NOT MATCHED"].append("INSERT *")
    if not any(clauses.values()):
        raise typer.BadParameter("say what happens: --upsert, or a clause, as --when-matched")
    session, identifier, own = of.place()
    engine = sql_engine(session)
    target = session.get_table(identifier)
    for key, value in own.items():
        engine.run(f"SET {quoted_text(key)} = {quoted_text(value)}")
    is_file = source == STDIN or reading.kind is not None or kind_of(source) is not None
    text = _statement(identifier, on, clauses)
    if is_file or Path(source).is_file():
        storage = storage_options(of.option)
        with opened([source], reading, target.schema, storage=storage) as rows:
            failed: list[LakecoreError] = []
            held = pa.RecordBatchReader.from_batches(rows.schema, _noting(counted(rows), failed))
            try:
                found = engine.run(text, scope=lambda _name: held)
            except LakecoreError as error:
                if failed:  # Arrow and DuckDB raise their own error in place of the file's error
                    raise failed[0] from error
                raise
    else:
        other = table_of(source, of.warehouse, None)
        found = engine.run(text, scope=lambda _name: other)
    record = dict(zip(found.columns, found.fetchall()[0], strict=True))
    counts = ", ".join(
        f"{record.get(f'rows_{what}') or 0:,} {what}" for what in ("inserted", "updated", "deleted")
    )
    snapshot = record["snapshot_id"]
    state = "nothing to commit" if snapshot is None else f"snapshot {snapshot}"
    write_record({"table": of.table, **record}, form, f"merged into {of.table}: {counts}: {state}")


def _noting(
    batches: Iterator[pa.RecordBatch], failed: list[LakecoreError]
) -> Iterator[pa.RecordBatch]:
    """The batches. If reading them raises an error, it is also appended to `failed`."""
    try:
        yield from batches
    except LakecoreError as error:
        failed.append(error)
        raise


def _statement(identifier: str, on: str, clauses: Mapping[str, Sequence[str]]) -> str:
    if _NAMES.fullmatch(on):
        columns = [quoted(each.strip()) for each in on.split(",")]
        on = " AND ".join(f"target.{each} = source.{each}" for each in columns)
    named = parse_identifier(identifier)
    table = f"{quoted(named.database)}.{quoted(named.table)}"
    lines = [f"MERGE INTO {table} AS target USING {_SOURCE} AS source ON {on}"]
    for match, texts in clauses.items():
        for text in texts:
            action = text.strip()
            then = "THEN " if _ACTION.match(action) else "" if _starts(action) else "AND "
            lines.append(f"WHEN {match} {then}{action}")
    return "\n".join(lines)


def _starts(text: str) -> bool:
    """Whether a clause begins with AND or THEN, like the text after WHEN MATCHED."""
    return re.match(r"(AND|THEN)\b", text, re.IGNORECASE) is not None


def _only_said(verb: str, name: str, count: int, form: Format) -> None:
    record = {"table": name, "rows": count, "dry_run": True}
    write_record(record, form, f"would {verb} {rows_text(count)} of {name}\n{DRY}")


def _report(verb: str, name: str, result: CommitResult, count: int | None, form: Format) -> None:
    ids = ", ".join(map(str, result.snapshot_ids))
    state = f"snapshot {ids}" if ids else "nothing to commit"
    said = f"{verb} {rows_text(count or 0)} {_PREPOSITIONS.get(verb, 'of')} {name}: {state}"
    write_record({"table": name, **asdict(result)}, form, said)
