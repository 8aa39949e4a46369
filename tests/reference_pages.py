"""Writes docs/options.md and docs/procedures.md from the declarations of options and procedures.

python -m tests.reference_pages options > docs/options.md
python -m tests.reference_pages procedures > docs/procedures.md
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from lakecore.options.kinds import IGNORE_KEY
from lakecore.options.other_keys import OTHER_KEYS, OTHER_PATTERNS
from lakecore.options.table_options import DECLARED, LIMITS, SUBJECTS
from lakecore.sql.procedures.registry import PROCEDURES, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.options.kinds import Option
    from lakecore.sql.procedures.procedure import Argument, Procedure


# --- options --------------------------------------------------------------------------------------


def describe_options() -> list[Option]:
    """Every option that lakecore knows, in the order of their keys."""
    known = (*DECLARED.values(), *OTHER_KEYS.values(), *OTHER_PATTERNS)
    return sorted(known, key=lambda each: each.key)


def options_page() -> str:
    """The page `docs/options.md`, which lists every option under the heading of its subject."""
    lines = [*_OPTIONS]
    subjects: dict[str, list[Option]] = {
        title: [part.metadata["option"] for part in fields(subject)]
        for title, subject in SUBJECTS.items()
    }
    subjects["Options of other engines"] = [*OTHER_KEYS.values(), *OTHER_PATTERNS]
    for title, options in subjects.items():
        lines += ["", f"## {title}", "", "| option | meaning |", "|---|---|"]
        for known in sorted(options, key=lambda each: each.key):
            cells = (cell.replace("|", "\\|") for cell in _option_cells(known))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _option_cells(known: Option) -> tuple[str, str]:
    """The option with its anchor, type and default; its meaning, and where it acts."""
    default = f", default `{_one_line(known.default_text)}`" if known.default_text else ""
    tables = "" if str(known.scope) == "all" else f" · {known.scope} tables"
    return (
        f'<a id="{known.key}"></a>`{known.key}`<br>{known.kind.name}{default}',
        f"{known.meaning}{_notes(known)}<br>decides: {known.effect}{tables} · {_here(known)}",
    )


def _one_line(text: str) -> str:
    """The text on one line, for a table cell: a line break would end the row."""
    return text.replace("\n", "\\n")


_OPTIONS = (
    "# Table options",
    "",
    "This page lists every table option: its key, type, default and meaning, and what lakecore",
    "does with it. Keys, defaults and meanings are Paimon's; `lakecore.*` and",
    "`commit.single-writer` are lakecore's own. In a key, `#` stands for a name, such as that of a",
    "column. An unknown key is an error that names similar keys. A link to an option is",
    "`options.html#` and its key.",
    "",
    "*decides* says what the option affects:",
    "",
    "- **read**: which rows a read returns.",
    "- **write**: how rows are written.",
    "- **maintain**: compaction, expiry, tags and streams.",
    "- **other**: work of other engines, and tuning that changes no rows.",
    "- **nothing**: no release of Paimon reads it any more. New tables cannot have it.",
    "",
    "The last word says what happens if the value is not the default:",
    "",
    "- **acts**: lakecore implements the option.",
    "- **no effect**: lakecore accepts and ignores the option, because tables of other engines",
    "  have it. The meaning ends with the reason.",
    "- **refused**: writing the table raises `Unsupported`, and so does reading it if the option",
    f"  *decides* **read**. An option that *may be ignored* can be listed in `{IGNORE_KEY}`.",
    "- **partly**: some values are refused.",
)


def _here(known: Option) -> str:
    if known.no_effect:
        return "no effect"
    if not known.supported:
        return "refused"
    return "partly" if any(limit.key == known.key for limit in LIMITS) else "acts"


def _notes(known: Option) -> str:
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


# --- procedures -----------------------------------------------------------------------------------

_PROCEDURES = """\
# Procedures

`CALL sys.NAME(...)` runs Paimon's procedures. Arguments are given by position, in the order of
these tables, or by name:

```sql
CALL sys.compact(`table` => 'shop.orders', where => 'dt > 5')
```

By position, `''` or NULL stands for an omitted argument. `CALL sys.help('tag')` lists the
procedures whose names contain a text, and `lakecore procedures` lists them in a terminal.

A table is named by `database.table`, or by a path with a slash, such as `./orders`.

A default in code is an option of the table.
"""
_REFUSED = """
## Procedures that lakecore does not have

| procedure | instead, or why |
|---|---|
"""


def procedures_page() -> str:
    """The text of `docs/procedures.md`."""
    parts = [
        _PROCEDURES,
        *(line for _, each in sorted(PROCEDURES.items()) for line in _section(each)),
    ]
    rows = (f"| `{name}` | {reason} |\n" for name, reason in sorted(UNSUPPORTED.items()))
    return "".join([*parts, _REFUSED, *rows])


def _section(procedure: Procedure) -> Iterator[str]:
    about = procedure.about[:1].upper() + procedure.about[1:]
    yield f"\n## {procedure.name}\n\n{about}.\n\n| argument | type | default |\n|---|---|---|\n"
    yield from map(_argument_row, procedure.arguments)
    yield f"\nResult: {', '.join(f'`{name}`' for name in procedure.columns)}.\n"


def _argument_row(argument: Argument) -> str:
    default = "required" if argument.required else argument.default
    return f"| `{argument.name}` | {argument.kind.value} | {default} |\n".replace("|  |", "| |")


if __name__ == "__main__":
    pages = {"options": options_page, "procedures": procedures_page}
    sys.stdout.write(pages[sys.argv[1]]())
