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
    lines = [
        "# Table options",
        "",
        "Keys, defaults and meanings are Paimon's; `lakecore.*` and `commit.single-writer` are",
        "lakecore's own. *Needed to* says what an option decides: **read** rows right, **write**",
        "rows right, **maintain** (compaction, expiry, tags, streams: used when that verb runs),",
        "or **other**: work of other engines, and tuning that moves no row. **Nothing**: Paimon",
        "reads it no more, and a new table cannot have it.",
        "",
        "*Not yet*: any other value than the default raises `Unsupported` when the table is read",
        f"or written. Where it says *may be ignored*, `{IGNORE_KEY}` leaves the option undone.",
        "",
        "| key | type | default | needed to | tables | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for known in describe_options():
        cells = (
            f"`{known.key}`",
            known.kind.name,
            f"`{known.default_text}`" if known.default_text else "",
            str(known.effect),
            str(known.scope),
            known.meaning + _page_notes(known),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _page_notes(known: Option) -> str:
    notes = ""
    if known.fallbacks:
        notes += " Older keys: " + ", ".join(f"`{old}`" for old in known.fallbacks) + "."
    if known.immutable:
        notes += " Fixed once there are snapshots."
    if any(limit.key == known.key for limit in LIMITS):
        notes += " *Some values not yet.*"
    if not known.supported:
        notes += " *Not yet; may be ignored.*" if known.ignorable else " *Not yet.*"
    return notes
