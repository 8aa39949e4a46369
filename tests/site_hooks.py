"""What MkDocs runs while it builds the site (`hooks` in mkdocs.yml).

1. `on_files` adds the pages that live outside `docs/`: changelog, benchmarks, architecture.
2. `on_page_markdown` keeps decision records out of the search.
3. `on_page_content` gives each table cell the heading of its column: phones stack the cells.
4. `on_post_build` makes pages the first results of the words that newcomers type.
"""

from __future__ import annotations

import json
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
WORDS = {  # what a newcomer types: the first result is this page or section
    "api.html": ["api reference"],
    "cdc-messages.html": ["kafka"],
    "cdc-mysql.html": ["mysql", "mariadb"],
    "cdc-postgres.html": ["postgres"],
    "cdc-service.html#what-to-watch": ["lag", "monitor mirror"],
    "cdc.html": ["cdc", "mirror", "replicate"],
    "changelog.html": ["release notes"],
    "changing.html": ["delete", "update", "merge"],
    "choose.html": ["partition", "primary key"],
    "clean-up.html": ["orphan"],
    "clustering.html": ["z-order"],
    "coming-from.html": ["delta", "flink"],
    "compacting.html": ["optimize", "small files", "vacuum"],
    "copy-into.html": ["copy into", "export"],
    "install.html": ["docker", "pip", "windows"],
    "loaders.html": ["dbt", "dlt"],
    "reading.html": ["pandas", "polars", "select"],
    "recipes.html#load-a-csv-file-and-keep-it-current": ["csv", "json", "load", "parquet"],
    "recipes.html#delete-a-person-for-good-gdpr": [
        "erase",
        "forgotten",
        "gdpr",
        "permanently",
        "personal data",
        "privacy",
    ],
    "quick-start.html": ["getting started", "tutorial"],
    "recipes.html#what-changed-since-yesterday": ["compare snapshots", "diff", "yesterday"],
    "recipes.html#share-a-table-with-flink-trino-and-spark": ["share", "trino"],
    "recipes.html#back-up-and-restore": ["back up", "backup", "disaster recovery", "restore"],
    "recipes.html#move-from-delta-iceberg-or-plain-parquet": ["migrate"],
    "recipes.html#slow-reads-and-performance": ["performance", "slow", "speed"],
    "recipes.html#monitor-tables": ["alert", "grafana", "logging", "monitor", "observability"],
    "recipes.html#schedule-maintenance": ["cron", "schedule"],
    "recipes.html#upgrade": ["upgrade"],
    "record-expiry.html": ["ttl"],
    "retention.html": ["expire", "expired", "rollback", "undo"],
    "schema-changes.html": ["add column", "alter", "schema change"],
    "security.html": ["security", "untrusted"],
    "spark.html": ["spark"],
    "sql-read.html#in-your-own-duckdb-connection": ["duckdb"],
    "sql.html": ["sql"],
    "storage.html": ["credentials", "minio", "s3"],
    "testing.html": ["pytest", "testing"],
    "troubleshooting.html": ["conflict", "error"],
    "troubleshooting.html#rows-appear-twice": ["duplicate"],
    "tuning.html": ["memory"],
    "ui.html": ["dashboard", "metrics", "prometheus"],
    "versions.html": ["breaking changes", "compatibility"],
    "writing.html": ["append", "insert", "upsert"],
}
LAST = {"changelog.md", "benchmarks.md", "architecture.md", "api-testing.md"}
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
    """Leave decision records out of the search, and the pages of `LAST` at its end."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in LAST:
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


def on_post_build(*, config: MkDocsConfig) -> None:
    """Give pages and sections the words of newcomers as tags, which the search ranks above all."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    entries = {entry["location"]: entry for entry in index["docs"]}
    for location, words in WORDS.items():
        entries[location]["tags"] = words
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")
