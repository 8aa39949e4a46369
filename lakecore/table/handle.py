"""The object that a user holds: a table, bound to its schema, options and store.

Every method is one call to the verb of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakecore.deferred import deferred, deferred_module
from lakecore.errors import InvalidRequest, Unsupported, check_flags
from lakecore.forks import require_threads
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.frames.source import checked_columns
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.memory import Budget, process_budget
from lakecore.model.option_rules import validate_scan
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.model.validation import check_dynamic_rules
from lakecore.options import (
    OptionValue,
    TableOptions,
    check_dynamic_options,
    option_texts,
    parse_options,
)
from lakecore.plan.predicate import from_polars
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.context import (
    TableContext,
    load_context,
    reload_context,
    require_table,
    with_options,
)
from lakecore.table.maintenance.retention_verbs import RetentionVerbs
from lakecore.table.methods import TableMethods
from lakecore.table.publication import EXCLUSIVE_CREATE, Publication
from lakecore.table.reads.access_policy import GuardedSource, guarded
from lakecore.table.reads.fallback import FallbackSource, with_fallback
from lakecore.table.reads.readable import Readable, lazy
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel, as_of, resolve, schema_read
from lakecore.table.reads.told import gated

if TYPE_CHECKING:
    from datetime import timedelta

    import polars as pl

    from lakecore.io.stores.store import Store
    from lakecore.model.compaction import CompactionResult
    from lakecore.model.files import CommitMessage
    from lakecore.model.retention import Purged
    from lakecore.model.schema import TableSchema
    from lakecore.model.times import Time
    from lakecore.table.changes import between
    from lakecore.table.commits import commit, commit_change
    from lakecore.table.compactions import change_options
    from lakecore.table.maintenance import after_commit
    from lakecore.table.reads import explain, row_values
    from lakecore.table.reads.explain import Explanation
    from lakecore.table.system.inspect import Inspect
    from lakecore.table.verbs import (
        change_rows,
        compact_choice,
        compaction,
        mark_partition_done,
        repair_verbs,
        rescale,
    )
    from lakecore.table.verbs.merge_files import MergeInto
    from lakecore.table.writes import batch_write
    from lakecore.table.writes.write import TableWrite
else:
    after_commit = deferred_module("lakecore.table.maintenance.after_commit")
    batch_write = deferred_module("lakecore.table.writes.batch_write")
    between = deferred_module("lakecore.table.changes.between")
    change_options = deferred_module("lakecore.table.compactions.change_options")
    change_rows = deferred_module("lakecore.table.verbs.change_rows")
    commit = deferred_module("lakecore.table.commits.commit")
    commit_change = deferred_module("lakecore.table.commits.commit_change")
    compact_choice = deferred_module("lakecore.table.verbs.compact_choice")
    compaction = deferred_module("lakecore.table.verbs.compaction")
    explain = deferred_module("lakecore.table.reads.explain")
    mark_partition_done = deferred_module("lakecore.table.verbs.mark_partition_done")
    row_values = deferred_module("lakecore.table.reads.row_values")
    repair_verbs = deferred_module("lakecore.table.verbs.repair_verbs")
    rescale = deferred_module("lakecore.table.verbs.rescale")
    Inspect = deferred("lakecore.table.system.inspect", "Inspect")
    MergeInto = deferred("lakecore.table.verbs.merge_files", "MergeInto")
    TableWrite = deferred("lakecore.table.writes.write", "TableWrite")

MEMORY_BUDGET = "lakecore.memory-budget"


class Table(TableMethods, RetentionVerbs, Readable):
    """A Paimon table.

    Returned by `Session.get_table`, `Session.create_table` and `lakecore.open_table`.

        table = session.get_table("shop.orders")
        table.write([{"id": 1, "price": 3.5}])
        table.to_polars(where="price > 3")
    """

    def __init__(self, context: TableContext) -> None:
        self._bound = context

    # --- what it is ------------------------------------------------------------------------------

    @property
    def _context(self) -> TableContext:
        """The context. Raises Unsupported in a forked process, where calls would hang."""
        require_threads()
        return self._bound

    @property
    def context(self) -> TableContext:
        """The value that lakecore's verbs need: schema, options, store and file layout.

        table.context.schema.primary_keys  # ('id',)
        """
        return self._context

    @property
    def identifier(self) -> str:
        """`database.table`, or the path that `open_table` was given.

        table.identifier  # 'shop.orders'
        """
        return self._bound.identifier

    @property
    def path(self) -> str:
        """The table's directory.

        table.path  # '/data/warehouse/shop.db/orders'
        """
        return self._bound.layout.root

    @property
    def schema(self) -> TableSchema:
        """The columns that reads return.

        This is the newest schema at the time the table was opened. If an option such as
        `scan.snapshot-id` names a past state, it is the schema of that state; writes still use the
        newest schema. Raises NotFound if that state does not exist.

            table.schema.names  # ('id', 'item', 'price', 'n')
        """
        return schema_read(self._context)

    @property
    def options(self) -> TableOptions:
        """The options, dynamic ones included.

        table.options.bucket  # 1
        """
        return self._context.options

    @property
    def inspect(self) -> Inspect:
        """The system tables, as Polars frames.

        table.inspect.snapshots()
        """
        return Inspect(self._context)

    def __repr__(self) -> str:
        branch = self._context.layout.branch
        on = "" if branch == MAIN_BRANCH else f", branch={branch!r}"
        schema_id = self._bound.schema.id
        return f"Table({self.identifier!r}{on}, schema={schema_id}, path={self.path!r})"

    def _facts(self) -> list[tuple[str, object]]:
        schema, options = self._context.schema, self._context.options.shown
        facts: list[tuple[str, object]] = [("table", self.identifier)]
        if self.path != self.identifier:
            facts.append(("path", self.path))
        if self._context.layout.branch != MAIN_BRANCH:
            facts.append(("branch", self._context.layout.branch))
        if schema.comment:
            facts.append(("comment", schema.comment))
        facts += [
            (what, ", ".join(names))
            for what, names in (
                ("primary key", schema.primary_keys),
                ("partitioned by", schema.partition_keys),
                ("options", [f"{key}={text}" for key, text in options.items()]),
            )
            if names
        ]
        return facts

    def copy(self, dynamic_options: Mapping[str, OptionValue]) -> Table:
        """A new `Table` object with other options; the stored table is not changed.

        Raises InvalidRequest for an unknown option and for an option that must not change.

            table.copy({"scan.snapshot-id": "3"}).to_polars()
        """
        context = self._context
        given = option_texts(dynamic_options, table=context.identifier)
        branch = context.layout.branch
        if given.get("branch", branch) != branch:
            raise InvalidRequest(
                "a table stays on its branch: open the other by open_table(branch=...), or as "
                "'db.table$branch_NAME'",
                option="branch",
                value=given["branch"],
                branch=branch,
                table=context.identifier,
            )
        merged = {**context.options.texts, **given}
        check_dynamic_options(context.options.texts, given, table=context.identifier)
        options = parse_options(merged, table=context.identifier)
        check_dynamic_rules(context.schema, options, table=context.identifier)
        validate_scan(options)
        keyed = bool(context.schema.primary_keys)
        change_options.check_vectors_change(context.history, context.options, options, keyed=keyed)
        _set_budget(context.budget, options, given)
        return Table(with_options(context, options))

    def refresh(self) -> Table:
        """A new `Table` object with the newest schema; branch and dynamic options are kept.

        table = table.refresh()
        """
        return Table(reload_context(self._context))

    # --- writing ---------------------------------------------------------------------------------

    @gated
    def write(
        self,
        data: object,
        *,
        evolve_schema: bool | None = None,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        watermark: int | None = None,
    ) -> CommitResult:
        """Add rows in one commit; with a primary key, rows are upserted.

        `data` is one of these; columns are matched by name, and a missing column is null:

        - an Arrow table, batch or reader, or any object with `__arrow_c_stream__`;
        - a Polars frame (eager or lazy), a pandas frame, or a DuckDB relation;
        - a list of dicts, one for each row, or one dict of columns;
        - an iterator of these.

        A column `_row_kind` holds the kind of each row: +I, -U, +U or -D.

        With `evolve_schema`, columns that the table lacks are added as nullable columns. The type
        of a column is widened if the wider type holds every value (INT to BIGINT, more digits of a
        DECIMAL, more fractional digits of a timestamp); key columns never change. With None, the
        options `write.merge-schema` and `write.merge-schema.type-widening` decide. With the option
        `write.merge-schema.explicit-cast`, types also change where values can be lost. The new
        schema is stored after all rows are known to fit; it stays if the commit fails later. This
        object then uses the new schema.

            rows = pl.DataFrame({"id": [1], "note": ["new"]})
            table.write(rows, evolve_schema=True)

        `watermark` is the event time, in milliseconds since 1970, up to which all rows have
        arrived. The snapshot stores the larger of this and the previous watermark.

        Raises InvalidRequest, naming column, value and row, if a row does not fit; nothing is
        committed. Raises CommitConflict if a concurrent commit conflicts with this one, and
        CommitUnknown if the outcome is not known.
        """
        by = batch_write.author(self._context, commit_user, identifier, watermark)
        types = batch_write.type_changes_of(self._context.options, evolve_schema=evolve_schema)
        if types is None:
            result = batch_write.write_rows(self._context, data, by)
            rescale.rescale_grown(self._context, result)
            return result
        evolved = batch_write.evolve_for(self._context, data, types)
        result = batch_write.write_rows(
            evolved.context, evolved.rows, by, unstored=evolved.unstored
        )
        self._bound = evolved.context
        rescale.rescale_grown(self._context, result)
        return result

    @gated
    def overwrite(  # noqa: PLR0913  the public verb
        self,
        data: object,
        partition: Mapping[str, object] | None = None,
        *,
        dynamic: bool | None = None,
        evolve_schema: bool | None = None,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        watermark: int | None = None,
    ) -> CommitResult:
        """Replace rows in one commit.

        Which rows are replaced:

        - with `partition`: those of the matching partitions; all rows of `data` must be in them;
        - without it, on a partitioned table with `dynamic` (by default the option
          `dynamic-partition-overwrite`): those of each partition that `data` has rows for;
        - otherwise: all rows of the table.

        `data`, `evolve_schema`, `watermark` and the errors are those of `write`.

            table.overwrite(rows, {"day": datetime.date(2026, 1, 1)})
        """
        context = self._context
        if dynamic is None:
            dynamic = context.options.dynamic_partition_overwrite
        check_flags(dynamic=dynamic)
        by = batch_write.author(context, commit_user, identifier, watermark)
        spec = {} if partition is None else partition
        types = batch_write.type_changes_of(self._context.options, evolve_schema=evolve_schema)
        if types is None:
            return batch_write.overwrite_rows(context, data, spec, by, dynamic=dynamic)
        evolved = batch_write.evolve_for(context, data, types)
        result = batch_write.overwrite_rows(
            evolved.context, evolved.rows, spec, by, dynamic=dynamic, unstored=evolved.unstored
        )
        self._bound = evolved.context
        return result

    def delete(
        self,
        where: pl.Expr | str,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Delete the matching rows in one commit; `rows_deleted` of the result counts them.

        `where` is a Polars expression or an SQL condition as a string. If no row matches, nothing
        is committed.

        Raises Unsupported if the merge engine cannot delete rows, and CommitConflict if a
        concurrent commit changed one of the rows.

            table.delete("price < 0")
        """
        by = batch_write.author(self._context, commit_user, identifier)
        return change_rows.delete_rows(self._context, where, by)

    def update(
        self,
        values: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Set columns of the matching rows in one commit; `rows_updated` counts them.

        `values` maps a column to a Polars expression over the old row, to SQL
        (`lakecore.sql_expr("price * 2")`), or to a plain value. A string is a plain value, not
        SQL. Without `where`, all rows are updated.

        Raises InvalidRequest, naming column and value, if a value does not fit or the column is
        part of the primary key; Unsupported if the merge engine cannot update the column;
        CommitConflict if a concurrent commit changed one of the rows.

            table.update({"price": lakecore.sql_expr("price * 2")}, "id = 7")
        """
        by = batch_write.author(self._context, commit_user, identifier)
        return change_rows.update_rows(self._context, values, where, by)

    def merge(self, source: object, on: Sequence[str] | pl.Expr | str) -> MergeInto:
        """A MERGE statement: add its clauses, then call `execute`.

        `source` is anything that `write` accepts. `on` is a list of columns that must be equal, or
        a condition on `source.x` and `target.y`.

            merge = table.merge(rows, on=["id"])
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        """
        return MergeInto(context=self._context, source=source, on=on)

    @gated
    def truncate(self) -> CommitResult:
        """Remove all rows, in one commit.

        table.truncate()
        """
        return batch_write.clear_partitions(self._context, batch_write.everything, "TRUNCATE")

    @gated
    def drop_partition(self, *partitions: Mapping[str, object]) -> CommitResult:
        """Remove the rows of the matching partitions in one commit.

        table.drop_partition({"day": "2026-01-01"})
        """
        if not partitions:
            raise InvalidRequest("name the partitions to drop", table=self.identifier)
        chosen = batch_write.matching(self._context, partitions)
        return batch_write.clear_partitions(self._context, chosen, "OVERWRITE")

    @gated
    def purge_files(self) -> Purged:
        """Remove all rows, and every file of earlier snapshots.

        The table is truncated, branches, tags and consumers are deleted, and all snapshots but the
        newest expire. It cannot be undone. No other process may write during the call
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Returns what was removed. After a crash, or if `is_complete` of the result is false, call it
        again. Raises InvalidRequest, and changes nothing, if a branch is in use.

            table.purge_files()
        """
        return repair_verbs.purge_files(self._context)

    @gated
    def mark_partition_done(self, *partitions: Mapping[str, object]) -> tuple[str, ...]:
        """Mark the matching partitions as done, so that other systems know that they are complete.

        The option `partition.mark-done-action` says how: `success-file` writes the file `_SUCCESS`
        into the directory of the partition, `http-report` sends a request. A mapping may leave out
        partition keys (https://paimon.apache.org/docs/master/maintenance/manage-partitions/).

        Returns the directories of the marked partitions, relative to the table, sorted. Raises
        NotFound if none matches, Unsupported for an action that needs a metastore, StorageError if
        a report is not accepted.

            table.mark_partition_done({"day": datetime.date(2026, 1, 1)})
        """
        return mark_partition_done.mark_partition_done(self._context, partitions)

    def compact(  # noqa: PLR0913 - the public verb
        self,
        *,
        full: bool = False,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
        buckets: Sequence[int] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        order_strategy: str | None = None,
        order_by: Sequence[str] | str | None = None,
        partition_idle_time: timedelta | str | None = None,
    ) -> CompactionResult:
        """Merge the files of each bucket into fewer sorted runs, in one COMPACT snapshot.

        The rows do not change; reading them gets faster. These files are merged:

        - with a primary key: the runs that the options `num-sorted-run.compaction-trigger` and
          `compaction.*` select; with `full`, all runs, into one run without tombstones;
        - without a primary key: small files, if merging them saves enough; with `full`, all files.

        `partitions`, `where` (a condition on partition keys) and `buckets` select what to compact.
        `partition_idle_time`, such as "1 d", selects partitions without a newer file. `max_bytes`
        works in steps: each step takes whole buckets, at least one, with up to that many bytes to
        read, and commits its own snapshot. After an interruption, call again to continue. With
        `dry_run`, nothing is written.

        In a table without a primary key and with `bucket=-1`, `order_strategy` ("order", "zorder"
        or "hilbert") and `order_by` (columns) sort all rows of each partition, so that a read with
        conditions on these columns skips files:

            table.compact(order_strategy="zorder", order_by=["x", "y"])

        Writers may run at the same time; their rows are kept. If another compaction takes the same
        files, this one starts again from the new snapshot.

        These errors are raised:

        - CommitConflict if other compactions win every retry;
        - Uncomputable, naming bucket and key, if the rows of a key cannot be merged (for example
          the sum overflows its type). That bucket is not changed; the others are committed first;
        - CorruptTable, with the table unchanged, if a data file is missing or damaged;
        - Unsupported for features that lakecore lacks.
        """
        check_flags(full=full, dry_run=dry_run)
        request = compaction.CompactionRequest(
            full=full,
            partitions=partitions,
            where=where,
            buckets=buckets,
            max_bytes=max_bytes,
            dry_run=dry_run,
            order_strategy=order_strategy,
            order_by=order_by,
            partition_idle_ms=compact_choice.idle_ms(partition_idle_time, order_by),
        )
        return compaction.compact_shown(self._context, request)

    def rescale(
        self,
        *,
        bucket_num: int | None = None,
        partition: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
    ) -> CommitResult:
        """Give partitions another number of buckets, in one commit; the rows do not change.

        - `bucket_num` is the new number, by default the option `bucket`. A table with postponed
          buckets (`bucket` is -2) needs this argument.
        - `partition` is one mapping of partition keys to values, or a list of them; a mapping may
          leave out keys. `where` is a condition on partition keys. Without both, all partitions are
          rescaled. Partitions that already have the number are not changed.

        Writers refuse a partition with another number of buckets than the option `bucket` states.
        If all partitions are rescaled, the option is set to `bucket_num`. Else set it yourself and
        rescale the other partitions; `facts` of the result holds `buckets` and `option_bucket`, and
        a warning is logged if they differ. Rows of the postponed bucket stay there.

        The result counts the rows written; `snapshot_ids` is empty if there was nothing to do.
        These errors are raised, with nothing changed:

        - CommitConflict if another commit added files to one of these partitions meanwhile;
        - NotFound if `partition` has no data;
        - InvalidRequest if the option `bucket` is -1, or if the changelog of these rows is not
          written yet: then call `compact(full=True)` first.

            table.rescale(bucket_num=8, partition={"day": datetime.date(2026, 1, 1)})
        """
        partitions = [partition] if isinstance(partition, Mapping) else partition
        request = rescale.RescaleRequest(bucket_num=bucket_num, partitions=partitions, where=where)
        result = rescale.rescale_table(self._context, request)
        self._bound = reload_context(self._context)
        return result

    def new_write(self) -> TableWrite:
        """A two-phase writer: `write`, then `prepare_commit`; pass its messages to `commit`.

        writer = table.new_write()
        writer.write(rows)
        table.commit(writer.prepare_commit())
        """
        return TableWrite(self._context)

    @gated
    def commit(
        self,
        messages: Sequence[CommitMessage],
        *,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        commit_user: str | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Commit the messages of writers atomically.

        The commit is idempotent for each `commit_user`: if this user has committed this or a higher
        `identifier` before, nothing changes, and the result names the earlier snapshots. Without
        `commit_user`, a random one is used, and `identifier` must not be set: a later search for
        the commit needs both.

        Raises InvalidRequest if a file of the messages does not exist: the messages belong to
        another table, or they were aborted.

            writer = table.new_write()
            writer.write(rows)
            table.commit(writer.prepare_commit(), commit_user="nightly", identifier=7)
        """
        by = batch_write.author(self._context, commit_user, identifier)
        commit_change.check_commit(messages, watermark, properties)
        request = commit.CommitRequest(
            messages=messages,
            user=by.user,
            identifier=identifier,
            from_elsewhere=True,
            watermark=watermark,
            properties=properties,
            force=batch_write.records_nothing(self._context, identifier),
        )
        return after_commit.commit_and_maintain(self._context, request)

    def last_identifier(self, commit_user: str) -> int | None:
        """The identifier of the newest commit of a user; None if it has none.

        table.last_identifier("nightly")
        """
        batch_write.author(self._context, commit_user)
        snapshot = commit.last_committed(self._context, commit_user)
        require_table(self._context)
        return None if snapshot is None else snapshot.commit_identifier

    # --- reading ---------------------------------------------------------------------------------

    def explain(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> Explanation:
        """The plan of a `scan` with these arguments. `print` it, or use its fields.

        `parts` names how each part is read, and why. No values are read, only the footers of large
        local files. Raises CorruptTable if such a file is missing or has another size.

            print(table.explain(where="price > 10"))
        """
        self._context.options.require_readable()
        source = self._rows(Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp))
        assert not isinstance(source, GuardedSource), "the options were checked"
        if isinstance(source, ChangesSource):
            raise Unsupported(
                "a read between two points is not explained; name a state", table=self.identifier
            )
        schema = source.table_schema
        predicate = None
        if isinstance(where, str):
            predicate = row_values.sql_condition(
                where, schema, row_values.setting_of(self._context)
            ).predicate
        elif where is not None:
            predicate = from_polars(row_values.as_filter(where, schema), schema)
        names = None if columns is None else checked_columns(columns, schema)
        return explain.explain(
            self.identifier,
            source,
            tuple(names or schema.names),
            predicate,
            None if where is None else str(where),
        )

    # --- changes ---------------------------------------------------------------------------------

    def changes(
        self,
        start: Time | None = None,
        end: Time | None = None,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
    ) -> pl.LazyFrame:
        """The changes after `start` up to and including `end`, as a lazy Polars frame.

        The frame has the columns of the table and `_row_kind` (+I, -U, +U, -D). `start` and `end`
        are snapshot ids, tags or times; a time means the newest snapshot at that time. Without
        `start`, the changes begin with the first snapshot; without `end`, they end with the latest.
        The snapshots are chosen now, not at `collect`.

        The rows are those of the changelog. Without a changelog producer, they are the added rows
        as stored. Between two tags, they are the difference of the two states. The options
        `incremental-between-...` override this
        (https://paimon.apache.org/docs/master/primary-key-table/changelog-producer/).

        `where` filters row by row; it may keep the -U row of an update and drop its +U row.

        Raises NotFound, naming the earliest snapshot left, if the changes have expired.

            table.changes(1, 2).collect()
        """
        self._context.options.require_readable(filters_rows=True)
        changes = between.changes_between(self._context, start, end)
        return lazy(guarded(changes, self._context), columns, where)

    # --- sources ---------------------------------------------------------------------------------

    def _rows(self, travel: Travel) -> TableSource | FallbackSource | ChangesSource | GuardedSource:
        """The rows of a state, or the rows added between two states if the options say so."""
        options = self._context.options
        options.require_readable(filters_rows=True)
        asked = options.reads_changes and travel == Travel()
        changes = between.changes_of_options(self._context) if asked else None
        source = self._source(travel) if changes is None else changes
        return guarded(source, self._context) if options.query_auth_enabled else source

    def _source(self, travel: Travel) -> TableSource | FallbackSource:
        snapshot, schema = resolve(self._context, travel)
        context = as_of(self._context, schema)
        source = TableSource(context=context, snapshot=snapshot, table_schema=schema)
        falls = self._context.falls_back
        return with_fallback(source, self._context, travel) if falls else source


def load_table(  # noqa: PLR0913  what it is given is what a table is bound to
    store: Store,
    path: str,
    *,
    identifier: str = "",
    dynamic_options: Mapping[str, OptionValue] | None = None,
    branch: str | None = None,
    ambient: Ambient = SYSTEM,
    budget: Budget | None = None,
    publication: Publication = EXCLUSIVE_CREATE,
) -> Table:
    """The table at a path. Raises NotFound if none exists.

    `dynamic_options` apply to this object only. `branch` overrides the option `branch`.
    """
    given = option_texts(dynamic_options, table=identifier or path)
    layout = Layout(root=path.rstrip("/"), branch=branch or given.get("branch", MAIN_BRANCH))
    context = load_context(
        store,
        layout,
        identifier=identifier,
        dynamic_options=given,
        ambient=ambient,
        budget=process_budget() if budget is None else budget,
        publication=publication,
    )
    if given:
        own = {key: text for key, text in given.items() if key != "branch"}
        check_dynamic_options(context.schema.stated_options, own, table=context.identifier)
        check_dynamic_rules(context.schema, context.options, table=context.identifier)
    _set_budget(context.budget, context.options, given)
    return Table(context)


def _set_budget(budget: Budget, options: TableOptions, given: Mapping[str, str]) -> None:
    """Set the memory budget of the process to the size that the caller gave.

    The size that the table stores is used only if no other size was set in this process.
    """
    if MEMORY_BUDGET in given:
        budget.set_size(options.lakecore_memory_budget_bytes)
    elif MEMORY_BUDGET in options.texts:
        budget.set_default_size(options.lakecore_memory_budget_bytes)
