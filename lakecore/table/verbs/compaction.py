"""`Table.compact`: selects buckets, compacts them in steps, and commits a snapshot for each step.

A step:

1. Read the latest snapshot, and afterwards the newest schema, which then knows the columns of
   every live file.
2. Plan (`compact_work.py`), and take whole buckets up to `max_bytes`, at least one.
3. Compact them concurrently (`compact_runner.py`) and commit.
4. If another commit has compacted or overwritten one of the files, start again from the new
   snapshot. Results for buckets that no other commit touched are kept. If the table was rolled
   back, or an option that decides how rows are stored or merged has changed, no result is kept.

Without `max_bytes`, there is one step, in which each bucket is compacted once. With `max_bytes`,
steps run until nothing is left to do. Only the commits keep the progress: after a crash, the next
call continues.

INVARIANT: the call ends, even if other processes keep writing. Each bucket that existed at the
start is compacted a limited number of times: once in a full compaction, otherwise at most two times
for each of its files. Without concurrent writes, this limit is never reached.

Concurrent writes are no conflict: their new files stay at level 0. A process that dies leaves
orphan files and an unchanged table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    Uncomputable,
)
from lakecore.model.compaction import CompactionResult
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.conflicts import check_files, check_levels, check_vectors
from lakecore.table.commits.base_snapshot import is_there, was_rolled_back
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import changes
from lakecore.table.commits.message_files import delete_files, delete_other_indexes
from lakecore.table.commits.row_range_checks import check_compacted
from lakecore.table.commits.schema_rules import same_rules
from lakecore.table.compactions.compact_parallel import Tally
from lakecore.table.compactions.compact_runner import run_here
from lakecore.table.compactions.compact_work import Work, WorkKind, left_to_plan, plan_work
from lakecore.table.compactions.drop_vectors import without_vectors
from lakecore.table.context import reload_context, require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.maintenance.expire_partitions import without_expired
from lakecore.table.reads.told import gated_verb
from lakecore.table.verbs.compact_choice import chosen_entries, entries_of_others
from lakecore.table.verbs.compact_order import sort_ordering
from lakecore.table.verbs.compaction_totals import result_of, sum_of
from lakecore.table.verbs.move_postponed import move_postponed
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import IndexEntry, ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_parallel import Progress
    from lakecore.table.compactions.compact_runner import Runner
    from lakecore.table.compactions.idle_picks import IdlePicks
    from lakecore.table.context import TableContext

PLANS_MAX = 20
"""How often a step is planned before it raises CommitConflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """The buckets to compact (None: all), and how; see `Table.compact`.

    `idle` counts how often a long-running job found nothing to do in each bucket.
    """

    full: bool = False
    partitions: Sequence[Mapping[str, object]] | None = None
    where: pl.Expr | str | None = None
    buckets: Sequence[int] | None = None
    max_bytes: int | None = None
    dry_run: bool = False
    order_strategy: str | None = None
    order_by: Sequence[str] | str | None = None
    idle: IdlePicks | None = None
    partition_idle_ms: int | None = None


Stepped: TypeAlias = "Callable[[CompactionResult], None]"
"""Is called after each committed step."""


@gated_verb
def compact_table(
    context: TableContext,
    request: CompactionRequest,
    progress: Progress | None = None,
    stepped: Stepped | None = None,
    run: Runner = run_here,
) -> CompactionResult:
    """Compact the selected buckets with the runner `run`; `progress` is called after each window.

    An error that `progress` raises ends the compaction: committed steps stay, and the files of the
    current step are removed. Raises CommitConflict if other commits invalidated every plan of a
    step. Raises Uncomputable for a bucket with a key that cannot be merged, after the other buckets
    are compacted and committed.
    """
    most: object = request.max_bytes
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise InvalidRequest("max_bytes is a whole number, at least 1", max_bytes=most)
    moved = move_postponed(
        context,
        lambda live: _selected(context, request, live),
        max_bytes=request.max_bytes,
        dry_run=request.dry_run,
        stepped=stepped,
    )
    call = _Call(context, request, Tally(progress), run)
    if request.dry_run:
        planned = call.planned()
        return sum_of(moved, planned, buckets=moved.buckets + planned.buckets)
    done = moved
    while True:
        step = call.step()
        done = sum_of(done, step, buckets=moved.buckets + len(call.changed))
        if step.snapshot_ids and stepped is not None:
            stepped(step)
        # A step may commit nothing because all of its buckets have failed.
        if request.max_bytes is None or not (step.snapshot_ids or call.has_failed_since()):
            break
    if call.failed:
        raise call.failure(buckets_compacted=done.buckets)
    return done


