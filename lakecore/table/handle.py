"""The object that a user holds: a table, bound to its schema, options and store.

Every method is one call to the verb of its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.forks import require_threads, with_threads
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.frames.source import checked_columns
from lakecore.io.ambient import SYSTEM
from lakecore.memory import process_budget
from lakecore.model.arguments import check_flags
from lakecore.model.option_rules import validate_scan
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.model.validation import check_dynamic_rules
from lakecore.options import check_option_change, option_texts, parse_options
from lakecore.plan.partitions import Partitions
from lakecore.plan.predicate import from_polars
from lakecore.table.changes.between import changes_between, changes_of_options
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.changes.stream import StreamRequest, stream_changes
from lakecore.table.commits.commit import CommitRequest, commit, last_committed
from lakecore.table.commits.commit_change import check_commit
from lakecore.table.compactions.change_options import check_vectors_change
from lakecore.table.context import TableContext, load_context, reload_context, require_table
from lakecore.table.publication import EXCLUSIVE_CREATE, write_schema
from lakecore.table.reads.explain import Explanation, explain
from lakecore.table.reads.readable import Readable, lazy
from lakecore.table.reads.row_values import as_filter, setting_of, sql_condition
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.travel import Travel, as_of, resolve, schema_read
from lakecore.table.system.inspect import Inspect
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from lakecore.table.verbs.delete import delete_rows
from lakecore.table.verbs.merge_into import MergeInto
from lakecore.table.verbs.update import update_rows
from lakecore.table.writes import overwrite
from lakecore.table.writes.batch_write import (
    author,
    clear_partitions,
    overwrite_rows,
    records_nothing,
    write_rows,
)
from lakecore.table.writes.evolving import evolve_for
from lakecore.table.writes.write import TableWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from lakecore.io.ambient import Ambient
    from lakecore.io.store import Store
    from lakecore.memory import Budget
    from lakecore.model.compaction import CompactionResult
    from lakecore.model.files import CommitMessage
    from lakecore.model.schema import TableSchema
    from lakecore.model.times import Time
    from lakecore.options import OptionValue, TableOptions
    from lakecore.table.publication import Publication

__all__ = ["MEMORY_BUDGET", "Table", "load_table", "write_schema"]

MEMORY_BUDGET = "lakecore.memory-budget"


class Table(Readable):
    """A Paimon table.

    Made by `Catalog.get_table`, `Catalog.create_table` or `lakecore.open_table`.
    """

    def __init__(self, context: TableContext) -> None:
        self._bound = context

    # --- what it is ------------------------------------------------------------------------------

    @property
    def _context(self) -> TableContext:
        """The same. Raises Unsupported where a forked process could only hang."""
        require_threads()
        return self._bound

    @property
    def context(self) -> TableContext:
        """What lakecore's verbs are given."""
        return self._context

    @property
    def identifier(self) -> str:
        """`database.table`, or the path it was opened by."""
        return self._bound.identifier

    @property
    def path(self) -> str:
        """The table's directory."""
        return self._bound.layout.root

    @property
    def schema(self) -> TableSchema:
        """The columns that reads give.

        That is the newest schema when the table was opened. If options such as `scan.snapshot-id`
        name a state of the past, it is that state's, and NotFound if there is none; writes still
        take rows of the newest.
        """
        return schema_read(self._context)

    @property
    def options(self) -> TableOptions:
        """The options, dynamic ones included."""
        return self._context.options

    @property
    def inspect(self) -> Inspect:
        """The system tables, as Polars frames."""
        return Inspect(self._context)

    def __repr__(self) -> str:
        schema_id = self._bound.schema.id
        return f"Table({self.identifier!r}, schema={schema_id}, path={self.path!r})"

    def _facts(self) -> list[tuple[str, object]]:
        schema, texts = self._context.schema, self._context.options.texts
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
                ("options", [f"{key}={text}" for key, text in texts.items()]),
            )
            if names
        ]
        return facts

    def copy(self, dynamic_options: Mapping[str, OptionValue]) -> Table:
        """The same table with other options, for this object only; the table is not changed.

        Raises InvalidRequest for an unknown option, or one that may not change.
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
        for key, value in given.items():
            check_option_change(
                context.options.texts, key, value, has_snapshots=True, table=context.identifier
            )
        options = parse_options(merged, table=context.identifier)
        check_dynamic_rules(context.schema, options, table=context.identifier)
        validate_scan(options)
        keyed = bool(context.schema.primary_keys)
        check_vectors_change(context.history, context.options, options, keyed=keyed)
        _set_budget(context.budget, options, given)
        return Table(
            replace(context, options=options, partitions=Partitions(context.schema, options))
        )

    def refresh(self) -> Table:
        """The table with its newest schema; branch and dynamic options stay."""
        return Table(reload_context(self._context))

    # --- writing ---------------------------------------------------------------------------------

    def write(
        self,
        data: object,
        *,
        evolve_schema: bool | None = None,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Add rows (upsert, with a primary key) in one commit; what was written.

        `data`: Arrow tables, batches and readers, Polars frames (lazy too), pandas frames, DuckDB
        relations, anything with `__arrow_c_stream__`, dicts, one a row, or an iterator of these; or
        a dict of columns. Columns are found by name; one that is left out is null. A column
        `_row_kind` holds +I, -U, +U or -D.

        With `evolve_schema`, columns that the table lacks are added as nullable ones, and types are
        widened where the given type holds every value (INT to BIGINT, DECIMAL, longer fractions of
        timestamps; never a key's). None: as the options `write.merge-schema` and
        `write.merge-schema.type-widening` say. This object then has the new schema. It is stored
        when all rows are known to fit, and stays if the commit fails after that.

            table.write(pl.DataFrame({"id": [1], "note": ["new"]}), evolve_schema=True)

        Raises InvalidRequest, naming column, value and row, if a row does not fit: then nothing is
        written. Raises CommitConflict if another commit got in the way; CommitUnknown if the
        outcome is not known.
        """
        by = author(self._context, commit_user, identifier)
        widen = self._widens(evolve_schema=evolve_schema)
        if widen is None:
            return write_rows(self._context, data, by)
        evolved = evolve_for(self._context, data, widen=widen)
        result = write_rows(evolved.context, evolved.rows, by, unstored=evolved.unstored)
        self._bound = evolved.context
        return result

    def overwrite(
        self,
        data: object,
        partition: Mapping[str, object] | None = None,
        *,
        dynamic: bool | None = None,
        evolve_schema: bool | None = None,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Replace rows in one commit.

        With `partition`, those of the partitions that match it; the data must lie in them. Without:
        those of the partitions that the data has rows in (`dynamic`, by default the option
        `dynamic-partition-overwrite`), or of the whole table if it is not partitioned or not
        `dynamic`. `evolve_schema` is that of `write`.
        """
        context = self._context
        if dynamic is None:
            dynamic = context.options.dynamic_partition_overwrite
        check_flags(dynamic=dynamic)
        by = author(context, commit_user, identifier)
        spec = {} if partition is None else partition
        widen = self._widens(evolve_schema=evolve_schema)
        if widen is None:
            return overwrite_rows(context, data, spec, by, dynamic=dynamic)
        evolved = evolve_for(context, data, widen=widen)
        result = overwrite_rows(
            evolved.context, evolved.rows, spec, by, dynamic=dynamic, unstored=evolved.unstored
        )
        self._bound = evolved.context
        return result

    def _widens(self, *, evolve_schema: bool | None) -> bool | None:
        """Whether a write may widen types; None if it may not change the schema at all."""
        if evolve_schema is not None:
            check_flags(evolve_schema=evolve_schema)
            return True if evolve_schema else None
        options = self._context.options
        return options.write_merge_schema_type_widening if options.write_merge_schema else None

    def delete(
        self,
        where: pl.Expr | str,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Take away the rows that match, in one commit; `rows_deleted` says how many.

        `where` is a Polars expression or the text of an SQL condition. Nothing matches: no commit.

        Raises Unsupported if the merge engine keeps rows that are deleted; CommitConflict if
        somebody else changed one of the rows meanwhile.
        """
        by = author(self._context, commit_user, identifier)
        return delete_rows(self._context, where, by)

    def update(
        self,
        values: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """Set columns of the rows that match (None: of all), in one commit; see `rows_updated`.

        `values` gives each column a Polars expression over the row as it was, or a plain value: a
        text is a text, not SQL: `lakecore.sql_expr("price * 2")` is SQL.

        Raises InvalidRequest, naming column and value, if a value does not fit, or for a column of
        the primary key; Unsupported if the merge engine cannot do it; CommitConflict if somebody
        else changed one of the rows meanwhile.
        """
        by = author(self._context, commit_user, identifier)
        return update_rows(self._context, values, where, by)

    def merge(self, source: object, on: Sequence[str] | pl.Expr | str) -> MergeInto:
        """A merge of rows from elsewhere: add its clauses, then `execute` it.

        `source` is anything that `write` takes. `on` names the columns in which a row of the source
        and a row of the table are equal, or is a condition on `source.x` and `target.y`.

            table.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all()
        """
        return MergeInto(context=self._context, source=source, on=on)

    def truncate(self) -> CommitResult:
        """Remove all rows, in one commit."""
        return clear_partitions(self._context, overwrite.everything, "TRUNCATE")

    def drop_partition(self, *partitions: Mapping[str, object]) -> CommitResult:
        """Remove the rows of the partitions that match, in one commit."""
        if not partitions:
            raise InvalidRequest("name the partitions to drop", table=self.identifier)
        chosen = overwrite.matching(self._context, partitions)
        return clear_partitions(self._context, chosen, "OVERWRITE")

    def compact(
        self,
        *,
        full: bool = False,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
        buckets: Sequence[int] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Merge files of each bucket to fewer sorted runs, in one COMPACT snapshot.

        As many as the options `num-sorted-run.compaction-trigger` and `compaction.*` ask for; with
        `full`, all of them, to one run without deletions. Of a table without a key, small files are
        written anew as fewer ones: those that are worth it or, with `full`, all of them.

        With `max_bytes`, in steps of whole buckets, each with a snapshot of its own: as many as
        hold so many bytes to read, but one at least, and on until nothing is left to do. What is
        interrupted goes on where it stopped when it is called again.

        Rows stay as they are; reads of them get faster. `partitions`, `where` (a condition on
        partition keys) and `buckets` choose what to compact. With `dry_run` nothing is written.

        Writers may go on meanwhile, and their rows stay. If another compaction takes the same
        files, it begins again from the new snapshot; CommitConflict if that happens too often.
        A bucket with a key whose rows cannot be merged (a sum that leaves its type) stays as it is:
        the others are compacted and committed, then Uncomputable names the bucket and the key.
        Raises Unsupported for what is not done yet; CorruptTable, with the table unchanged, if a
        data file is missing or damaged.
        """
        check_flags(full=full, dry_run=dry_run)
        request = CompactionRequest(
            full=full,
            partitions=partitions,
            where=where,
            buckets=buckets,
            max_bytes=max_bytes,
            dry_run=dry_run,
        )
        return compact_table(self._context, request)

    def new_write(self) -> TableWrite:
        """A writer in two phases: `write`, then `prepare_commit`, whose messages `commit` takes."""
        return TableWrite(self._context)

    def commit(
        self,
        messages: Sequence[CommitMessage],
        *,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
        commit_user: str | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Make the messages of writers visible, in one commit.

        The same user's same or lower identifier is committed once: again, it changes nothing, and
        the result names the snapshots of then. Without a user, a new one is drawn.

        Raises InvalidRequest if a file of the messages is not there: they are another table's, or
        were aborted.
        """
        by = author(self._context, commit_user, identifier)
        check_commit(messages, watermark, properties)
        request = CommitRequest(
            messages=messages,
            user=by.user,
            identifier=identifier,
            from_elsewhere=True,
            watermark=watermark,
            properties=properties,
            force=records_nothing(self._context, identifier),
        )
        return commit(self._context, request)

    def last_identifier(self, commit_user: str) -> int | None:
        """The identifier of the newest commit of a user; None if it has none."""
        author(self._context, commit_user)
        snapshot = last_committed(self._context, commit_user)
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
        """What `scan` with these arguments would read. `print` it, or look at its numbers."""
        source = self._rows(Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp))
        if isinstance(source, ChangesSource):
            raise Unsupported(
                "a read between two points is not explained; name a state",
                table=self.identifier,
            )
        schema = source.table_schema
        predicate = None
        if isinstance(where, str):
            predicate = sql_condition(where, schema, setting_of(self._context)).predicate
        elif where is not None:
            predicate = from_polars(as_filter(where, schema), schema)
        names = None if columns is None else checked_columns(columns, schema)
        return explain(
            self.identifier,
            source.plan(predicate),
            tuple(names or schema.names),
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
        """What changed after `start` up to `end`, as a lazy frame of rows with their `_row_kind`.

        Both are snapshot ids, tags, or times, which stand for the newest snapshot of then. None:
        from the beginning, to the latest. Snapshots give what their changelog says, or, of a table
        without one, the rows that were added as stored; two tags give the difference between them.
        The options `incremental-between-...` say otherwise. The snapshots are chosen now.

        `where` is asked of each row by itself: of an update it may keep -U without +U.

        Raises NotFound, naming the earliest that is left, if changes have expired.
        """
        self._context.options.require_readable()
        return lazy(changes_between(self._context, start, end), columns, where)

    def stream(
        self,
        from_snapshot: int | None = None,
        until: int | Literal["latest"] | None = None,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        consumer_id: str | None = None,
    ) -> Iterator[tuple[int, pl.LazyFrame]]:
        """What changed, snapshot by snapshot: an id, and a lazy frame of rows with `_row_kind`.

        It begins with the changes of `from_snapshot`; without it, with all rows of the latest
        snapshot, as +I. It ends with those of `until`. Snapshots without changes are passed over,
        and so are overwrites, unless `streaming-read-overwrite` or
        `streaming-read-append-overwrite` is set. Nothing of a snapshot is read before its frame is
        collected. `where` as for `changes`.

        Raises NotFound, naming the earliest that is left, if changes have expired; Unsupported
        without `until`, and with a consumer.
        """
        request = StreamRequest(from_snapshot=from_snapshot, until=until, consumer_id=consumer_id)
        found = stream_changes(self._context, request)
        # What cannot be asked for is told now, not with the first snapshot.
        lazy(ChangesSource(context=self._context, changes=()), columns, where)
        return ((number, lazy(source, columns, where)) for number, source in with_threads(found))

    # --- sources ---------------------------------------------------------------------------------

    def _rows(self, travel: Travel) -> TableSource | ChangesSource:
        """The rows of a state or, if the options ask for it, those added between two states."""
        self._context.options.require_readable()
        between = changes_of_options(self._context) if travel == Travel() else None
        return self._source(travel) if between is None else between

    def _source(self, travel: Travel) -> TableSource:
        self._context.options.require_readable()
        snapshot, schema = resolve(self._context, travel)
        context = as_of(self._context, schema)
        return TableSource(context=context, snapshot=snapshot, table_schema=schema)


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
    """The table at a path. Raises NotFound if there is none.

    `dynamic_options` hold for this object only. `branch` overrides the option `branch`.
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
        stated, name = context.schema.stated_options, context.identifier
        for key in given.keys() - {"branch"}:
            check_option_change(stated, key, given[key], has_snapshots=True, table=name)
        check_dynamic_rules(context.schema, context.options, table=name)
    _set_budget(context.budget, context.options, given)
    return Table(context)


def _set_budget(budget: Budget, options: TableOptions, given: Mapping[str, str]) -> None:
    """Set the one budget of the process to what the caller states.

    What the table itself stores counts only where nobody in this process has said another size.
    """
    if MEMORY_BUDGET in given:
        budget.set_size(options.lakecore_memory_budget_bytes)
    elif MEMORY_BUDGET in options.texts:
        budget.set_default_size(options.lakecore_memory_budget_bytes)
