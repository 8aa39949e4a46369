"""`Table.compact`: selects buckets, compacts them in steps, and commits a snapshot for each step.

A step:

1. Read the latest snapshot, and afterwards the newest schema, which then knows the columns of
   every live file.
2. Plan (`compact_work.py`), and take whole buckets up to `max_bytes`, at least one.
3. Compact them concurrently (`compactions/compact_work.py`) and commit.
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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Unsupported,
)
from lakecore.io.progress import WorkBar
from lakecore.merge.curves import Ordering
from lakecore.model.compaction import CompactionResult
from lakecore.model.files import CommitMessage
from lakecore.model.types import Atomic
from lakecore.options import POSTPONE_BUCKET, OrderStrategy
from lakecore.plan.conflicts import check_files, check_levels, check_vectors
from lakecore.plan.splits import compaction_count
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import (
    changes,
    delete_files,
    delete_other_indexes,
    is_there,
    was_rolled_back,
)
from lakecore.table.commits.commit_checks import check_compacted, same_rules
from lakecore.table.compactions.compact_work import (
    CompactionProgress,
    Progress,
    Runner,
    Tally,
    Work,
    WorkKind,
    left_to_plan,
    plan_work,
    run_here,
    without_vectors,
)
from lakecore.table.context import (
    TableContext,
    newest_schema_id,
    reload_context,
    require_table,
    with_options,
)
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.maintenance.expire_partitions import without_expired
from lakecore.table.reads.stored_files import in_order_of_writing, postponed_rows
from lakecore.table.reads.told import gated_verb
from lakecore.table.verbs.compact_choice import chosen_entries, entries_of_others
from lakecore.table.writes.batch_write import author
from lakecore.table.writes.cross_partition import RealBuckets
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import read_start

if TYPE_CHECKING:
    import polars as pl

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import IndexEntry, ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_plan import IdlePicks


# --- compact order -------------------------------------------------------------------------------
# Checks the `order_strategy` and `order_by` of a compaction, and converts them to a sort order.

_NONE = "none"


def sort_ordering(
    context: TableContext, strategy: object, columns: Sequence[str] | str | None
) -> Ordering | None:
    """The order in which a compaction sorts rows; None if it does not sort.

    Raises InvalidRequest for an unknown strategy or column, and for a table with incremental
    clustering or with buckets; Unsupported for a table with a primary key or data evolution.
    """
    schema, options = context.schema, context.options
    names = _names(columns)
    if strategy is None or strategy == _NONE:
        if names:
            raise InvalidRequest(
                "order_by needs an order_strategy", order_by=names, known=[*OrderStrategy]
            )
        return None
    if not isinstance(strategy, str) or strategy.lower() not in [*OrderStrategy]:
        raise InvalidRequest(
            "unknown order_strategy", order_strategy=strategy, known=[*OrderStrategy]
        )
    facts = {"table": context.identifier}
    _require_sortable(context)
    chosen = OrderStrategy(strategy.lower())
    if not names:
        raise InvalidRequest("order_by needs at least one column", order_strategy=chosen, **facts)
    if chosen is OrderStrategy.HILBERT and len(names) == 1:
        raise InvalidRequest("a Hilbert order needs at least two columns", order_by=names, **facts)
    for name in names:
        if name in schema.partition_keys:
            raise InvalidRequest(
                "order_by names a partition key, which is equal in all rows of a partition",
                column=name,
                **facts,
            )
        field = schema.field(name)
        if not isinstance(field.type, Atomic):
            raise InvalidRequest(
                "rows cannot be sorted by a nested column", column=name, type=field.type, **facts
            )
    return Ordering(
        strategy=chosen, columns=names, var_bytes=options.zorder_var_length_contribution
    )


def _require_sortable(context: TableContext) -> None:
    """Raise an error if the rows of the table cannot be sorted."""
    options = context.options
    facts = {"table": context.identifier}
    if context.schema.primary_keys:
        raise Unsupported(
            "sorting the rows of a table with a primary key is not supported", **facts
        )
    if options.data_evolution_enabled:
        # As in Paimon. Files with columns of the same rows must have the rows in the same order.
        raise Unsupported("the rows of a table with data evolution are not sorted", **facts)
    if options.bucket != -1:
        raise InvalidRequest("only tables with bucket=-1 can be sorted", **facts)
    if options.clustering_incremental:
        raise InvalidRequest(
            "the table clusters incrementally: compact it without order_strategy, or set "
            "clustering.incremental=false",
            **facts,
        )


def _names(columns: object) -> tuple[str, ...]:
    if columns is None:
        return ()
    parts = columns.split(",") if isinstance(columns, str) else columns
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        raise InvalidRequest("order_by is a list of columns", order_by=columns)
    names = [part.strip() for part in parts]
    wrong = [name for name in names if not name or names.count(name) > 1]
    if wrong:
        raise InvalidRequest("order_by names a column twice, or none", order_by=columns)
    return tuple(names)


# --- compaction totals ---------------------------------------------------------------------------
# The result of a compaction, computed from its messages and summed over its commits.


def result_of(
    messages: Sequence[CommitMessage], snapshot_id: int, attempts: int
) -> CompactionResult:
    """The result of one commit."""
    before = [file for message in messages for file in message.compact_before]
    after = [file for message in messages for file in message.compact_after]
    return replace(
        _sizes(before, after),
        snapshot_ids=(snapshot_id,),
        buckets=len({(message.partition, message.bucket) for message in messages}),
        files_upgraded=len({file.name for file in before} & {file.name for file in after}),
        steps=1,
        attempts=attempts,
    )


def _sizes(before: Sequence[DataFile], after: Sequence[DataFile] | None) -> CompactionResult:
    """A result with the sizes of the files; `after` is None if nothing was written."""
    return CompactionResult(
        files_before=len(before),
        files_after=None if after is None else len(after),
        bytes_before=sum(file.size_bytes for file in before),
        bytes_after=None if after is None else sum(file.size_bytes for file in after),
        rows_before=sum(file.row_count for file in before),
        rows_after=None if after is None else sum(file.row_count for file in after),
    )


def sum_of(done: CompactionResult, step: CompactionResult, *, buckets: int) -> CompactionResult:
    """The sum of two results. A last step that found nothing to do is not counted as an attempt.

    A dry run writes nothing, so its result has no written files.
    """
    idle = bool(done.steps) and not step.snapshot_ids
    return CompactionResult(
        snapshot_ids=(*done.snapshot_ids, *step.snapshot_ids),
        buckets=buckets,
        files_before=done.files_before + step.files_before,
        files_after=_both(done.files_after, step.files_after),
        files_upgraded=done.files_upgraded + step.files_upgraded,
        bytes_before=done.bytes_before + step.bytes_before,
        bytes_after=_both(done.bytes_after, step.bytes_after),
        rows_before=done.rows_before + step.rows_before,
        rows_after=_both(done.rows_after, step.rows_after),
        steps=done.steps + step.steps,
        attempts=done.attempts + step.attempts - idle,
    )


def _both(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


# --- move postponed ------------------------------------------------------------------------------
# Moves the rows of the postponed bucket to real buckets, where reads show them.
#
# 1. Read the latest snapshot, and take the files of the postponed bucket of the chosen partitions.
# 2. A partition keeps its number of real buckets. For a partition that has none yet,
#    `plan/splits.py` chooses the number.
# 3. Read the rows in the order in which they were written, and write them to real buckets as a
#    writer does: with sequence numbers, merged, one run of level 0 in each bucket.
# 4. One COMPACT snapshot deletes the postponed files and adds the new ones, with their changelog.
#
# Rows that writers add to the postponed bucket meanwhile stay there until the next compaction. If
# another compaction moved the same files, the call starts again from the new snapshot.

ATTEMPTS_MAX = 10


def move_postponed(
    context: TableContext,
    chosen: Callable[[Sequence[ManifestEntry]], Sequence[ManifestEntry]],
    *,
    max_bytes: int | None,
    dry_run: bool,
    stepped: Callable[[CompactionResult], None] | None = None,
) -> CompactionResult:
    """Move the chosen files of the postponed bucket. `stepped` is called after each commit.

    With `max_bytes`, each commit moves whole partitions: at least one, and up to that many bytes.
    """
    done = CompactionResult(attempts=0)
    if context.options.bucket != POSTPONE_BUCKET:
        return done
    attempts = 0
    while True:
        require_table(context)
        if newest_schema_id(context) != context.schema.id:
            context = reload_context(context)
        snapshot = context.history.latest_snapshot()
        live = () if snapshot is None else context.history.live_entries(snapshot)
        entries = in_order_of_writing(chosen(live))
        if snapshot is None or not entries:
            return done
        if dry_run:
            return _planned(entries)
        attempts += 1
        portion = _portion(entries, max_bytes)
        messages = _written(context, snapshot, portion)
        snapshot_id = _commit(context, messages)
        if snapshot_id is not None:
            step = result_of(messages, snapshot_id, attempts)
            done = sum_of(done, step, buckets=done.buckets + step.buckets)
            if stepped is not None:
                stepped(step)
            attempts = 0
            if len(portion) == len(entries):
                return done
        elif attempts == ATTEMPTS_MAX:
            raise CommitConflict(
                "other commits changed the buckets that postponed rows move to; compact when they "
                "are done",
                table=context.identifier,
                attempts=attempts,
            )


def _portion(entries: list[ManifestEntry], max_bytes: int | None) -> list[ManifestEntry]:
    """The files of the first partitions, up to `max_bytes`."""
    if max_bytes is None:
        return entries
    sizes: dict[bytes, int] = defaultdict(int)
    for entry in entries:
        sizes[entry.partition] += entry.file.size_bytes
    taken: set[bytes] = set()
    total = 0
    for partition, size_bytes in sizes.items():
        total += size_bytes
        if taken and total > max_bytes:
            break
        taken.add(partition)
    return [entry for entry in entries if entry.partition in taken]


def _written(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry]
) -> list[CommitMessage]:
    """Write the rows of these files to real buckets; the messages replace the files."""
    base = read_start(context, snapshot)
    rows: dict[bytes, int] = defaultdict(int)
    size_bytes: dict[bytes, int] = defaultdict(int)
    for entry in entries:
        rows[entry.partition] += entry.file.row_count
        size_bytes[entry.partition] += entry.file.size_bytes
    options = context.options
    counts = {
        each: base.bucket_counts.get(each)
        or compaction_count(rows[each], size_bytes[each], options)
        for each in rows
    }
    # Compactions that are due in the real buckets run after this commit.
    alone = with_options(context, replace(options, write_only=True))
    with TableWrite(alone, base=base, real_buckets=RealBuckets(known=counts)) as writer:
        for part in postponed_rows(context, entries):
            writer.add_stored(part)
        written = writer.prepare_commit()
    taken: dict[bytes, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        taken[entry.partition].append(entry)
    return [
        *(
            CommitMessage(
                partition=partition,
                bucket=POSTPONE_BUCKET,
                total_buckets=own[0].total_buckets,
                compact_before=tuple(entry.file for entry in own),
                compact_schema_id=context.schema.id,
                base_snapshot_id=snapshot.id,
                base_snapshot_uuid=snapshot.uuid,
            )
            for partition, own in taken.items()
        ),
        *(
            replace(
                message,
                new_files=(),
                changelog_files=(),
                compact_after=message.new_files,
                compact_changelog_files=message.changelog_files,
                compact_schema_id=context.schema.id,
            )
            for message in written
        ),
    ]


def _commit(context: TableContext, messages: Sequence[CommitMessage]) -> int | None:
    """Commit the messages. Returns the snapshot id; None if another commit was first."""
    try:
        request = CommitRequest(messages=messages, user=author(context).user)
        return commit_and_maintain(context, request).snapshot_id
    except (CommitUnknown, AlreadyExists):
        # The files are, or may be, part of the table.
        raise
    except CommitConflict:
        delete_files(context, messages)
        return None
    except (LakecoreError, OSError):
        delete_files(context, messages)
        raise


def _planned(entries: Sequence[ManifestEntry]) -> CompactionResult:
    found = _sizes([entry.file for entry in entries], None)
    return replace(found, buckets=len({entry.partition for entry in entries}), steps=1)


# --- compaction ----------------------------------------------------------------------------------

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


def compact_shown(context: TableContext, request: CompactionRequest) -> CompactionResult:
    """`compact_table`, with a progress bar if the process shows one."""
    with WorkBar() as bar:

        def show(at: CompactionProgress) -> None:
            of = f"{at.buckets_done} of {at.buckets} buckets, {at.rows_done:,} of {at.rows:,} rows"
            bar.at(of, at.rows_done, at.rows)

        return compact_table(context, request, show)


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
        buckets = {(work.partition, work.bucket) for work in whole}
        return replace(_sizes(files, None if files else ()), buckets=len(buckets), steps=steps)

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

        `messages`: the messages of earlier plans, to which the method adds new ones.
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
            full=request.full, step_bytes=request.max_bytes, ordering=ordering, idle=request.idle
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
