"""ARCHITECTURE.md lists every option whose string can name a place, or something that runs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.reference_pages import describe_options

ROOT = Path(__file__).parents[2]

# The kinds of options whose values are not free strings.
CLOSED = re.compile(r"true or false|integer|size|duration|number|statistics mode|one of .*")

# Options that act, and name columns, times or characters: neither a place nor something that runs.
HARMLESS = {
    "columns": """blob-descriptor-field blob-external-storage-field blob-field bucket-key
        changelog-producer.row-deduplicate-ignore-fields clustering.columns fields.#.nested-key
        fields.#.nested-sequence-field fields.#.sequence-group fields.#.ts-field
        file-index.#.columns partial-update.remove-record-on-sequence-group partition primary-key
        record-level.time-field rowkind.field sequence.field""",
    "times": """incremental-between-timestamp partition.timestamp-formatter
        partition.timestamp-pattern scan.timestamp""",
    "characters and words": """csv.escape-character csv.field-delimiter csv.line-delimiter
        csv.null-literal csv.quote-character fields.#.list-agg-delimiter json.line-delimiter
        text.line-delimiter fields.#.nested-key-null-strategy
        metadata.iceberg.table-properties.#""",
    "keys of options": "lakecore.ignore-options",
}
# Words by which an option that lakecore does not read is known to name a place, or a program.
PLACE = re.compile(
    r"path|dir$|ur[il]$|location|external|branch|class|callback|listener|query|handler|kafka|^log\.|"
    r"schema\.#"
)


def listed() -> tuple[set[str], set[str]]:
    """The options of the table of ARCHITECTURE.md, and those of the paragraph below it."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    chapter = page.partition("### Stored strings and options")[2].partition("\n### ")[0]
    _, _, options = chapter.partition("| option |")
    table, _, others = options.partition("These options name")
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`([^`]+)`", " ".join(rows))), set(re.findall(r"`([^`]+)`", others))


def test_every_free_string_that_acts_is_listed_as_a_place_or_is_known_as_harmless() -> None:
    free = {each.key: each for each in describe_options() if not CLOSED.fullmatch(each.kind.name)}
    acting = {key for key, each in free.items() if each.supported and not each.no_effect}
    harmless = {key for keys in HARMLESS.values() for key in keys.split()}
    places, _ = listed()

    assert not places & harmless
    assert places | harmless == acting | {"path"}


def test_options_that_lakecore_does_not_read_are_listed_if_they_name_a_place() -> None:
    inert = {
        each.key
        for each in describe_options()
        if not CLOSED.fullmatch(each.kind.name) and (each.no_effect or not each.supported)
    }
    places, others = listed()

    assert others <= inert
    assert {key for key in inert if PLACE.search(key)} <= others | places
