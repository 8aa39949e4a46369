"""Pictures of texts: the bars of `bench/README.md`, the layers, and the demo in a terminal."""

from __future__ import annotations

import io
import re
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tests.pictures.drawing import WIDTH, Drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

# A row of bench/README.md by its first two cells, which of its figures is drawn, and two names.
BARS = (
    (
        "upsert of 10 000 rows into 2 M",
        "DuckLake",
        2,
        "upsert of 10 000 into 2 M rows",
        "PyIceberg 0.12.0",
    ),
    ("upsert of 10 000 rows into 2 M", "DuckLake", 1, "the same", "delta-rs 1.6.6"),
    ("upsert of 10 000 rows into 2 M", "DuckLake", 0, "the same", "DuckLake 1.5.5"),
    ("full compaction, 1 / 8 buckets;", "Java Paimon", 0, "full compaction", "Java Paimon 1.4.2"),
    ("merged read to memory", "pypaimon on paimon-rust", 0, "merged read", "pypaimon"),
    ("write, 1 / 8 buckets", "pypaimon on paimon-rust", 0, "write", "pypaimon"),
    ("write by Spark", "Paimon's connector", 0, "write by Spark, 10 M rows", "Paimon on Spark"),
    ("aggregate after 20", "the same", 2, "sum after 20 upserts into 2 M", "PyIceberg"),
    ("aggregate after 20", "the same", 1, "the same", "delta-rs"),
    ("scan of the table compacted", "Polars on", 0, "scan, compacted", "Polars, bare files"),
    (
        "TPC-H's 22 queries by SQL",
        "DuckDB on bare",
        0,
        "TPC-H 0.5, compacted",
        "DuckDB, bare files",
    ),
    (
        "TPC-H's 22 queries by SQL",
        "DuckDB on bare",
        1,
        "TPC-H 0.5, five runs",
        "DuckDB, bare files",
    ),
)
_RANGE = re.compile(r"(\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))?")


def times_as_fast() -> Iterator[tuple[str, str, float]]:
    """What was measured, with whom it is compared, and how many times as fast lakecore is.

    A range is its middle. A row in times of the time is turned round.
    """
    text = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for start, versus, place, name, other in BARS:
        found = next(row for row in rows if row[0].startswith(start) and row[1].startswith(versus))
        low, high = _RANGE.findall(found[2])[place]
        middle = (float(low) + float(high or low)) / 2
        yield name, other, middle if "times as fast" in found[2] else 1 / middle


def speed(_: Path) -> str:
    """The bars of the benchmarks: times as fast as another engine, on a logarithmic axis."""
    lines = list(times_as_fast())
    drawing = Drawing(118 + 38 * len(lines), "How many times as fast lakecore is as other engines.")
    drawing.text(20, 30, "lakecore, times as fast as …", "strong")
    left, one, step = 296, 368, 38  # pixels: the smallest bar, equal speed, a factor of two

    def x_of(times: float) -> float:
        return one + step * log2(times)

    bottom = 50 + 38 * len(lines)
    drawing.line(one, 42, one, bottom)
    drawing.text(one, bottom + 18, "equal", "dim", "middle")
    for number, (name, other, times) in enumerate(lines):
        y = 46 + 38 * number
        drawing.text(20, y + 14, name)
        drawing.text(20, y + 29, f"… {other}", "dim")
        start, end = sorted((one, x_of(times)))
        drawing.box(start, y + 4, max(end - start, 2), 22, "run" if times >= 1 else "win")
        shown = f"{times:.0f} ×" if times >= 9.5 else f"{times:.1f} ×"  # noqa: RUF001 - shown
        if times >= 1:
            drawing.text(end + 6, y + 20, shown, "strong")
        else:
            drawing.text(max(start - 6, left), y + 20, shown, "strong", "end")
    says = "2 cores, 24 GiB, Nov 2026; 6 M rows unless stated; orange: slower; log axis"
    drawing.text(20, bottom + 46, says, "dim")
    return drawing.svg()


def layers(_: Path) -> str:
    """The architecture: who calls, what lakecore does, and what is on storage."""
    drawing = Drawing(470, "Programs call lakecore, which reads and writes the files of a table.")
    _boxes(drawing, 20, ("Python", "SQL", "command line", "PySpark"))
    drawing.arrow(WIDTH / 2, 68, WIDTH / 2, 88)
    drawing.box(20, 92, WIDTH - 40, 226)
    drawing.text(36, 116, "lakecore", "strong")
    rows = (
        ("session, catalogs", "names → tables: files, JDBC, Hive, REST"),
        ("table", "write, commit, read, compact, expire"),
        ("lsm, merge, plan", "decides: pure functions, no storage"),
        ("format", "Paimon's metadata and indexes ↔ bytes"),
        ("io", "the only code that touches storage"),
    )
    for number, (name, says) in enumerate(rows):
        y = 126 + 37 * number
        drawing.box(36, y, WIDTH - 72, 32, "run" if number < len(rows) - 1 else "win")
        drawing.text(48, y + 21, name, "on strong")
        drawing.text(206, y + 21, says, "on")
    drawing.arrow(WIDTH / 2, 320, WIDTH / 2, 342)
    drawing.box(20, 346, WIDTH - 40, 58)
    drawing.text(36, 370, "Files of the table: Parquet, ORC or Avro", "strong")
    drawing.text(36, 392, "on a local disk, S3, Google Cloud, Azure, HDFS", "dim")
    drawing.arrow(WIDTH / 2, 428, WIDTH / 2, 408)
    says = "Flink, Spark and Java Paimon read and write the same files"
    drawing.text(WIDTH / 2, 450, says, "", "middle")
    return drawing.svg()


def _boxes(drawing: Drawing, y: float, names: tuple[str, ...]) -> None:
    wide = (WIDTH - 40 - 12 * (len(names) - 1)) / len(names)
    for number, name in enumerate(names):
        x = 20 + number * (wide + 12)
        drawing.box(x, y, wide, 44)
        drawing.text(x + wide / 2, y + 28, name, "strong", "middle")


# --- terminal ------------------------------------------------------------------------------------

_CHAPTERS = ("Ask in SQL, ask in Polars", "Travel back")
_SECONDS = re.compile(r"\x1b\[[0-9;]*m  \d+\.\d s\x1b\[[0-9;]*m|  \d+\.\d s\b")
_FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}"
 role="img"><title>lakecore demo in a terminal</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
 line-height: {line_height}px; white-space: pre }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#1c2629"/>
<g transform="translate(12 8) scale(0.975)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def terminal(printed: str) -> str:
    """The chosen chapters of what `lakecore demo` printed in colour, as a picture."""
    lines = Text.from_ansi(_SECONDS.sub("", printed)).split("\n", allow_blank=True)
    shown: list[Text] = []
    wanted = False
    for line in lines:
        if found := re.match(r"\d+  (.*?) ─", line.plain):
            wanted = found[1] in _CHAPTERS
        if line.plain.startswith(" ✓ Checked"):
            wanted = False
        if wanted:
            line.rstrip()
            shown.append(line)
    console = Console(
        record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(*shown, sep="\n", no_wrap=True, crop=True)
    return console.export_svg(code_format=_FRAME, unique_id="demo", font_aspect_ratio=0.61)
