"""A small SVG canvas: boxes, lines and text in the colours of the site, for light and dark pages.

A drawing has no script, names no font file and asks no server. It carries its own background, so
that it stays readable when a page is switched to the other palette.
"""

from __future__ import annotations

from html import escape

WIDTH = 640
_STYLE = """
text { font: 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933 }
.page { fill: #f7fafb } .edge { stroke: #cbd5db; fill: none }
.box { fill: #ffffff; stroke: #9fb3bb } .run { fill: #5fb3c4 } .old { fill: #c3d3d8 }
.win { fill: #e8913a } .lost { fill: none; stroke: #9aa8ae; stroke-dasharray: 4 3 }
.line { stroke: #6b7f88; stroke-width: 1.5; fill: none } .head { fill: #6b7f88 }
.strong { font-weight: 600 } .dim { fill: #52656e } .on { fill: #12323a }
.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 14px }
@media (prefers-color-scheme: dark) {
  text { fill: #e3ebee } .page { fill: #1c2629 } .edge { stroke: #3c4c52 }
  .box { fill: #253236; stroke: #56696f } .run { fill: #3c94a5 } .old { fill: #4a5b61 }
  .win { fill: #d87f2b } .lost { stroke: #7b8c92 } .line { stroke: #93a6ad }
  .head { fill: #93a6ad } .dim { fill: #a9bac0 } .on { fill: #ffffff }
}
"""


class Drawing:
    """Parts of an SVG picture of the common width, in the order in which they are drawn."""

    def __init__(self, height: float, about: str) -> None:
        size = f'viewBox="0 0 {WIDTH} {height:g}"'
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(about)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="8"/>',
        ]

    def text(self, x: float, y: float, says: str, kind: str = "", at: str = "start") -> None:
        """One line of text whose baseline is at `y`."""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        style = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{style}{anchor}>{escape(says)}</text>')

    def box(self, x: float, y: float, wide: float, high: float, kind: str = "box") -> None:
        """A box; its kind says how it is filled."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="4"/>'
        )

    def dot(self, x: float, y: float, kind: str = "run", radius: float = 6) -> None:
        """A filled circle."""
        self._parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str = "line") -> None:
        """A straight line."""
        self._parts.append(f'<path class="{kind}" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A horizontal or vertical line with a head."""
        self.line(x, y, to_x, to_y)
        across, down = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        self._parts.append(
            f'<path class="head" d="M{to_x:g} {to_y:g}l{-8 * across - 5 * down:g} '
            f'{-8 * down - 5 * across:g}l{10 * down:g} {10 * across:g}z"/>'
        )

    def svg(self) -> str:
        """The picture."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"
