"""`lakecore analyze`: compute the statistics of a table, store them, and print them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from lakecore.cli.arguments import names
from lakecore.cli.printing import write_record
from lakecore.cli.target import table_of

if TYPE_CHECKING:
    from lakecore.cli.arguments import Format


def analyze(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    columns: str | None,
    only_rows: bool,  # noqa: FBT001 - called by name of the command
    form: Format,
) -> None:
    """Analyze some columns, all columns, or no column (`only_rows`)."""
    chosen = [] if only_rows else names(columns)
    result = table_of(name, warehouse, option).analyze(chosen)
    write_record(asdict(result), form, str(result))
