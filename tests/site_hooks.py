"""What MkDocs runs while it builds the site (`hooks` in mkdocs.yml).

1. `on_files` adds the pages that live outside `docs/`: changelog, benchmarks, architecture.
2. `on_page_markdown` keeps decision records out of the search.
3. `on_page_content` gives each table cell the heading of its column: phones stack the cells.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "bench/README.md",
    "architecture.md": "ARCHITECTURE.md",
}
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>\s*(?=<td).*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td(?=[ >])")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that live outside `docs/`, with links as seen from there."""
    from mkdocs.structure.files import File

    for name, source in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=from_docs(text)))
    return files


def from_docs(text: str) -> str:
    """The text with its links to `docs/` relative to that directory."""
    return re.sub(r"\]\((?:\.\./)?docs/", "](", text)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - what MkDocs passes
    """Leave decision records out of the search, and the changelog at its end."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in {"changelog.md", "benchmarks.md", "architecture.md"}:
        page.meta["search"] = {"boost": 0.2}
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - what MkDocs passes
    """Give each cell of a table the heading of its column, as `data-label`."""
    return _TABLE.sub(lambda found: labelled(found[0]), html)


def labelled(table: str) -> str:
    """The table, with the heading of the column in each cell."""
    names = [re.sub(r"<[^>]*>", "", name).strip() for name in _HEADING.findall(table)]

    def row(found: re.Match[str]) -> str:
        left = iter(names)
        return _CELL.sub(lambda _: f'<td data-label="{next(left, "")}"', found[0])

    return _ROW.sub(row, table).replace("<table>", f'<table data-columns="{len(names)}">', 1)
