"""Generates the page `docs/options.md` from the declarations of options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.options.known import DECLARED
from lakecore.options.option import IGNORE_KEY
from lakecore.options.other_keys import OTHER_KEYS, OTHER_PATTERNS
from lakecore.options.table_options import LIMITS

if TYPE_CHECKING:
    from lakecore.options.option import Option


def describe_options() -> list[Option]:
    """Every option that lakecore knows, in the order of their keys."""
    known = (*DECLARED.values(), *OTHER_KEYS.values(), *OTHER_PATTERNS)
    return sorted(known, key=lambda each: each.key)


def options_page() -> str:
    """The page `docs/options.md`, which lists every option."""
    lines = [*_INTRODUCTION]
    for known in describe_options():
        cells = (
            f"`{known.key}`",
            known.kind.name,
            f"`{_one_line(known.default_text)}`" if known.default_text else "",
            str(known.effect),
            str(known.scope),
            _here(known),
            known.meaning + _page_notes(known),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """The text on one line, for a table cell: a line break would end the row."""
    return text.replace("\n", "\\n")


_INTRODUCTION = (
    "# Table options",
    "",
    "This page lists every table option: its key, type, default and meaning, and what lakecore",
    "does with it. Keys, defaults and meanings are Paimon's; `lakecore.*` and",
    "`commit.single-writer` are lakecore's own. In a key, `#` stands for a name, such as that of a",
    "column. An unknown key is an error that names similar keys.",
    "",
    "The column *decides* says what the option affects:",
    "",
    "- **read**: which rows a read returns.",
    "- **write**: how rows are written.",
    "- **maintain**: compaction, expiry, tags and streams.",
    "- **other**: work of other engines, and tuning that changes no rows.",
    "- **nothing**: no release of Paimon reads it any more. New tables cannot have it.",
    "",
    "The column *in lakecore* says what happens if the value is not the default:",
    "",
    "- **acts**: lakecore implements the option.",
    "- **no effect**: lakecore accepts and ignores the option, because tables of other engines",
    "  have it. The meaning ends with the reason.",
    "- **refused**: writing the table raises `Unsupported`, and so does reading it if the option",
    f"  *decides* **read**. An option that *may be ignored* can be listed in `{IGNORE_KEY}`.",
    "- **partly**: some values are refused.",
    "",
    "| key | type | default | decides | tables | in lakecore | meaning |",
    "|---|---|---|---|---|---|---|",
)


def _here(known: Option) -> str:
    if known.no_effect:
        return "no effect"
    if not known.supported:
        return "refused"
    return "partly" if any(limit.key == known.key for limit in LIMITS) else "acts"


def _page_notes(known: Option) -> str:
    notes = ""
    if known.fallbacks:
        notes += " Older keys: " + ", ".join(f"`{old}`" for old in known.fallbacks) + "."
    if known.immutable:
        notes += " Cannot change after the first snapshot."
    if known.ignorable:
        notes += " *May be ignored.*"
    if known.no_effect:
        notes += f" *No effect here:* {known.no_effect}"
    return notes
