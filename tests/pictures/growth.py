"""Growth: how the CPU time of verbs follows the size of a table, from `bench/growth.json`."""

from __future__ import annotations

import json
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING

from tests.pictures.drawing import WIDTH, Drawing
from tests.pictures.figures import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LEFT, _RIGHT, _HIGH, _LABEL = 64, 420, 132, 17  # pixels: ends of the axis, a panel, a label


def growth(_: Path) -> str:
    """A panel for each way in which a table grows; both axes are logarithmic."""
    figures = json.loads((ROOT / "bench" / "growth.json").read_text(encoding="utf-8"))
    panels: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, took in figures.items():
        what, _, verb = name.partition(": ")
        panels.setdefault(what, {})[verb] = took
    drawing = Drawing(70 + len(panels) * (_HIGH + 44), "How CPU time grows with a table.")
    drawing.text(20, 28, "CPU time of a verb, as a table grows", "strong")
    drawing.text(WIDTH - 20, 28, "dashed: as fast as the table", "dim", "end")
    for number, (what, verbs) in enumerate(panels.items()):
        _panel(drawing, 48 + number * (_HIGH + 44), what, verbs)
    says = "2 cores, Dec 2026; each size in a new process; both axes are logarithmic"
    drawing.text(20, 58 + len(panels) * (_HIGH + 44), says, "dim")
    return drawing.svg()


def _panel(
    drawing: Drawing, top: float, what: str, verbs: Mapping[str, Mapping[str, float]]
) -> None:
    sizes = sorted({int(size) for took in verbs.values() for size in took})
    wide, bottom = log2(sizes[-1] / sizes[0]), top + _HIGH

    def at(size: int, times: float) -> tuple[float, float]:
        share = log2(size / sizes[0]) / wide
        high = min(max(log2(times) / wide, -0.1), 1.1)
        return _LEFT + share * (_RIGHT - _LEFT), bottom - 14 - high * (_HIGH - 40)

    drawing.line(*at(sizes[0], 1), *at(sizes[-1], 1), "edge")
    drawing.line(*at(sizes[0], 1), *at(sizes[-1], sizes[-1] / sizes[0]), "lost")
    ends = []
    for verb, took in verbs.items():
        known = sorted((int(size), seconds) for size, seconds in took.items())
        points = [at(size, seconds / known[0][1]) for size, seconds in known]
        for (x, y), (to_x, to_y) in pairwise(points):
            drawing.line(x, y, to_x, to_y)
        drawing.dot(*points[-1], "run", 4)
        ms = 1000 * known[-1][1]
        ends.append((points[-1][1], verb, f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.1f} ms"))
    y = top - 4.0
    for end, verb, shown in sorted(ends):
        y = max(end + 5, y + _LABEL)
        drawing.text(_RIGHT + 12, y, f"{verb}, {shown}", "dim")
    drawing.text(_LEFT, bottom + 8, f"{sizes[0]:,}", "dim")
    drawing.text(_RIGHT, bottom + 8, f"{sizes[-1]:,} {what}", "dim", "end")
    drawing.text(_LEFT - 8, at(sizes[0], 1)[1] + 5, "1", "dim", "end")
    most = sizes[-1] // sizes[0]
    drawing.text(_LEFT - 8, at(sizes[0], most)[1] + 5, f"{most} ×", "dim", "end")  # noqa: RUF001 - shown
