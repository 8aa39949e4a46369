"""`lakecore compact`: compact a table, with a bar that shows how far it has come.

The bar is for people in front of a terminal: on standard error, gone when all is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lakecore.cli.arguments import Options, Path, stated
from lakecore.session import open_table
from lakecore.table.compaction import CompactionRequest, compact_table
from lakecore.table.explain import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.compact_parallel import CompactionProgress
    from lakecore.table.context import TableContext


def compact(  # noqa: PLR0913  the options of a command
    path: Path,
    option: Options = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Everything to one run, whether it is time or not.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only partitions like this; repeatable."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Condition on partition keys, as SQL text.")
    ] = None,
    bucket: Annotated[list[int] | None, typer.Option(help="Only this bucket; repeatable.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
) -> None:
    """Merge files of each bucket of a primary-key table to fewer sorted runs."""
    specs: list[Mapping[str, object]] = [{**stated(spec.split(","))} for spec in partition or ()]
    request = CompactionRequest(
        full=full,
        partitions=specs or None,
        where=where,
        buckets=bucket or None,
        dry_run=dry_run,
    )
    context = open_table(path, options=stated(option)).context
    result = _with_bar(context, request)
    Console(highlight=False).print(Text(_told(result, dry_run=dry_run)), soft_wrap=True)


def _with_bar(context: TableContext, request: CompactionRequest) -> CompactionResult:
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("planning", total=None)

        def show(at: CompactionProgress) -> None:
            number = min(at.buckets_done + 1, at.buckets)
            text = f"bucket {number} of {at.buckets}, {at.rows_done:,} of {at.rows:,} rows"
            bar.update(task, description=text, completed=at.rows_done, total=at.rows)

        return compact_table(context, request, show)


def _told(result: CompactionResult, *, dry_run: bool) -> str:
    """The result as lines of text."""
    if not result.buckets:
        return "nothing to compact"
    before = f"{result.files_before} files, {show_bytes(result.bytes_before)}"
    lines = [f"buckets:   {result.buckets}", f"before:    {before}, {result.rows_before:,} rows"]
    if result.bytes_after is not None:
        after = f"{result.files_after} files, {show_bytes(result.bytes_after)}"
        lines += [
            f"after:     {after}, {result.rows_after:,} rows",
            f"upgraded:  {result.files_upgraded} files",
            f"snapshot:  {result.snapshot_id}",
        ]
    elif dry_run:
        lines.append("dry run:   nothing was written")
    return "\n".join(lines)
