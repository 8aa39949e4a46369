"""The page of the documentation about all procedures, made from their declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.procedures.registry import PROCEDURES, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.sql.procedures.procedure import Argument, Procedure

_HEAD = """\
# Procedures

`CALL sys.NAME(...)` runs Paimon's procedures. Arguments are given by position, in the order of
these tables, or by name:

```sql
CALL sys.compact(`table` => 'shop.orders', where => 'dt > 5')
```

By position, `''` or NULL stands for an omitted argument. `CALL sys.help('tag')` lists the
procedures whose names contain a text, and `lakecore procedures` lists them in a terminal.

A default in code is an option of the table.
"""
_REFUSED = """
## Procedures that lakecore does not have

| procedure | instead, or why |
|---|---|
"""


def procedures_page() -> str:
    """The text of `docs/procedures.md`."""
    parts = [_HEAD, *(line for _, each in sorted(PROCEDURES.items()) for line in _section(each))]
    rows = (f"| `{name}` | {reason} |\n" for name, reason in sorted(UNSUPPORTED.items()))
    return "".join([*parts, _REFUSED, *rows])


def _section(procedure: Procedure) -> Iterator[str]:
    about = procedure.about[:1].upper() + procedure.about[1:]
    yield f"\n## {procedure.name}\n\n{about}.\n\n| argument | type | default |\n|---|---|---|\n"
    yield from map(_row, procedure.arguments)
    yield f"\nResult: {', '.join(f'`{name}`' for name in procedure.columns)}.\n"


def _row(argument: Argument) -> str:
    default = "required" if argument.required else argument.default
    return f"| `{argument.name}` | {argument.kind.value} | {default} |\n".replace("|  |", "| |")
