"""What compacts the buckets of a step: threads of this process, or another engine.

A `Runner` compacts planned work and appends the message of each item, also if another item fails.
It returns the buckets whose rows cannot be merged, with the error that names the key; any other
error ends the step. Nothing is visible before the caller commits the messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import Uncomputable
from lakecore.io.ambient import forked
from lakecore.table.compactions.compact_parallel import compact_buckets
from lakecore.table.compactions.compact_work import do_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.table.compactions.compact_parallel import RowsDone, Tally
    from lakecore.table.compactions.compact_work import Work
    from lakecore.table.context import TableContext

Failures: TypeAlias = "dict[tuple[bytes, int], Uncomputable]"
"""The error of each bucket that cannot be compacted, by partition and bucket number."""
Runner: TypeAlias = "Callable[[TableContext, Sequence[Work], Tally, list[CommitMessage]], Failures]"


def run_here(
    context: TableContext, works: Sequence[Work], tally: Tally, messages: list[CommitMessage]
) -> Failures:
    """Compact in threads of this process, under the memory budget of the table."""
    failed: Failures = {}
    # Seeded here, so that file names do not depend on the order of threads.
    own = {id(work): forked(context.ambient) for work in works}

    def compact(work: Work, rows_done: RowsDone) -> CommitMessage | None:
        try:
            return do_work(replace(context, ambient=own[id(work)]), work, rows_done)
        except Uncomputable as error:
            failed[work.partition, work.bucket] = error
            return None

    compact_buckets(works, compact, context.budget, tally, messages)
    return failed
