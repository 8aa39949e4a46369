"""The page `docs/options.md`, made from the declarations."""

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
            f"`{known.default_text}`" if known.default_text else "",
            str(known.effect),
            str(known.scope),
            _here(known),
            known.meaning + _page_notes(known),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


_INTRODUCTION = (
    "# Table options",
    "",
    "Keys, defaults and meanings are Paimon's; `lakecore.*` and `commit.single-writer` are",
    "lakecore's own. A key that nobody knows is an error that names the nearest ones.",
    "",
    "*Decides* says what an option is about: **read** rows right, **write** rows right,",
    "**maintain** (compaction, expiry, tags, streams), or **other**: work of other engines, and",
    "tuning that changes no row. **Nothing**: no release reads it any more; a new table cannot",
    "have it.",
    "",
    "*In lakecore* says what happens to a value other than the default:",
    "",
    "- **acts**: lakecore does what the option says.",
    "- **no effect**: lakecore accepts the option, because tables of other engines have it, and",
    "  does nothing about it. The meaning ends with the reason.",
    "- **refused**: reading (*read*) or writing (*read* and *write*) the table raises",
    f"  `Unsupported`. Where the meaning says *may be ignored*, `{IGNORE_KEY}` skips the option.",
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
        notes += " Fixed once there are snapshots."
    if known.ignorable:
        notes += " *May be ignored.*"
    if known.no_effect:
        notes += f" *No effect here:* {known.no_effect}"
    return notes
