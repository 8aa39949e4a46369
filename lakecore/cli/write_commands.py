"""Declares `lakecore import`, `write`, `delete`, `update` and `merge`.

`imports.py` and `row_changes.py` carry them out.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    DryRun,
    EvolveSchema,
    Format,
    Options,
    Output,
    TableName,
    Warehouse,
    Yes,
    chosen,
    names,
)
from lakecore.cli.run import run

__all__ = ["add_to"]

_IMPORTS = "lakecore.cli.imports"
_CHANGES = "lakecore.cli.row_changes"

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="CSV, JSON or Parquet files; - is standard input.",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="csv|json|parquet",
        help="Format of the files. Default: by the file suffix.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="CSV: the separator of values. Default: detected."),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="CSV: the first line holds values, not names.")
]
HeaderNames = Annotated[
    str | None,
    typer.Option("--names", metavar="NAMES", help="CSV: column names, separated by commas."),
]
NullText = Annotated[
    str,
    typer.Option("--null", metavar="TEXT", help="CSV: the text that means null. Default: empty."),
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=TYPE",
        help="Type of a column, such as price='DECIMAL(10,2)'; repeatable.",
    ),
]
DateFormat = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="CSV: format of dates, such as '%d/%m/%Y'."),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of CSV and JSON files, such as latin-1 or utf-16; default UTF-8.",
    ),
]
TimestampFormat = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="CSV: format of timestamps.")
]
Where = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only rows that match.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command("import")(import_files)
    app.command()(write)
    app.command()(delete)
    app.command()(update)
    app.command()(merge)


def import_files(  # noqa: PLR0913  one parameter per option
    table: TableName,
    file: Files,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create warehouse, database and table if they are missing."),
    ] = False,
    primary_key: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Primary key of a new table, comma-separated."),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Partition keys of a new table, comma-separated."),
    ] = None,
    bucket: Annotated[
        int | None, typer.Option(metavar="N", help="Number of buckets of a new table.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Comment of a new table.")
    ] = None,
    column: ColumnTypes = None,
    kind: Kind = None,
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    header_names: HeaderNames = None,
    null: NullText = "",
    date_format: DateFormat = None,
    timestamp_format: TimestampFormat = None,
    encoding: Encoding = None,
    evolve_schema: EvolveSchema = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the schema and the number of rows.")
    ] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Load files into a table. With a primary key, rows replace those of the same key.

    With --create, a missing table is created: its columns are those of the files, and -o KEY=VALUE
    sets its options. All rows are committed at once, or none.
    """
    reading = (
        kind, delimiter, no_header, header_names, null, date_format, timestamp_format, encoding,
    )  # fmt: skip
    made = (create, names(primary_key), names(partition_by), bucket, comment)
    run(
        *(_IMPORTS, "import_files", table, file, warehouse, option, made, column, reading),
        chosen(output, json=json, csv=csv),
        evolve_schema=evolve_schema,
        dry_run=dry_run,
    )


def write(  # noqa: PLR0913  one parameter per option
    table: TableName,
    file: Files,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the rows of the table or partition.")
    ] = False,
    partition: Annotated[
        str | None,
        typer.Option(metavar="KEY=VALUE,...", help="With --overwrite: replace this partition."),
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
    kind: Kind = None,
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    header_names: HeaderNames = None,
    null: NullText = "",
    date_format: DateFormat = None,
    timestamp_format: TimestampFormat = None,
    encoding: Encoding = None,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Write the rows of files to a table that exists, in one commit.

    A column _row_kind of the files states the kind of each row: +I, -U, +U or -D.
    """
    if not overwrite and (partition is not None or dynamic is not None):
        raise typer.BadParameter("--partition, --dynamic and --static need --overwrite")
    reading = (
        kind, delimiter, no_header, header_names, null, date_format, timestamp_format, encoding,
    )  # fmt: skip
    run(
        *(_IMPORTS, "write", table, file, warehouse, option, (overwrite, partition, dynamic)),
        reading,
        chosen(output, json=json, csv=csv),
        evolve_schema=evolve_schema,
        yes=yes,
    )


def delete(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    where: Annotated[str, typer.Option(metavar="SQL", help="Delete the rows that match.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete the rows that match a condition, in one commit."""
    form = chosen(output, json=json, csv=csv)
    run(_CHANGES, "delete", table, warehouse, option, where, (dry_run, yes), form)


def update(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    values: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="COLUMN=SQL", help="Set a column to an SQL expression; repeatable."
        ),
    ],
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Set columns of the rows that match a condition, in one commit.

    A text is quoted within the expression: --set "name='Ada'". Without --where, all rows change.
    """
    form = chosen(output, json=json, csv=csv)
    run(_CHANGES, "update", table, warehouse, option, values, where, (dry_run, yes), form)


def merge(  # noqa: PLR0913  one parameter per option
    table: TableName,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DB.TABLE",
            help="CSV, JSON or Parquet file, -, or another table.",
            show_default=False,
        ),
    ],
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    on: Annotated[
        str,
        typer.Option(
            metavar="NAMES|SQL", help="Columns that are equal, or a condition on source and target."
        ),
    ],
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Update rows that match, insert the others.")
    ] = False,
    when_matched: Annotated[
        list[str] | None,
        typer.Option(metavar="CLAUSE", help="What happens to a row that matches; repeatable."),
    ] = None,
    when_not_matched: Annotated[
        list[str] | None,
        typer.Option(metavar="CLAUSE", help="What happens to a new row; repeatable."),
    ] = None,
    when_not_matched_by_source: Annotated[
        list[str] | None,
        typer.Option(metavar="CLAUSE", help="What happens to all other rows; repeatable."),
    ] = None,
    kind: Kind = None,
    delimiter: Delimiter = None,
    no_header: NoHeader = False,
    header_names: HeaderNames = None,
    null: NullText = "",
    date_format: DateFormat = None,
    timestamp_format: TimestampFormat = None,
    encoding: Encoding = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Merge a file or a table into a table, in one commit.

    A CLAUSE is the text after WHEN MATCHED in MERGE INTO: "UPDATE SET *", "INSERT *" or "DELETE".
    A condition may precede it: "source.gone THEN DELETE". The two sides are called source and
    target.
    """
    reading = (
        kind, delimiter, no_header, header_names, null, date_format, timestamp_format, encoding,
    )  # fmt: skip
    clauses = {
        "MATCHED": list(when_matched or ()),
        "NOT MATCHED": list(when_not_matched or ()),
        "NOT MATCHED BY SOURCE": list(when_not_matched_by_source or ()),
    }
    if upsert:
        clauses["MATCHED"].append("UPDATE SET *")
        clauses["NOT MATCHED"].append("INSERT *")
    if not any(clauses.values()):
        raise typer.BadParameter("say what happens: --upsert, or a --when clause")
    run(
        *(_CHANGES, "merge", table, source, warehouse, option, on, clauses, reading),
        chosen(output, json=json, csv=csv),
    )
