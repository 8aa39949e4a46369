"""Pictures of a table in SVG, and the page of `lakecore inspect --html`, which needs nothing else.

The pictures have no styles of their own: `static/ui.css` colours them, for light and dark pages.
"""

from __future__ import annotations

from importlib.resources import files as resources
from typing import TYPE_CHECKING

from lakecore.display import show_bytes
from lakecore.masking import masked_options
from lakecore.ui.html import Html, address, facts, joined, moment, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.system.overview import BucketFiles, FileFacts, Overview, SnapshotFacts

_WIDTH, _HEIGHT, _ROW = 900, 160, 26
_BUCKETS, _FILES = 200, 400
_KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")


def static(name: str) -> bytes:
    """A file that pages use: style, script or icon."""
    return (resources("lakecore.ui") / "static" / name).read_bytes()


def overview_page(overview: Overview) -> str:
    """The page: facts, snapshots over time, growth, the map of files, and what would expire."""
    shown = {
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
        "options": masked_options(overview.options),
    }
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", overview.table),
        tag("style", Html(static("ui.css").decode())),
    )
    body = tag(
        "main",
        tag("h1", overview.table),
        facts(shown, place="facts"),
        tag("h2", "Snapshots"),
        timeline(overview.snapshots),
        tag("h2", "Growth"),
        growth(overview.snapshots),
        tag("h2", "Files by bucket and level"),
        file_map(overview.buckets),
        tag("h2", "Expiry"),
        tag("p", _expiry(overview), id="expiry"),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def timeline(snapshots: Sequence[SnapshotFacts], table: str | None = None) -> Html:
    """A dot for each snapshot over time, with its tags and consumers.

    With the name of a table, each dot leads to the page of its snapshot.
    """
    if not snapshots:
        return _note("There is no snapshot yet.")
    first, last = snapshots[0].time_ms, snapshots[-1].time_ms
    span = max(last - first, 1)
    parts = [tag("line", x1=20, y1=45, x2=_WIDTH - 20, y2=45, class_="axis")]
    for each in snapshots:
        at = 20 + (_WIDTH - 40) * (each.time_ms - first) / span
        anchor = "start" if at < 100 else "end" if at > _WIDTH - 100 else "middle"
        x = f"{at:.1f}"
        says = tag("title", f"snapshot {each.id}, {each.kind}, {moment(each.time_ms)}")
        dot = tag("circle", says, cx=x, cy=45, r=5, class_=_kind(each.kind))
        where = None if table is None else address("t", table, "snapshots", each.id)
        parts.append(dot if where is None else tag("a", dot, href=where))
        for place, names, mark in ((25, each.tags, "tag"), (72, each.consumers, "next of")):
            if names:
                text = f"{mark} {', '.join(names)}"
                parts.append(tag("text", text, x=x, y=place, text_anchor=anchor))
    kinds = dict.fromkeys(each.kind for each in snapshots)
    legend = joined(*(part for kind in kinds for part in (_sign(_kind(kind)), f" {kind} ")))
    return joined(
        _svg("timeline", 90, "snapshots over time", parts),
        _note(f"{moment(first)} to {moment(last)}: ", legend),
    )


def growth(snapshots: Sequence[SnapshotFacts]) -> Html:
    """A line over the snapshots for each of live bytes, live files and stored rows, if known."""
    series = {
        "bytes": [each.bytes for each in snapshots],
        "files": [each.files for each in snapshots],
        "rows": [each.rows for each in snapshots],
    }
    lines: list[Html] = []
    legend: list[object] = []
    for name, values in series.items():
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        if not known:
            continue
        step = (_WIDTH - 40) / max(len(values) - 1, 1)
        most = max(value for _, value in known) or 1
        points = " ".join(
            f"{20 + step * place:.1f},{_HEIGHT - 15 - (_HEIGHT - 30) * value / most:.1f}"
            for place, value in known
        )
        lines.append(tag("polyline", points=points, class_=f"line {name}"))
        up_to = show_bytes(most) if name == "bytes" else f"{most:,}"
        legend += [_sign(name), f" {name}, up to {up_to}; "]
    if not lines:
        return _note("Nothing is known of the size of snapshots.")
    ends = f"snapshots {snapshots[0].id} to {snapshots[-1].id}"
    return joined(_svg("growth", _HEIGHT, "growth", lines), _note(*legend, ends))


def file_map(buckets: Sequence[BucketFiles]) -> Html:
    """A row for each bucket and level: a box for each file, as wide as it is large."""
    if not buckets:
        return _note("There is no file yet.")
    rows = [
        (bucket, level, [file for file in bucket.files if file.level == level])
        for bucket in buckets[:_BUCKETS]
        for level in sorted({file.level for file in bucket.files})
    ]
    most = max(sum(file.bytes for file in files) for _, _, files in rows) or 1
    parts: list[Html] = []
    for place, (bucket, level, files) in enumerate(rows):
        y = 5 + place * _ROW
        name = f"{bucket.partition or 'all'} / {bucket.bucket} / L{level}"
        parts.append(tag("text", name, x=5, y=y + 15))
        x = 240.0
        for file in files[:_FILES]:
            wide = max((_WIDTH - 260) * file.bytes / most, 2.0)
            parts.append(_box(file, x, y, wide))
            x += wide + 1
    more = len(buckets) - _BUCKETS
    return joined(
        _svg("files", _ROW * len(rows) + 10, "files", parts),
        _note(
            "blue: no other file may hold its keys; orange: keys may overlap; red edge: deletions"
        ),
        _note(f"The first {_BUCKETS} of {len(buckets):,} buckets.") if more > 0 else None,
    )


def _box(file: FileFacts, x: float, y: int, wide: float) -> Html:
    deletions = f", {file.deletions:,} deletions" if file.deletions else ""
    says = f"{file.name}: {file.rows:,} rows, {show_bytes(file.bytes)}{deletions}"
    kind = ("overlaps" if file.overlaps else "alone") + (" deletes" if file.deletions else "")
    place = {"x": f"{x:.1f}", "y": y, "width": f"{wide:.1f}", "height": _ROW - 6}
    return tag("rect", tag("title", says), class_=kind, **place)


def _svg(name: str, height: int, label: str, parts: Sequence[Html]) -> Html:
    box = {"viewBox": f"0 0 {_WIDTH} {height}", "role": "img", "aria-label": label}
    return tag("div", tag("svg", *parts, id=name, **box), class_="scroll", tabindex="0")


def _kind(kind: str) -> str:
    return kind.lower() if kind in _KINDS else "other"


def _sign(kind: str) -> Html:
    return tag("span", "●", class_=f"sign {kind}", aria_hidden="true")


def _note(*children: object) -> Html:
    return tag("p", *children, class_="note")


def _expiry(overview: Overview) -> str:
    if overview.expiry is None:
        return "What would expire cannot be said: metadata cannot be read."
    count = overview.expiry.snapshots_expired
    shown = ", ".join(f"{name}: {value}" for name, value in overview.expiry.files.shown())
    return f"Now {count:,} snapshots would expire. {shown}"
