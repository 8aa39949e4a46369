"""How often a commit is tried, and how long it waits between two attempts.

`commit.max-retries`, `commit.timeout`, `commit.min-retry-wait`, `commit.max-retry-wait`
(https://paimon.apache.org/docs/master/maintenance/configurations/).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, CommitConflict
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.ambient import Ambient
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext

log = logging.getLogger("lakecore.commit")
_DOUBLINGS_MAX = 30


def attempts(options: TableOptions, ambient: Ambient) -> Iterator[int]:
    """The number of each attempt, from 0 up to the limit; waits between the attempts."""
    deadline = None
    if options.commit_timeout_ms is not None:
        deadline = ambient.now_ms() + options.commit_timeout_ms
    for attempt in range(options.commit_max_retries + 1):
        began_ms = ambient.now_ms()
        yield attempt
        now_ms = ambient.now_ms()
        if deadline is not None and now_ms >= deadline:
            return
        first_ms = max(options.commit_min_retry_wait_ms, now_ms - began_ms)
        wait_ms = min(first_ms << min(attempt, _DOUBLINGS_MAX), options.commit_max_retry_wait_ms)
        # Add jitter: writers that lost the same race must not retry at the same time.
        ambient.sleep(wait_ms * (0.5 + ambient.random()) / 1000)


def log_lost_compaction(context: TableContext, error: Exception) -> None:
    """Log that a compaction was not committed: at level DEBUG if another commit was first."""
    level = logging.DEBUG if isinstance(error, CommitConflict | AlreadyExists) else logging.WARNING
    log.log(
        level,
        "rows are committed, their compaction is left to a later one: table=%s reason=%s",
        context.identifier,
        told_by(error, context),
    )
