"""The methods of a table for tags, branches, streams, look-ups, statistics and repair.

Each is one call into the module that does the work. That module is loaded by the first call: a
process that only reads loads half of the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Self

from lakecore.deferred import deferred_module
from lakecore.errors import Unsupported, check_flags
from lakecore.model.times import Time, to_milliseconds
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.context import TableContext, reload_context, require_table
from lakecore.table.maintenance.iceberg_hooks import republished
from lakecore.table.reads.access_policy import GuardedSource, guarded_now
from lakecore.table.reads.time_travel import Travel
from lakecore.table.reads.told import gated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    import polars as pl

    from lakecore.model.file_indexes import IndexesRewritten
    from lakecore.model.manifest import AnalyzeResult
    from lakecore.model.retention import TagDeletion
    from lakecore.model.snapshot import Branch, CommitResult, Consumer, FastForwardResult, Tag
    from lakecore.table.changes import stream as changes_stream
    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.lookups import lookup as lookups
    from lakecore.table.lookups.lookup import Lookup
    from lakecore.table.maintenance import branches, consumers, reachable, retention_verbs, tags
    from lakecore.table.reads.fallback import FallbackSource
    from lakecore.table.reads.source import TableSource
    from lakecore.table.verbs import repair_verbs, statistics_verbs
    from lakecore.table.writes import stream_write
    from lakecore.table.writes.stream_write import IngestResult, StreamWrite
else:
    branches = deferred_module("lakecore.table.maintenance.branches")
    changes_stream = deferred_module("lakecore.table.changes.stream")
    consumers = deferred_module("lakecore.table.maintenance.consumers")
    lookups = deferred_module("lakecore.table.lookups.lookup")
    reachable = deferred_module("lakecore.table.maintenance.reachable")
    repair_verbs = deferred_module("lakecore.table.verbs.repair_verbs")
    retention_verbs = deferred_module("lakecore.table.maintenance.retention_verbs")
    statistics_verbs = deferred_module("lakecore.table.verbs.statistics_verbs")
    stream_write = deferred_module("lakecore.table.writes.stream_write")
    tags = deferred_module("lakecore.table.maintenance.tags")


class TableMethods(ABC):
    """The methods of a table that are not about reading, writing and retention."""

    _bound: TableContext

    @abstractmethod
    def __init__(self, context: TableContext) -> None: ...

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table as the verbs see it."""

    @abstractmethod
    def _rows(self, travel: Travel) -> TableSource | FallbackSource | ChangesSource | GuardedSource:
        """The rows of a state."""

    # --- tags ------------------------------------------------------------------------------------

    @gated
    @republished
    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Give a snapshot a name; its rows can be read by that name after the snapshot expires.

        The snapshot is the latest, that of `snapshot_id`, or the first that was committed at
        `timestamp` or later. It may have expired if another tag keeps it. `time_retained` is the
        time to live of the tag: a duration such as `"7 d"`, or a timedelta. The default is the
        option `tag.default-time-retained`; if that is not set, the tag stays until it is deleted
        (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

        Returns the tag. Raises AlreadyExists if the tag exists, NotFound if there is no such
        snapshot, InvalidRequest for a name that is blank or not a valid file name, CommitConflict
        if a rollback or a fast-forward takes the snapshot away during the call.

            table.create_tag("before-migration", time_retained="30 d")
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.create_tag(self._context, name, at, time_retained)

    @gated
    @republished
    def replace_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Let an existing tag name another snapshot; arguments as in `create_tag`.

        Without `time_retained` the tag stays until it is deleted, even if the old one had a time to
        live.

        Returns the new tag. Raises NotFound if the tag or the snapshot does not exist,
        CommitConflict as `create_tag` does; the old tag then stays.

            table.replace_tag("stable", snapshot_id=2)
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.replace_tag(self._context, name, at, time_retained)

    @gated
    @republished
    def rename_tag(self, old: str, new: str) -> Tag:
        """Give a tag another name. Returns the tag.

        Raises NotFound if there is no tag `old`, AlreadyExists if there is a tag `new`,
        CommitConflict if a rollback or a fast-forward takes the snapshot away during the call.

            table.rename_tag("before-migration", "old-layout")
        """
        return tags.rename_tag(self._context, old, new)

    @gated
    @republished
    def delete_tag(self, name: str, *, dry_run: bool = False) -> TagDeletion:
        """Delete a tag, and the files that only the tag kept. With `dry_run`, nothing changes.

        While the snapshot of the tag is alive, its files stay. Files that a snapshot, another tag,
        a branch or a long-lived changelog needs always stay. If one of these cannot be read, all
        files stay.

        Returns what was deleted. Raises NotFound, naming the known tags, if the tag does not exist.

            table.delete_tag("old-layout")
        """
        check_flags(dry_run=dry_run)
        return tags.delete_tag(self._context, name, dry_run=dry_run)

    @gated
    def tags(self) -> tuple[Tag, ...]:
        """The tags of the table, by snapshot, then by name. `inspect.tags()` gives a frame.

        [tag.name for tag in table.tags()]
        """
        return reachable.tags_of(self._context.history)

    @gated
    @republished
    def expire_tags(
        self, older_than: Time | None = None, *, dry_run: bool = False
    ) -> tuple[TagDeletion, ...]:
        """Delete the tags past their time to live. With `dry_run`, nothing changes.

        A tag expires when it is older than its `time_retained`. With `older_than`, tags created
        before that time are deleted, too; for a tag without a creation time, the modification time
        of its file is used. A commit also deletes expired tags, unless `tag.time-expire-enabled` is
        false (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

        Returns what was deleted, by snapshot. Files are treated as in `delete_tag`.

            table.expire_tags(older_than="2024-01-01")
        """
        check_flags(dry_run=dry_run)
        before_ms = None if older_than is None else to_milliseconds(older_than)
        return tags.expire_tags(self._context, before_ms, dry_run=dry_run)

    # --- branches --------------------------------------------------------------------------------

    @gated
    def create_branch(self, name: str, tag: str | None = None) -> Branch:
        """Create a branch: a state that readers of the table do not see until `fast_forward`.

        The branch starts with the rows and the schema of `tag`. Without `tag`, it starts with no
        rows and the newest schema. It shares data files with the table; nothing is copied
        (https://paimon.apache.org/docs/master/maintenance/manage-branches/).

        Returns the branch. Raises AlreadyExists if the branch exists, NotFound if there is no such
        tag, InvalidRequest for a name that is blank, all digits, `main` or not a valid file name.

            table.create_tag("today")
            table.create_branch("trial", tag="today")
        """
        return branches.create_branch(self._context, name, tag)

    @gated
    def rename_branch(self, old: str, new: str) -> Branch:
        """Give a branch another name. Returns the branch.

        Raises NotFound if there is no branch `old`, AlreadyExists if there is a branch `new`, and
        Unsupported on an object store, unless `commit.single-writer` is set.

            table.rename_branch("trial", "experiment")
        """
        return branches.rename_branch(self._context, old, new)

    @gated
    def delete_branch(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch with its snapshots, tags and consumers. With `dry_run`, nothing changes.

        Data files that only the branch used become orphans.

        Returns the deleted branch. Raises NotFound, naming the known branches, if the branch does
        not exist; InvalidRequest for the branch of `scan.fallback-branch`.

            table.delete_branch("experiment")
        """
        check_flags(dry_run=dry_run)
        return branches.delete_branch(self._context, name, dry_run=dry_run)

    def branches(self) -> tuple[Branch, ...]:
        """The branches of the table by name, without `main`.

        [branch.name for branch in table.branches()]
        """
        return branches.list_branches(self._context)

    def branch(self, name: str) -> Self:
        """The table on a branch, with the newest schema of the branch; `main` is the table itself.

        The returned table reads and writes the branch, and keeps the dynamic options of this
        object. Raises NotFound, naming the known branches, if the branch does not exist.

            trial = table.branch("trial")
            trial.write(rows)
        """
        return type(self)(branches.branch_context(self._context, name))

    @gated
    @republished
    def fast_forward(self, name: str, *, dry_run: bool = False) -> FastForwardResult:
        """Give this table the state of a branch. With `dry_run`, nothing changes.

        From the earliest snapshot of the branch on, the table gets the snapshots, schemas and tags
        of the branch and loses its own. Everything written to the table since the branch was
        created is lost. The branch stays. This object then uses the new schema.

        No other writer may write the table during the call. If the call is interrupted, repeat it:
        until then readers see an older state of the table or of the branch.

        Returns what was done. Raises NotFound if there is no such branch; InvalidRequest if the
        branch has no snapshot, or is the branch of this table object; CommitConflict if another
        writer commits, or a rollback or another fast-forward runs, during the call.

            table.fast_forward("trial")
        """
        check_flags(dry_run=dry_run)
        result = branches.fast_forward(self._context, name, dry_run=dry_run)
        if not dry_run:
            self._bound = reload_context(self._context)
        return result

    # --- streams ----------------------------------------------------------------------------------

    def stream(  # noqa: PLR0913 - the public verb
        self,
        from_snapshot: int | None = None,
        until: int | Literal["latest"] | None = None,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        from_timestamp: Time | None = None,
        scan_mode: str | None = None,
        consumer_id: str | None = None,
        poll: str | float | timedelta | None = None,
    ) -> ChangeStream[pl.LazyFrame]:
        """The changes of each snapshot: pairs of a snapshot id and a lazy frame with `_row_kind`.

        The stream is an iterator and an asynchronous iterator. Snapshots are in ascending order;
        those without changes are skipped. Data is read when a frame is collected.
        `stream.to_batches()` gives Arrow batches in place of frames, for snapshots of any size.

        - `from_snapshot`: the first pair holds the changes of this snapshot. Without a start, the
          first pair holds all rows of the latest snapshot, as +I.
        - `from_timestamp`: begin with the first snapshot committed at this time or later.
        - `scan_mode`: Paimon's `scan.mode`, which says what the first pair is: `latest-full`,
          `latest`, `compacted-full`, `from-snapshot`, `from-snapshot-full`, `from-timestamp`,
          `from-creation-timestamp` or `from-file-creation-time`. Without these arguments, the
          options `scan.*` of the table name the start.
        - `until`: the last snapshot; `"latest"` means the latest one now. With None, the stream
          never ends: it waits for the next snapshot.
        - `columns`, `where`: as in `changes`; they apply to each frame.
        - `consumer_id`: the stream continues at the position of this consumer, if it exists, and
          `stream.commit()` records the progress. A consumer keeps snapshots from expiring
          (https://paimon.apache.org/docs/master/flink/consumer-id/).
        - `poll`: the interval at which the stream checks for the next snapshot: a string such as
          `"10 s"`, a timedelta, or seconds; by default `continuous.discovery-interval`, or
          else 1 s.

        Overwrites are skipped, unless `streaming-read-overwrite` or
        `streaming-read-append-overwrite` is set. A snapshot with a newer schema, and those after
        it, are read with the newest schema.

        Raises NotFound, naming the earliest existing snapshot, if changes expired before they were
        read, or if the table was rolled back to before the stream's position; InvalidRequest for
        invalid arguments.

            for snapshot_id, changes in table.stream(until="latest"):
                print(snapshot_id, changes.collect())
        """
        request = changes_stream.StreamRequest(
            from_snapshot=from_snapshot,
            from_timestamp=from_timestamp,
            scan_mode=scan_mode,
            until=until,
            consumer_id=consumer_id,
            poll=poll,
            columns=columns,
            where=where,
        )
        return changes_stream.open_stream(self._context, request)

    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers of the table, sorted by id: each with the snapshot that it reads next.

        Expiry keeps all snapshots from the smallest `next_snapshot` on. A branch has its own
        consumers (https://paimon.apache.org/docs/master/flink/consumer-id/).

        Raises CorruptTable, naming the file, if a consumer cannot be read.

            table.consumers()
        """
        found = consumers.list_consumers(self._context)
        require_table(self._context)
        return found

    def reset_consumer(self, consumer_id: str, next_snapshot: int | None = None) -> None:
        """Set the snapshot that a consumer reads next; with None, delete the consumer.

        The consumer is created if it does not exist. Stop its stream first: a stream overwrites the
        position. `next_snapshot` may be the one after the latest.

        Raises NotFound if the snapshot has expired or is more than one after the latest (the error
        names both), or if there is no such consumer to delete; InvalidRequest for an id that is not
        a valid file name.

            table.reset_consumer("reports", next_snapshot=1)
        """
        changes_stream.reset_consumer(self._context, consumer_id, next_snapshot)

    def clear_consumers(
        self, including: str | None = None, excluding: str | None = None, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Delete consumers; returns the ids of those that were deleted, sorted.

        `including` and `excluding` are regular expressions of Python, which must match the whole
        id. Without `including`, all consumers match; without `excluding`, none is kept. With
        `dry_run`, nothing is deleted. The snapshots that only these consumers needed may expire.

        Raises InvalidRequest for an invalid regular expression.

            table.clear_consumers("test-.*", excluding="test-1")
        """
        context = self._context
        require_table(context)
        return consumers.clear_consumers(context, including, excluding, dry_run=dry_run)

    @gated
    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """A writer that commits checkpoint by checkpoint: each exactly once, also after restarts.

        `commit_user` identifies the job. Use the same name after a restart, and in only one process
        at a time.

            with table.new_stream_write("loader") as writer:
                checkpoint = 1 + (writer.committed() or 0)
                writer.write(rows)
                writer.prepare_commit(checkpoint)
                writer.commit(checkpoint)

        https://paimon.apache.org/docs/master/program-api/java-api/
        """
        return stream_write.StreamWrite(self._context, commit_user)

    @gated
    def ingest(
        self,
        frames: Iterable[object],
        *,
        every: str = "10 s",
        commit_user: str | None = None,
        on_commit: Callable[[IngestResult], None] | None = None,
    ) -> IngestResult:
        """Write an iterable of frames, with one commit every few seconds, until it ends.

        Each item is anything that `write` accepts, or None. A commit is made only when an item
        arrives: a source that may wait for a long time should yield None from time to time. An
        interval without frames makes no commit, unless `commit.force-create-snapshot` is set.

        If the source raises an error, or Ctrl-C interrupts it while it waits, the frames so far are
        committed, and the error is raised. If Ctrl-C comes while a frame is written, or a frame
        does not fit, the frames since the last commit are dropped. `on_commit` is called after each
        commit with the result so far, for example to move the offset of a queue.

        `commit_user` identifies the job; by default, a random name is used.

            table.ingest(read_queue(), every="10 s", commit_user="loader")
        """
        return stream_write.ingest(
            self._context, frames, every=every, commit_user=commit_user, on_commit=on_commit
        )

    # --- look-ups ---------------------------------------------------------------------------------

    def lookup(
        self,
        keys: object,
        columns: Sequence[str] | str | None = None,
        *,
        snapshot_id: int | None = None,
    ) -> pl.DataFrame:
        """The rows of some keys, as a Polars frame.

        `keys` are rows of any kind that `write` takes (Polars, Arrow, pandas, DuckDB, dicts), or a
        dict of one key. Their columns are those to look up by: the primary key, a part of it, or
        any columns that are not nested. File indexes and statistics of these columns prune
        files. The result has the columns `columns`, by default all.

        The rows are in the order of the keys. A key that is given twice returns its rows twice, and
        a key without rows returns none. If the columns of the keys are the primary key, each key
        finds at most one row. A null matches nothing. For many look-ups, `open_lookup` is faster
        (https://paimon.apache.org/docs/master/flink/sql-lookup/).

        Raises InvalidRequest for an unknown or nested column, and for a value that does not fit
        its column; NotFound for a snapshot that does not exist.

            table.lookup({"id": 7})
            table.lookup(pl.DataFrame({"id": [7, 8, 9]}), ["id", "item"])
        """
        return lookups.look_up(self._looked_up(Travel(snapshot_id=snapshot_id)), keys, columns)

    def open_lookup(
        self, columns: Sequence[str] | str | None = None, *, on: Sequence[str] | str | None = None
    ) -> Lookup:
        """A handle for many look-ups: it keeps rows in memory and follows the table.

        `on` are the columns to look up by, by default the primary key; `columns` are those of the
        result, by default all. `rows(keys)` returns what `lookup` returns for the newest snapshot
        that the handle has seen; it looks for a newer one after `continuous.discovery-interval`,
        or when `refresh()` is called. Threads may share a handle. Close it, or use it in `with`.

        With the whole primary key, rows are cached in blocks when a key needs them. With other
        columns, or `lookup.cache=FULL`, all rows are read when the handle opens.
        `lookup.cache-max-memory-size` limits the memory, within the memory budget.

        If a REST catalog filters or masks rows, the handle asks for the rules when it opens, and
        whenever it looks for a newer snapshot. If a column of `on` is masked, each look-up reads
        the table.

        Raises InvalidRequest for an unknown or nested column, and if `on` is missing for a table
        without a primary key.

            with table.open_lookup(["id", "item"]) as items:
                items.rows([{"id": 7}])
        """
        return lookups.open_lookup(self._context, columns, on, self._newest_rows)

    def _newest_rows(self) -> TableSource | FallbackSource | GuardedSource:
        source = self._looked_up(Travel())
        return source if isinstance(source, GuardedSource) else guarded_now(source, self._context)

    def _looked_up(self, travel: Travel) -> TableSource | FallbackSource | GuardedSource:
        source = self._rows(travel)
        if isinstance(source, ChangesSource):
            raise Unsupported(
                "rows between two points are not looked up; name a state",
                table=self._context.identifier,
            )
        return source

    # --- statistics and repair --------------------------------------------------------------------

    def analyze(self, columns: Sequence[str] | str | None = None) -> AnalyzeResult:
        """Compute statistics of the newest snapshot and store them in an ANALYZE snapshot.

        The table is read once. `columns` are the columns to analyze, or one name; None means all
        columns except arrays, maps, multisets, rows, and BLOB columns whose rows hold descriptors;
        with `[]`, only rows are counted. Other engines use the statistics to plan queries.
        `inspect.statistics()` shows them. They are valid until the schema changes.

        For each column: the number of distinct values (exact up to 65,536, else an estimate), the
        number of nulls, the least and the greatest value (not for strings and binaries), and the
        average and greatest length (for strings in characters, else in bytes). These are the rules
        of Paimon's Spark command (https://paimon.apache.org/docs/master/spark/sql-write/).

        Raises InvalidRequest for an unknown column, Unsupported for a column whose type has no
        statistics, and the errors of a commit.

            table.analyze(["id"]).statistics
        """
        return statistics_verbs.analyze(self._context, columns)

    @gated
    def rewrite_file_index(
        self,
        *,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
    ) -> IndexesRewritten:
        """Give the data files the file indexes that the options `file-index.*` ask for now.

        New files get their indexes when they are written. Use this method for older files after the
        options have changed. The data files are read, not rewritten; one COMPACT snapshot replaces
        their entries. `partitions` and `where` (a condition on partition keys) choose the files
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Returns how many files were indexed. Raises InvalidRequest if a value does not fit an
        index, CommitConflict if other commits take the files of every plan.

            table.rewrite_file_index()
        """
        return statistics_verbs.rewrite_file_index(self._context, partitions, where)

    @gated
    def compact_manifests(self) -> CommitResult:
        """Merge the manifests of the newest snapshot into few, without entries of deleted files.

        Commits merge manifests by the options `manifest.merge-min-count` and
        `manifest.full-compaction-threshold-size`; this merges all of them at once. The rows do not
        change. `snapshot_ids` of the result has the COMPACT snapshot, and is empty if there was
        nothing to merge (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises CommitConflict if other commits win every retry, and CorruptTable if a manifest
        cannot be read.

            table.compact_manifests()
        """
        return repair_verbs.compact_manifests(self._context)

    @gated
    def remove_unexisting_files(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove data files that do not exist from the newest snapshot. Returns their paths.

        The rows of these files are lost, and older rows of the same keys become visible again. Use
        this method only if files were deleted by mistake, to read the remaining rows. With
        `dry_run`, nothing changes. Older snapshots and tags still name the files
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises the errors of a commit; StorageError, with nothing changed, if the storage does not
        answer.

            table.remove_unexisting_files(dry_run=True)
        """
        check_flags(dry_run=dry_run)
        # The result names partitions.
        self._context.options.require_all_rows()
        return repair_verbs.remove_unexisting_files(self._context, dry_run=dry_run)

    @gated
    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Let the history begin with a snapshot that follows a gap. Returns the former first id.

        If snapshots in the middle were lost, expiry and readers of old snapshots fail. The
        snapshots before the gap are no longer read
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises NotFound if a snapshot from `snapshot_id` to the newest is missing, InvalidRequest
        if the snapshot before it exists or if it is not between the first and the newest.

            table.repair_earliest_snapshot(1)
        """
        return retention_verbs.repair_earliest_snapshot(self._context, snapshot_id)
