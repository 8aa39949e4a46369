"""The dedicated compaction job: compacts continuously, for tables with `write-only` writers.

1. Compact what is due (`compaction.py`), and report each commit.
2. If a commit was made, look again immediately, because more may be due. (A full compaction waits
   for the interval, because it would rewrite everything after each small write.)
3. Otherwise wait for the interval, and repeat.

A conflict, a store that does not answer and an unknown commit outcome do not end the job: it
reports the error, waits with exponential backoff, and starts again from the current table. Any
other error, such as a damaged file or a dropped table, ends the job.

Set `stop` to end the job: the current step is cancelled after its current window, and its files are
removed; a commit in progress is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakecore.errors import CommitConflict, CommitUnknown, InvalidRequest, Uncomputable
from lakecore.options import parse_known
from lakecore.table.compactions.change_options import check_vectors_change
from lakecore.table.compactions.compact_plan import IdlePicks
from lakecore.table.verbs.compaction import CompactionRequest, compact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.model.compaction import CompactionResult
    from lakecore.model.schema import TableSchema
    from lakecore.table.compactions.compact_work import CompactionProgress
    from lakecore.table.context import TableContext

BACK_OFF_SECONDS_MIN = 1.0
BACK_OFF_SECONDS_MAX = 60.0


class Stop(Protocol):
    """A stop signal, for example a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the job must end."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the signal. Returns whether it is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A step was committed."""

    step: CompactionResult
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """A round failed; the next one begins after the stated number of seconds."""

    error: Exception
    seconds: float


Report: TypeAlias = "Callable[[StepDone | Setback], None]"


def run_compaction(
    context: TableContext,
    request: CompactionRequest,
    *,
    interval_seconds: float,
    stop: Stop,
    report: Report,
    idle: IdlePicks | None = None,
) -> int:
    """Compact until `stop` is set. Returns the number of committed steps.

    `idle` counts how often earlier calls of the same job found nothing to do in each bucket.
    """
    steps = setbacks = 0
    idle = IdlePicks() if idle is None else idle
    request = replace(request, idle=idle)
    ambient = context.ambient
    while not stop.is_set():
        began_ms = ambient.now_ms()
        idle.begin_round()

        def stepped(step: CompactionResult) -> None:
            nonlocal steps, began_ms
            steps += 1
            now_ms = ambient.now_ms()
            report(StepDone(step=step, seconds=(now_ms - began_ms) / 1000))
            began_ms = now_ms

        def look(at: CompactionProgress) -> None:
            del at
            if stop.is_set():
                raise _StoppedError

        try:
            result = compact_table(context, request, look, stepped)
        except _StoppedError:
            break
        except (CommitConflict, CommitUnknown, Uncomputable, OSError) as error:
            seconds = min(BACK_OFF_SECONDS_MIN * 2 ** min(setbacks, 30), BACK_OFF_SECONDS_MAX)
            setbacks += 1
            report(Setback(error=error, seconds=seconds))
            stop.wait(seconds)
            continue
        setbacks = 0
        if request.full or not result.snapshot_ids:
            stop.wait(interval_seconds)
    return steps


class _StoppedError(Exception):
    """Raised to cancel the current step."""


# --- switch vectors ------------------------------------------------------------------------------
# The full compaction before a schema change that switches `deletion-vectors.enabled` on or off.
#
# - On, in a table with a key: reads will no longer merge the files of a bucket, so the compaction
#   must leave one run in each bucket.
# - Off: deleted rows would reappear, so the compaction removes the rows that vectors hide.
#
# Afterwards, the schema change checks these conditions (`compactions/change_options.py`). If
# another process has written since the compaction, the change is refused, and no row is lost.


def compact_for_switch(context: TableContext, changed: TableSchema) -> bool:
    """Compact the table in full, if the changed schema switches deletion vectors and requires it.

    Returns whether the table was compacted.
    """
    after = parse_known(changed.stated_options, table=context.identifier)
    keyed = bool(changed.primary_keys)
    try:
        check_vectors_change(context.history, context.options, after, keyed=keyed)
    except InvalidRequest:
        compact_table(context, CompactionRequest(full=True))
        return True
    return False
