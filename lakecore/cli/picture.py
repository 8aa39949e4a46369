"""`lakecore inspect`: an overview of a table in the terminal, as JSON, or as an HTML page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import Form, Format, OfTable, Verbs, flag
from lakecore.cli.printing import note, say, write_frame
from lakecore.deferred import deferred, deferred_module
from lakecore.display import json_text, show_bytes
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    import polars as pl

    from lakecore.table.system.overview import BucketFiles, Overview, overview_of
    from lakecore.ui.drawing import overview_page
else:
    overview_page = deferred("lakecore.ui.drawing", "overview_page")
    overview_of = deferred("lakecore.table.system.overview", "overview_of")
    pl = deferred_module("polars")

commands = Verbs()

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
    for what, names in named.items():
        if names:
            say(f"{what}: {', '.join(names)}")
    if overview.snapshots:
        write_frame(_snapshots(overview), Format.TABLE, "Snapshots, newest first")
    if overview.buckets:
        write_frame(_buckets(overview), Format.TABLE, "Buckets: each sign is a file, by level")
        hidden = len(overview.buckets) - _BUCKETS_SHOWN
        if hidden > 0:
            note(f"{hidden:,} more buckets; --html or --json shows all")
    if overview.expiry is not None:
        say(f"Expiry now: {overview.expiry.snapshots_expired:,} snapshots would go.")


def _snapshots(overview: Overview) -> pl.DataFrame:
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
