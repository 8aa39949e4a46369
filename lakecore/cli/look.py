"""`lakecore tables`, `show` and `explain`: metadata, without reading rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from lakecore.cli.arguments import Format, names
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.cli.target import session_of, table_of
from lakecore.display import show_bytes
from lakecore.errors import LakecoreError
from lakecore.table.reads.told import told_snapshot

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.session import Session
    from lakecore.table.handle import Table

__all__ = ["columns_frame", "explain", "show", "tables"]

_LISTED: dict[str, pl.DataType | pl.datatypes.DataTypeClass] = {
    "table": pl.String,
    "primary_key": pl.List(pl.String),
    "partitioned_by": pl.List(pl.String),
    "snapshot": pl.Int64,
    "rows_stored": pl.Int64,
}


def tables(path: str | None, warehouse: str | None, option: list[str] | None, form: Format) -> None:
    """List the tables of a warehouse."""
    session = session_of(path, warehouse, option)
    rows = [
        _listed(session, database, table)
        for database in session.list_databases()
        for table in session.list_tables(database)
    ]
    frame = pl.DataFrame(rows, schema=_LISTED, orient="row")
    if form is Format.TABLE:
        joined = pl.col("primary_key", "partitioned_by").list.join(", ").replace("", None)
        frame = frame.with_columns(joined).rename(lambda name: name.replace("_", " "))
    write_frame(frame, form, null="")


def show(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    asked: list[str],
    form: Format,
) -> None:
    """Show the requested sections about a table."""
    table = table_of(name, warehouse, option)
    if form is Format.TABLE:
        for section in asked:
            title = f"schema {table.schema.id}" if section == "schema" else section
            write_frame(_shown(table, section), form, title, null="")
            if section == "manifests":
                say(_health(table))
        return
    frames = {section: _section(table, section) for section in asked}
    if len(frames) == 1:
        write_frame(frames[asked[0]], form)
    else:
        write_record({key: frame.to_dicts() for key, frame in frames.items()}, form, "")


def explain(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    columns: str | None,
    where: str | None,
    form: Format,
) -> None:
    """Show what a read would do."""
    plan = table_of(name, warehouse, option).explain(names(columns), where)
    write_record(asdict(plan), form, str(plan))


def _listed(session: Session, database: str, name: str) -> tuple[object, ...]:
    """A row of the list of tables. A table that cannot be opened has only its name and a note."""
    try:
        table = session.get_table(f"`{database}`.`{name}`")
        snapshot = table.context.history.latest_snapshot()
        snapshot = None if snapshot is None else told_snapshot(snapshot, table.context)
    except LakecoreError as error:
        note(f"{database}.{name}: {error}")
        return (f"{database}.{name}", None, None, None, None)
    return (
        f"{database}.{name}",
        list(table.schema.primary_keys),
        list(table.schema.partition_keys),
        None if snapshot is None else snapshot.id,
        None if snapshot is None else snapshot.total_record_count,
    )


def _section(table: Table, section: str) -> pl.DataFrame:
    """A section with all of its columns, as stored."""
    match section:
        case "schema":
            return columns_frame(table)
        case "options":
            return table.inspect.options()
        case "snapshots":
            return table.inspect.snapshots()
        case "files":
            return table.inspect.files()
        case _:
            return table.inspect.manifests()


def _shown(table: Table, section: str) -> pl.DataFrame:
    """A section for people: fewer columns, and readable numbers."""
    match section:
        case "snapshots":
            return _snapshots(table)
        case "files":
            return _files(table)
        case _:
            return _section(table, section)


def columns_frame(table: Table) -> pl.DataFrame:
    """The columns of a table with types, keys and comments."""
    schema = table.schema
    return pl.DataFrame(
        [
            {
                "column": column.name,
                "type": str(column.type),
                "key": _key(schema, column.name),
                "comment": column.description,
            }
            for column in schema.fields
        ],
        schema=dict.fromkeys(("column", "type", "key", "comment"), pl.String),
    )


def _key(schema: TableSchema, column: str) -> str | None:
    keys = {"primary key": schema.primary_keys, "partition key": schema.partition_keys}
    return ", ".join(key for key, columns in keys.items() if column in columns) or None


def _health(table: Table) -> str:
    """The health of a table: how many manifests a read opens, and how many of them are small."""
    options, frame = table.options, table.inspect.manifests()
    target = options.manifest_target_file_size_bytes
    small = frame.filter(pl.col("file_size") < target).height
    deleting = frame.filter(pl.col("num_deleted_files") > 0).height
    return (
        f"{frame.height} manifests of {show_bytes(int(frame['file_size'].sum()))}: {small} smaller "
        f"than {show_bytes(target)} (from {options.manifest_merge_min_count} on they are merged), "
        f"{deleting} with deletions"
    )


def _snapshots(table: Table) -> pl.DataFrame:
    return table.inspect.snapshots().select(
        id="snapshot_id",
        committed=pl.col("commit_time").dt.to_string("%Y-%m-%d %H:%M:%S"),
        kind="commit_kind",
        rows="total_record_count",
        change=pl.format(
            "{}{}",
            pl.when(pl.col("delta_record_count") > 0).then(pl.lit("+")).otherwise(pl.lit("")),
            "delta_record_count",
        ),
        user="commit_user",
    )


def _files(table: Table) -> pl.DataFrame:
    return table.inspect.files().select(
        "partition",
        "bucket",
        "level",
        rows="record_count",
        size=pl.col("file_size_in_bytes").map_elements(show_bytes, return_dtype=pl.String),
        keys=pl.format("{} .. {}", "min_key", "max_key"),
        file=pl.col("file_path").str.split("/").list.last(),
    )