class _Call:
    """One call of `Table.compact`, step by step."""

    def __init__(
        self, context: TableContext, request: CompactionRequest, tally: Tally, run: Runner
    ) -> None:
        self._run = run
        self._context = context
        self._request = request
        self._tally = tally
        self._user = author(context).user
        self._turns: Counter[tuple[bytes, int]] | None = None
        self._snapshot: Snapshot | None = None
        self.changed: set[tuple[bytes, int]] = set()
        self.failed: dict[tuple[bytes, int], Uncomputable] = {}
        self._failed_count = 0

    def has_failed_since(self) -> bool:
        """Whether buckets have failed since the previous call of this method."""
        known, self._failed_count = self._failed_count, len(self.failed)
        return self._failed_count > known

    def failure(self, *, buckets_compacted: int) -> Uncomputable:
        """The error that names the first failed bucket and the number of failed buckets."""
        error = next(iter(self.failed.values()))
        counts = {"buckets_failed": len(self.failed), "buckets_compacted": buckets_compacted}
        return Uncomputable(error.message, **error.facts, **counts)

    def planned(self) -> CompactionResult:
        """The result of a dry run with the current files."""
        left = list(self._plan([]))
        whole = [*left]
        steps = 0
        while left:
            steps += 1
            left = left[len(self._portion(left)) :]
        files = [file for work in whole for file in work.files]
        return CompactionResult(
            buckets=len({(work.partition, work.bucket) for work in whole}),
            files_before=len(files),
            files_after=None if files else 0,
            bytes_before=sum(file.size_bytes for file in files),
            bytes_after=None if files else 0,
            rows_before=sum(file.row_count for file in files),
            rows_after=None if files else 0,
            steps=steps,
        )

    def step(self) -> CompactionResult:
        """Run the next step; the result has no snapshot if nothing was left to do."""
        messages: list[CommitMessage] = []
        for attempt in range(1, PLANS_MAX + 1):
            try:
                if not self._compact(messages):
                    continue
                if not messages:
                    return CompactionResult(attempts=attempt)
                if not same_rules(self._context, reload_context(self._context)):
                    continue
            except BaseException:
                delete_files(self._context, messages)
                raise
            snapshot_id = self._commit(messages)
            if snapshot_id is not None:
                self._took_turns(messages)
                return result_of(messages, snapshot_id, attempt)
        delete_files(self._context, messages)
        raise CommitConflict(
            "other commits replaced the files of every plan; compact when they are done",
            table=self._context.identifier,
            attempts=PLANS_MAX,
        )

    def _compact(self, messages: list[CommitMessage]) -> bool:
        """Plan and compact. Returns False if the table has changed, so a new plan is needed.

        `messages` are those of earlier plans; this method adds the new ones.
        """
        plan: Sequence[Work] = ()
        try:
            plan = self._plan(messages)
            self._tally.begin(plan)
            done: list[CommitMessage] = []
            try:
                self.failed |= self._run(self._context, self._portion(plan), self._tally, done)
            finally:
                uuid = None if self._snapshot is None else self._snapshot.uuid
                messages += [replace(message, base_snapshot_uuid=uuid) for message in done]
        except CorruptTable:
            if not self._moved_on(plan):
                raise
            return False
        return True

    def _plan(self, messages: list[CommitMessage]) -> Sequence[Work]:
        """The work that is left to do; removes invalid messages from `messages`."""
        before, rules = self._snapshot, self._context
        snapshot = self._snapshot = rules.history.latest_snapshot()
        require_table(rules)
        context = reload_context(rules)
        _require_compactable(context)
        # If the schema has not changed, keep the caches of immutable files.
        self._context = rules if context.schema == rules.schema else context
        request = self._request
        ordering = sort_ordering(self._context, request.order_strategy, request.order_by)
        if snapshot is None:
            delete_files(context, messages)
            messages.clear()
            return ()
        live = [
            entry
            for entry in self._context.history.live_entries(snapshot)
            if entry.bucket != POSTPONE_BUCKET
        ]
        base_stays = before is None or not was_rolled_back(
            context.history, (before.id, before.uuid), snapshot
        )
        fitting = [
            message
            for message in messages
            if base_stays
            and same_rules(rules, context)
            and _still_fits(context, message, live, context.history.index_entries(snapshot))
        ]
        delete_files(context, [message for message in messages if message not in fitting])
        messages[:] = fitting
        entries = _selected(self._context, request, live)
        if self._turns is None:
            once = ordering is not None or (request.full and bool(context.schema.primary_keys))
            found = Counter((entry.partition, entry.bucket) for entry in entries)
            self._turns = Counter(dict.fromkeys(found, 1)) if once else found + found
        waiting = [
            entry
            for entry in entries
            if self._turns[entry.partition, entry.bucket] > 0
            and (entry.partition, entry.bucket) not in self.failed
        ]
        clusters = ordering is not None
        left = left_to_plan(self._context, messages, waiting, clusters=clusters)
        kind = WorkKind(
            full=request.full,
            step_bytes=request.max_bytes,
            ordering=ordering,
            idle=request.idle,
        )
        others: Sequence[ManifestEntry] = ()
        if request.partitions is not None or request.where is not None:
            done = {message.partition for message in messages} | {key[0] for key in self.changed}
            others = entries_of_others(without_expired(context, live), entries, done)
        return plan_work(self._context, snapshot, left, kind, others)

    def _portion(self, plan: Sequence[Work]) -> Sequence[Work]:
        """The part of a plan for one step: whole buckets, from the first on."""
        if self._request.max_bytes is None:
            return plan
        size_bytes = 0
        for count, work in enumerate(plan):
            size_bytes += sum(file.size_bytes for file in work.files)
            if count and size_bytes > self._request.max_bytes:
                return plan[:count]
        return plan

    def _commit(self, messages: Sequence[CommitMessage]) -> int | None:
        """Commit the messages. Returns the snapshot id; None if another commit was first."""
        context = self._context
        ready: Sequence[CommitMessage] = ()
        try:
            ready = without_vectors(context, self._snapshot, messages)
            request = CommitRequest(messages=ready, user=self._user)
            done = commit_and_maintain(context, request)
        except (CommitUnknown, AlreadyExists):
            # The files are, or may be, part of the table.
            raise
        except (CommitConflict, CorruptTable):
            # Files that were read may have expired; if not, the next plan raises the error again.
            delete_other_indexes(context, messages, ready)
            return None
        except (LakecoreError, OSError):
            delete_files(context, ready or messages)
            raise
        return done.snapshot_id

    def _took_turns(self, messages: Sequence[CommitMessage]) -> None:
        buckets = [(message.partition, message.bucket) for message in messages]
        assert self._turns is not None
        self._turns.subtract(buckets)
        self.changed.update(buckets)

    def _moved_on(self, plan: Sequence[Work]) -> bool:
        """Whether another commit may have replaced a file of the plan."""
        history, base = self._context.history, self._snapshot
        latest = history.latest_snapshot()
        if base is None or latest is None:
            return latest is not base
        if not plan:
            # The missing file is metadata, perhaps of an expired snapshot.
            return not is_there(history, base, latest)
        there = {(e.partition, e.bucket, e.file.name) for e in history.live_entries(latest)}
        planned = {(work.partition, work.bucket, file.name) for work in plan for file in work.files}
        return not planned <= there


def _require_compactable(context: TableContext) -> None:
    """Raise Unsupported if compaction needs a feature that lakecore lacks; the error names it."""
    schema = context.schema
    # Check with `write-only` set: the rules that leave compaction to others do not apply here.
    replace(context.options, write_only=True).require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )


def _selected(
    context: TableContext, request: CompactionRequest, live: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The live files of the partitions and buckets to compact."""
    return chosen_entries(
        context,
        without_expired(context, live),
        partitions=request.partitions,
        where=request.where,
        buckets=request.buckets,
        idle_ms=request.partition_idle_ms,
    )


def _still_fits(
    context: TableContext,
    message: CommitMessage,
    live: Sequence[ManifestEntry],
    indexes: Sequence[IndexEntry],
) -> bool:
    """Whether the message can still be committed, given these live files and index files."""
    own = [e for e in live if (e.partition, e.bucket) == (message.partition, message.bucket)]
    _, change = changes(CommitRequest(messages=[message], user=""))
    try:
        check_files(own, change.delta, context.schema.key_fields)
        check_levels(own, [message])
        check_vectors(own, indexes, [message])
        check_compacted(context, own, change.delta)
    except CommitConflict:
        return False
    return True
