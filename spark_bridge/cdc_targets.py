"""The target tables of a stream of changes, on the driver: opens, creates, changes, commits them.

INVARIANT: a table is created or changed before any task writes a row that needs the change, and
before any row of the batch is committed.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore import AlreadyExists, CommitConflict, InvalidRequest
from lakecore.distributed.cdc import needed_changes
from lakecore.distributed.descriptor import describe
from lakecore.distributed.tables import reload_context
from spark_bridge.job_commit import Publication, publish
from spark_bridge.job_files import remove_files_of_job, remove_leftovers
from spark_bridge.stream_commit import (
    author_of_batch,
    batch_and_last,
    compact_in_loop,
    loop_of,
)
from spark_bridge.task import WRITE_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore import CommitResult
    from lakecore.distributed.cdc import Catalog, SourceSchema, SourceTable, TargetRules
    from lakecore.distributed.committing import Author
    from lakecore.distributed.descriptor import TableDescriptor
    from lakecore.distributed.tables import TableContext
    from spark_bridge.task import TaskOutcome

__all__ = ["CdcTargets"]

_OPENERS = 16
_TRIES = 3
log = logging.getLogger("lakecore.cdc")


@dataclass(slots=True)
class _Open:
    """A target under its newest schema.

    `commits`: the number of commits since its last compaction; `looked`: the last batch that was
    committed to the table, or searched for in its snapshots.
    """

    context: TableContext
    commits: int = 0
    looked: int | None = None


class CdcTargets:
    """The targets that a query has used since it started."""

    def __init__(
        self,
        catalog: Catalog,
        rules: TargetRules,
        *,
        query: str | None,
        prefix: str | None,
        compact_every: int | None,
    ) -> None:
        self._catalog = catalog
        self._rules = rules
        self._query = query
        self._prefix = prefix
        self._every = compact_every
        self._open: dict[str, _Open] = {}

    def refresh(self) -> None:
        """Read the newest schemas and options, because others may have changed them."""
        with ThreadPoolExecutor(_OPENERS) as pool:
            for each, context in zip(
                self._open.values(),
                pool.map(lambda each: reload_context(each.context), self._open.values()),
                strict=True,
            ):
                each.context = context

    def descriptors(self) -> Mapping[str, TableDescriptor]:
        """The open targets in the form that tasks need, by name."""
        return {name: describe(each.context, WRITE_ONLY) for name, each in self._open.items()}

    def done(self, batch: int) -> frozenset[str]:
        """The targets that have this batch already.

        Raises InvalidRequest if one has a later batch: the checkpoint is older than the table.
        """
        return frozenset(name for name, each in self._open.items() if self._is_done(each, batch))

    def prepare(self, wanted: Iterable[tuple[SourceTable, SourceSchema]], batch: int) -> int:
        """Create and change the targets so that rows of these source tables fit.

        Returns the number of tables that were created or changed.
        """
        count = 0
        for source, schema in wanted:
            name = self._rules.target(source)
            assert name is not None, "a task wanted a table that is left out"
            if name not in self._open:
                there = self._catalog.table_exists(name)
                shape = self._rules.shape(source, schema)
                self._rules.create(self._catalog, source, name, shape, first=batch == 0)
                self._open[name] = _Open(self._catalog.get_table(name).context)
                count += not there
                if not there:
                    log.info("table created. table=%s source=%s", name, source)
            count += self._evolve(name, source, schema)
        return count

    def publish(
        self, outcomes: Mapping[str, Sequence[TaskOutcome]], batch: int, job: str
    ) -> Mapping[str, CommitResult]:
        """Commit the rows of each target. Returns the result of each.

        If a target cannot be committed, the files of the targets after it are removed.
        """
        results = {}
        waiting = dict(sorted(outcomes.items()))
        try:
            authors = {
                name: author_of_batch(self._open[name].context, self._query, batch, self._prefix)
                for name in waiting
            }
            for name, by in authors.items():
                results[name] = self._published(name, waiting.pop(name), by, batch, job)
        except BaseException:
            self.discard(waiting, job)
            raise
        return results

    def _published(
        self, name: str, own: Sequence[TaskOutcome], by: Author, batch: int, job: str
    ) -> CommitResult:
        """Commit the rows of one target."""
        target = self._open[name]
        result = publish(target.context, own, Publication(by=by, skip_empty=True))
        again = bool(result.facts.get("already_committed"))
        messages = [message for outcome in own for message in outcome.messages]
        buckets = [(message.partition, message.bucket) for message in messages]
        remove_leftovers(target.context, job, () if again else messages, buckets)
        target.commits += 1
        target.looked = batch
        return result

    def compact(self) -> None:
        """Compact the targets that are due for a compaction."""
        for name, target in self._open.items():
            every = loop_of(target.context, self._every)
            if every is not None and target.commits >= every:
                compact_in_loop(self._catalog.get_table(name))
                target.commits = 0

    def discard(self, outcomes: Mapping[str, Sequence[TaskOutcome]], job: str) -> None:
        """Remove the files of a job that is not committed."""
        for name, own in outcomes.items():
            messages = [message for outcome in own for message in outcome.messages]
            buckets = {(message.partition, message.bucket) for message in messages}
            remove_leftovers(self._open[name].context, job, (), buckets)

    def discard_job(self, job: str) -> None:
        """Remove all files of a job that failed, in all targets."""
        for target in self._open.values():
            remove_files_of_job(target.context, job)

    def _is_done(self, target: _Open, batch: int) -> bool:
        if target.looked is not None and batch > target.looked:
            return False
        target.looked = batch
        _, last = batch_and_last(target.context, self._query, batch, self._prefix)
        return last == batch

    def _evolve(self, name: str, source: SourceTable, given: SourceSchema) -> int:
        """Make the schema changes that rows need; others may change the table at the same time."""
        target = self._open[name]
        for attempt in range(_TRIES):
            schema = target.context.schema
            changes = needed_changes(self._rules, name, schema, source, given)
            if not changes:
                return 0
            try:
                self._catalog.alter_table(name, list(changes))
            except (AlreadyExists, CommitConflict, InvalidRequest):
                target.context = reload_context(target.context)
                if target.context.schema.id == schema.id or attempt == _TRIES - 1:
                    raise
                continue
            target.context = self._catalog.get_table(name).context
            log.info("schema changed. table=%s changes=%s", name, len(changes))
            return 1
        return 0
