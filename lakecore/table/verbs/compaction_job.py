"""A compaction that goes on and on, beside `write-only` writers: the dedicated job.

1. Compact what asks for it (`compaction.py`), and tell of each commit.
2. If something was done, look again at once: one unit may ask for another. (A full compaction
   would rewrite everything for each little write: it waits for the interval.)
3. If nothing was, wait for the interval, and begin again.

Others who were first every time, a store that does not answer and a commit whose outcome is unknown
pass: the job says so, waits, twice as long each time, and begins again from the table as it is
then. Whatever else goes wrong, a damaged file or a table that is gone, ends it.

Who wants it to end sets `stop`: the step under way is given up after the window at hand, and what
it wrote is removed; a commit under way is finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakecore.errors import CommitConflict, CommitUnknown, Uncomputable
from lakecore.table.verbs.compaction import compact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.compactions.compact_parallel import CompactionProgress
    from lakecore.table.context import TableContext
    from lakecore.table.verbs.compaction import CompactionRequest

BACK_OFF_SECONDS_MIN = 1.0
BACK_OFF_SECONDS_MAX = 60.0


class Stop(Protocol):
    """Whether to end; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether to end now."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds, or until it is time to end; whether it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A step was committed."""

    step: CompactionResult
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """A round came to nothing; the next one begins in so many seconds."""

    error: Exception
    seconds: float


Told: TypeAlias = "Callable[[StepDone | Setback], None]"


def run_compaction(
    context: TableContext,
    request: CompactionRequest,
    *,
    interval_seconds: float,
    stop: Stop,
    told: Told,
) -> int:
    """Compact until `stop` is set; the number of steps that were committed."""
    steps = setbacks = 0
    ambient = context.ambient
    while not stop.is_set():
        began_ms = ambient.now_ms()

        def stepped(step: CompactionResult) -> None:
            nonlocal steps, began_ms
            steps += 1
            now_ms = ambient.now_ms()
            told(StepDone(step=step, seconds=(now_ms - began_ms) / 1000))
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
            told(Setback(error=error, seconds=seconds))
            stop.wait(seconds)
            continue
        setbacks = 0
        if request.full or not result.snapshot_ids:
            stop.wait(interval_seconds)
    return steps


class _StoppedError(Exception):
    """The step under way is given up."""
