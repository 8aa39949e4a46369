"""`lakecore inspect`: an overview of a table in the terminal, as JSON, or as an HTML page."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.cli.arguments import Form, Format, OfTable, Verbs
from lakecore.cli.grid import json_text
from lakecore.cli.printing import note, say, write_frame
from lakecore.deferred import deferred, deferred_module
from lakecore.display import show_bytes
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.table.system.overview import (
        BucketFiles,
        FileFacts,
        Overview,
        SnapshotFacts,
        overview_of,
    )
else:
    overview_of = deferred("lakecore.table.system.overview", "overview_of")
    pl = deferred_module("polars")

commands = Verbs()

# --- picture page --------------------------------------------------------------------------------
# The overview of a table as one self-contained HTML page, without scripts or network access.

_WIDTH, _HEIGHT, _ROW = 900, 160, 26
_COLOURS = {"APPEND": "#2b6cb0", "COMPACT": "#2f855a", "OVERWRITE": "#c05621", "ANALYZE": "#6b46c1"}
_BUCKETS = 200
_FILES = 400
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #1a202c }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .15rem .6rem; text-align: left }
th { border-bottom: 1px solid #a0aec0 } td.n { text-align: right }
svg { max-width: 100%; height: auto; background: #f7fafc } .note { color: #4a5568 }
svg text { font: 11px system-ui, sans-serif; fill: #2d3748 }
@media (prefers-color-scheme: dark) {
  body { background: #1a202c; color: #e2e8f0 } svg { background: #2d3748 }
  svg text { fill: #e2e8f0 } .note { color: #a0aec0 }
}
"""


def page_of(overview: Overview) -> str:
    """The page: facts, snapshots over time, growth, the map of files, and what would expire."""
    title = escape(overview.table)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        *_facts(overview),
        "<h2>Snapshots</h2>",
        *_timeline(overview.snapshots),
        "<h2>Growth</h2>",
        *_growth(overview.snapshots),
        "<h2>Files by bucket and level</h2>",
        *_map(overview.buckets),
        "<h2>Expiry</h2>",
        *_expiry(overview),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _facts(overview: Overview) -> Iterator[str]:
    rows = {
        "path": overview.path,
        "primary key": ", ".join(overview.primary_keys),
        "partitioned by": ", ".join(overview.partition_keys),
        "snapshots": f"{overview.snapshot_count:,}",
        "files": f"{overview.files:,} ({show_bytes(overview.bytes)})",
        "tags": ", ".join(f"{name} ({number})" for name, number in overview.tags.items()),
        "branches": ", ".join(overview.branches),
        "consumers": ", ".join(
            f"{name} (reads {number} next)" for name, number in overview.consumers.items()
        ),
        "options": ", ".join(f"{key} = {value}" for key, value in overview.options.items()),
    }
    yield '<table id="facts">'
    for name, value in rows.items():
        if value:
            yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</table>"


def _timeline(snapshots: Sequence[SnapshotFacts]) -> Iterator[str]:
    """A dot for each snapshot over time, with its tags and consumers."""
    if not snapshots:
        yield '<p class="note">There is no snapshot yet.</p>'
        return
    first, last = snapshots[0].time_ms, snapshots[-1].time_ms
    span = max(last - first, 1)
    label = "snapshots over time"
    yield f'<svg id="timeline" viewBox="0 0 {_WIDTH} 90" role="img" aria-label="{label}">'
    yield f'<line x1="20" y1="45" x2="{_WIDTH - 20}" y2="45" stroke="#a0aec0"/>'
    for each in snapshots:
        x = 20 + (_WIDTH - 40) * (each.time_ms - first) / span
        colour = _COLOURS.get(each.kind, "#4a5568")
        says = f"snapshot {each.id}, {each.kind}, {_time(each.time_ms)}"
        yield (
            f'<circle cx="{x:.1f}" cy="45" r="5" fill="{colour}">'
            f"<title>{escape(says)}</title></circle>"
        )
        for place, names, mark in ((25, each.tags, "tag"), (72, each.consumers, "next of")):
            if names:
                text = escape(f"{mark} {', '.join(names)}")
                yield f'<text x="{x:.1f}" y="{place}" text-anchor="middle">{text}</text>'
    yield "</svg>"
    kinds = dict.fromkeys(each.kind for each in snapshots)
    legend = ", ".join(
        f'<span style="color:{_COLOURS.get(kind, "#4a5568")}">&#9679;</span> {escape(kind)}'
        for kind in kinds
    )
    yield f'<p class="note">{_time(first)} to {_time(last)}: {legend}</p>'


