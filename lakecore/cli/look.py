"""`lakecore tables`, `show`, `read`, `inspect`: commands that print facts or rows of tables.

Rows are printed as a grid of the first ones, or as a stream of all.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.catalog.identifier import quoted_name
from lakecore.cli.arguments import (
    ROWS_SHOWN,
    Columns,
    Form,
    Format,
    Limit,
    OfTable,
    OfWarehouse,
    Verbs,
    Where,
    argument,
    flag,
    names,
    switch,
)
from lakecore.cli.printing import note, say, write_batches, write_frame, write_record
from lakecore.deferred import deferred, deferred_module
from lakecore.display import json_text, show_bytes
from lakecore.errors import InvalidRequest, LakecoreError

if TYPE_CHECKING:
    import polars as pl

    from lakecore.frames.arrow_frames import to_frame
    from lakecore.io.parallel import read_all
    from lakecore.model.schema import TableSchema
    from lakecore.session import Session
    from lakecore.table.handle import Table
    from lakecore.table.reads.told import told_snapshot
    from lakecore.table.system.advice import advice_of
    from lakecore.table.system.overview import BucketFiles, Overview, overview_of
    from lakecore.ui.drawing import overview_page
else:
    pl = deferred_module("polars")
    advice_of = deferred("lakecore.table.system.advice", "advice_of")
    read_all = deferred("lakecore.io.parallel", "read_all")
    told_snapshot = deferred("lakecore.table.reads.told", "told_snapshot")
    to_frame = deferred("lakecore.frames.arrow_frames", "to_frame")
    overview_page = deferred("lakecore.ui.drawing", "overview_page")
    overview_of = deferred("lakecore.table.system.overview", "overview_of")

commands = Verbs()


@commands("tables")
def tables(
    path: Annotated[str | None, argument("[WAREHOUSE]", "Path or URI of the warehouse.")] = None,
    *,
    of: OfWarehouse,
    form: Form,
) -> None:
    """List the tables of a warehouse, with keys, snapshot and rows.

    Rows are counted as stored, before a merge.
    """
    session = of.session(path)
    found = [
        (database, table)
        for database in session.list_databases()
        for table in session.list_tables(database)
    ]
    rows = read_all(lambda names: _listed(session, *names), found)
    columns = {
        "table": pl.String(),
        "primary_key": pl.List(pl.String),
        "partitioned_by": pl.List(pl.String),
        "snapshot": pl.Int64(),
        "rows_stored": pl.Int64(),
    }
    frame = pl.DataFrame(rows, columns, orient="row")
    if form is Format.TABLE:
        joined = pl.col("primary_key", "partitioned_by").list.join(", ").replace("", None)
        frame = frame.with_columns(joined).rename(lambda name: name.replace("_", " "))
    write_frame(frame, form, null="")


@commands("show")
def show(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    schema: Annotated[bool, switch("Show columns and keys.")] = False,
    options: Annotated[bool, switch("Show the options that are set.")] = False,
    snapshots: Annotated[bool, switch("Show the snapshots that can be read.")] = False,
    files: Annotated[bool, switch("Show the data files of the latest snapshot.")] = False,
    manifests: Annotated[bool, switch("Show the manifests, and how many are small.")] = False,
    form: Form,
) -> None:
    """Show the schema, options and snapshots of a table.

    With flags, show only what they name.
    """
    flags = {
        "schema": schema,
        "options": options,
        "snapshots": snapshots,
        "files": files,
        "manifests": manifests,
    }
    asked = [name for name, flag in flags.items() if flag] or ["schema", "options", "snapshots"]
    if form in {Format.CSV, Format.PARQUET} and len(asked) > 1:
        raise typer.BadParameter(
            "CSV and Parquet hold one table: name one of " + " ".join(f"--{f}" for f in flags)
        )
    table = of.open()
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


@commands("explain")
def explain(of: OfTable, *, columns: Columns = None, where: Where = None, form: Form) -> None:
    """Show which files a read would skip, merge and read."""
    plan = of.open().explain(names(columns), where)
    write_record(asdict(plan), form, str(plan))


@commands("advise")
def advise(
    of: OfTable,
    *,
    prices: Annotated[
        str | None, flag("STORE", "Prices: s3, s3-express, gcs or local. Default: by the path.")
    ] = None,
    form: Form,
) -> None:
    """Say which options to change, and what it saves, from the table's own history.

    Reads the snapshots of the last week and one plan; changes nothing.
    """
    result = advice_of(of.open().context, prices)
    write_record(asdict(result), form, str(result))


@commands("analyze")
def analyze(
    of: OfTable,
    *,
    columns: Columns = None,
    only_rows: Annotated[bool, switch("Only count the rows; analyze no column.")] = False,
    form: Form,
) -> None:
    """Compute and store statistics of a table, for the query planners of other engines."""
    if only_rows and columns:
        raise typer.BadParameter("name columns, or give --only-rows")
    result = of.open().analyze([] if only_rows else names(columns))
    write_record(asdict(result), form, str(result))


def _listed(session: Session, database: str, name: str) -> tuple[object, ...]:
    """A row of the list of tables. A table that cannot be opened has only its name and a note."""
    try:
        table = session.get_table(quoted_name(database, name))
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


# --- rows ----------------------------------------------------------------------------------------


@commands("read")
def read(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    snapshot: Annotated[
        int | None, flag("N", "Read this snapshot.", "--snapshot", "--snapshot-id")
    ] = None,
    tag: Annotated[str | None, flag("NAME", "Read this tag.")] = None,
    timestamp: Annotated[
        str | None, flag("TIME", "Read the newest snapshot at this time (ISO 8601).")
    ] = None,
    form: Form,
) -> None:
    """Print the rows of a table, merged by their keys."""
    table = of.open()
    if form is Format.TABLE:
        frame = table.to_polars(
            names(columns), where, _asked(limit), snapshot_id=snapshot, tag=tag, timestamp=timestamp
        )
        _write_first(frame, limit)
    else:
        reader = table.to_batches(
            names(columns), where, limit, snapshot_id=snapshot, tag=tag, timestamp=timestamp
        )
        write_batches(to_frame(reader.schema.empty_table()), map(to_frame, reader), form)


@commands("count")
def count(
    of: OfTable,
    *,
    where: Where = None,
    snapshot: Annotated[
        int | None, flag("N", "Count in this snapshot.", "--snapshot", "--snapshot-id")
    ] = None,
    tag: Annotated[str | None, flag("NAME", "Count in this tag.")] = None,
    timestamp: Annotated[
        str | None, flag("TIME", "Count in the newest snapshot at this time (ISO 8601).")
    ] = None,
    form: Form,
) -> None:
    """Count the rows of a table, merged by their keys."""
    rows = of.open().count(where, snapshot_id=snapshot, tag=tag, timestamp=timestamp)
    write_record({"rows": rows}, form, str(rows))


@commands("changes")
def changes(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    start: Annotated[
        str | None, flag("POINT", "Changes after this snapshot, tag, date or time (ISO 8601).")
    ] = None,
    end: Annotated[str | None, flag("POINT", "Changes up to this point.")] = None,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    form: Form,
) -> None:
    """Print the changes between two snapshots or times, with row kinds.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted).
    """
    frame = of.open().changes(start, end, names(columns), where)
    if form is Format.TABLE:
        _write_first(frame.head(_asked(limit)).collect(), limit)
    else:
        rows = frame if limit is None else frame.head(limit)
        empty = rows.collect_schema().to_frame()
        write_batches(empty, rows.collect_batches(maintain_order=True), form)


def _asked(limit: int | None) -> int:
    """How many rows to read: one more than a grid shows, to detect whether there are more."""
    return ROWS_SHOWN + 1 if limit is None else limit


def _write_first(frame: pl.DataFrame, limit: int | None) -> None:
    shown = frame if limit is not None else frame.head(ROWS_SHOWN)
    write_frame(shown, Format.TABLE)
    if shown.height < frame.height:
        note(f"the first {shown.height} rows; --limit N shows more, --json or --csv prints all")


# --- picture -------------------------------------------------------------------------------------

_SNAPSHOTS = 12
_BUCKETS_SHOWN = 24
_BAR = 30


@commands("inspect")
def inspect(
    of: OfTable,
    *,
    html: Annotated[str | None, flag("FILE", "Write a self-contained HTML page.")] = None,
    form: Form,
) -> None:
    """Draw a table: snapshots, tags, consumers, buckets, files, and what would expire."""
    if form is Format.CSV:
        raise InvalidRequest("a picture is text, JSON or HTML")
    overview = overview_of(of.open().context)
    if html is not None:
        try:
            Path(html).write_text(overview_page(overview), encoding="utf-8")
        except OSError as error:
            raise InvalidRequest("the page cannot be written", file=html, cause=error) from error
        note(f"wrote {html}")
    elif form is Format.JSON:
        say(json_text(asdict(overview)))
    else:
        _draw(overview)


def _draw(overview: Overview) -> None:
    keys = f", primary key {', '.join(overview.primary_keys)}" if overview.primary_keys else ""
    say(f"{overview.table}{keys}")
    say(
        f"{overview.snapshot_count:,} snapshots, {overview.files:,} files, "
        f"{show_bytes(overview.bytes)}"
    )
    named = {
        "branches": list(overview.branches),
        "tags": [f"{name} ({number})" for name, number in overview.tags.items()],
        "consumers": [f"{name} (reads {n} next)" for name, n in overview.consumers.items()],
    }
    for what, known in named.items():
        if known:
            say(f"{what}: {', '.join(known)}")
    if overview.snapshots:
        write_frame(_timeline(overview), Format.TABLE, "Snapshots, newest first")
    if overview.buckets:
        write_frame(_buckets(overview), Format.TABLE, "Buckets: each sign is a file, by level")
        hidden = len(overview.buckets) - _BUCKETS_SHOWN
        if hidden > 0:
            note(f"{hidden:,} more buckets; --html or --json shows all")
    if overview.expiry is not None:
        say(f"Expiry now: {overview.expiry.snapshots_expired:,} snapshots would go.")


def _timeline(overview: Overview) -> pl.DataFrame:
    shown = overview.snapshots[: -_SNAPSHOTS - 1 : -1]
    most = max((each.bytes or 0 for each in overview.snapshots), default=0) or 1
    rows = [
        {
            "id": each.id,
            "kind": each.kind,
            "time": each.time_ms,
            "rows": each.rows,
            "files": each.files,
            "size": None if each.bytes is None else show_bytes(each.bytes),
            "": "#" * round(_BAR * (each.bytes or 0) / most),
            "tags": ", ".join(each.tags) or None,
            "next of": ", ".join(each.consumers) or None,
        }
        for each in shown
    ]
    time = pl.from_epoch("time", time_unit="ms").dt.replace_time_zone("UTC")
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(time)


def _buckets(overview: Overview) -> pl.DataFrame:
    rows = [
        {
            "partition": each.partition or None,
            "bucket": each.bucket,
            "files": len(each.files),
            "rows": sum(file.rows for file in each.files),
            "size": show_bytes(each.bytes),
            "levels": _levels(each),
        }
        for each in overview.buckets[:_BUCKETS_SHOWN]
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _levels(bucket: BucketFiles) -> str:
    """The levels in the form `L0 ## L5 #`: one sign per file, or a number for many files."""
    counts: dict[int, int] = {}
    for file in bucket.files:
        counts[file.level] = counts.get(file.level, 0) + 1
    return " ".join(
        f"L{level} " + ("#" * count if count <= _FILES_SHOWN else f"#x{count}")
        for level, count in sorted(counts.items())
    )


_FILES_SHOWN = 12