def _growth(snapshots: Sequence[SnapshotFacts]) -> Iterator[str]:
    """Two lines over the snapshots: live bytes and live files."""
    known = [each for each in snapshots if each.bytes is not None and each.files is not None]
    if not known:
        yield '<p class="note">Nothing is known of the size of snapshots.</p>'
        return
    most_bytes = max(each.bytes or 0 for each in known) or 1
    most_files = max(each.files or 0 for each in known) or 1
    step = (_WIDTH - 40) / max(len(known) - 1, 1)

    def line(values: list[float], colour: str) -> str:
        points = " ".join(
            f"{20 + step * place:.1f},{_HEIGHT - 15 - (_HEIGHT - 30) * value:.1f}"
            for place, value in enumerate(values)
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    yield f'<svg id="growth" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="growth">'
    yield line([(each.bytes or 0) / most_bytes for each in known], "#2b6cb0")
    yield line([(each.files or 0) / most_files for each in known], "#c05621")
    yield "</svg>"
    yield (
        f'<p class="note"><span style="color:#2b6cb0">&#9644;</span> bytes, up to '
        f'{show_bytes(most_bytes)}; <span style="color:#c05621">&#9644;</span> files, up to '
        f"{most_files:,}; snapshots {known[0].id} to {known[-1].id}</p>"
    )


def _map(buckets: Sequence[BucketFiles]) -> Iterator[str]:
    """A row for each bucket and level: a box for each file, as wide as it is large."""
    if not buckets:
        yield '<p class="note">There is no file yet.</p>'
        return
    rows = [
        (bucket, level, [file for file in bucket.files if file.level == level])
        for bucket in buckets[:_BUCKETS]
        for level in sorted({file.level for file in bucket.files})
    ]
    most = max(sum(file.bytes for file in files) for _, _, files in rows) or 1
    height = _ROW * len(rows) + 10
    yield f'<svg id="files" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="files">'
    for place, (bucket, level, files) in enumerate(rows):
        y = 5 + place * _ROW
        name = f"{bucket.partition or 'all'} / {bucket.bucket} / L{level}"
        yield f'<text x="5" y="{y + 15}">{escape(name)}</text>'
        x = 240.0
        for file in files[:_FILES]:
            wide = max((_WIDTH - 260) * file.bytes / most, 2.0)
            yield _box(file, x, y, wide)
            x += wide + 1
    yield "</svg>"
    text = "blue: no other file may hold its keys; orange: keys may overlap; red edge: deletions"
    yield f'<p class="note">{text}</p>'
    if len(buckets) > _BUCKETS:
        yield f'<p class="note">The first {_BUCKETS} of {len(buckets):,} buckets.</p>'


def _box(file: FileFacts, x: float, y: int, wide: float) -> str:
    colour = "#dd6b20" if file.overlaps else "#3182ce"
    edge = ' stroke="#e53e3e" stroke-width="2"' if file.deletions else ""
    deletions = f", {file.deletions:,} deletions" if file.deletions else ""
    says = f"{file.name}: {file.rows:,} rows, {show_bytes(file.bytes)}{deletions}"
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW - 6}" fill="{colour}"{edge}>'
        f"<title>{escape(says)}</title></rect>"
    )


def _expiry(overview: Overview) -> Iterator[str]:
    if overview.expiry is None:
        yield '<p id="expiry">What would expire cannot be said: metadata cannot be read.</p>'
        return
    count = overview.expiry.snapshots_expired
    facts = ", ".join(f"{name}: {value}" for name, value in overview.expiry.files.shown())
    yield f'<p id="expiry">Now {count:,} snapshots would expire. {escape(facts)}</p>'


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# --- picture -------------------------------------------------------------------------------------

_SNAPSHOTS = 12
_BUCKETS_SHOWN = 24
_BAR = 30


@commands("inspect")
def inspect(
    of: OfTable,
    *,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a self-contained HTML page.")
    ] = None,
    form: Form,
) -> None:
    """Draw a table: snapshots, tags, consumers, buckets, files, and what would expire."""
    if form is Format.CSV:
        raise InvalidRequest("a picture is text, JSON or HTML")
    overview = overview_of(of.open().context)
    if html is not None:
        try:
            Path(html).write_text(page_of(overview), encoding="utf-8")
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
