"""The rows of a table that its catalog shows to this reader (`query-auth.enabled`).

The catalog states row filters and column masks for each read. Merged rows first pass the filters,
then the masks, and then the condition of the caller, which sees masked values only.

INVARIANT: no file, count, statistic or error of the source reaches an engine or a user: all rows
pass `batches`, and all errors `told.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakecore.errors import NotFound, Unsupported
from lakecore.frames.source import CheckedSource, RowSource, reading
from lakecore.model.types import with_nullable
from lakecore.plan.predicate import Predicate, columns_of, condition_on
from lakecore.rows.read_rules_json import parse_rules
from lakecore.table.reads.told import told_call, told_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.rows.read_rules import Condition, ReadRules
    from lakecore.table.context import TableContext
    from lakecore.table.publication import ReadAccess


Source = TypeVar("Source", bound="FilteredSource")


def guarded(source: Source, context: TableContext) -> Source | GuardedSource:
    """The source as the catalog shows it to this reader.

    Raises Unsupported if the table needs a catalog that states filters and masks.
    """
    if not context.options.query_auth_enabled:
        return source
    access = context.publication.access
    if access is None:
        raise Unsupported(
            "rows of this table are read through the REST catalog that states who sees which rows",
            option="query-auth.enabled",
            table=context.identifier,
        )
    return GuardedSource(source=source, context=context, access=access)


def guarded_now(source: Source, context: TableContext) -> Source | GuardedSource:
    """As `guarded`, for a reader that stays open: `query-auth.enabled` may have changed."""
    access = context.publication.access
    if access is None or context.options.query_auth_enabled:
        return guarded(source, context)
    newest = _newest(context)
    if not newest.parsed_options(table=context.identifier).query_auth_enabled:
        return source
    return GuardedSource(source=source, context=context, access=access)


class FilteredSource(RowSource, Protocol):
    """A source that can leave out hidden rows, whose values may be unreadable."""

    def filtered(self, row_filter: Condition) -> RowSource:
        """The source for a reader who drops the rows for which the filter is not true.

        A row that may lack columns of the filter is left out, so that no hidden row is visible.
        """


@dataclass(frozen=True, kw_only=True)
class GuardedSource:
    """The rows of a source, filtered and masked. All columns are nullable: a mask may give null."""

    source: FilteredSource
    context: TableContext
    access: ReadAccess

    @cached_property
    def table_schema(self) -> TableSchema:
        """The columns of the source, all nullable."""
        schema = self.source.table_schema
        fields = (
            replace(each, type=with_nullable(each.type, nullable=True)) for each in schema.fields
        )
        return replace(schema, fields=tuple(fields), primary_keys=())

    @cached_property
    def schema(self) -> pa.Schema:
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns (None: all) of the rows that the reader may see.

        The predicate is only used for pruning, and only by columns that are not masked: the batches
        may still hold rows that do not match. `limit` is exact without a predicate.

        Raises the errors of `rules`; any other error tells nothing of the rows (`told.py`).
        """
        names = self.schema.names if columns is None else list(columns)
        read = names if predicate is None else [*names, *columns_of(predicate)]
        rules = self.rules(read)
        yield from told_each(self._batches(names, predicate, limit, rules), self.context)

    def _batches(
        self, names: Sequence[str], predicate: Predicate | None, limit: int | None, rules: ReadRules
    ) -> Iterator[pa.RecordBatch]:
        # The stored values of a masked column are only read if a rule reads them.
        seen = (name for name in names if name not in rules.masks)
        wanted = list(dict.fromkeys((*seen, *rules.inputs(names)))) or self.schema.names[:1]
        shown = self.schema.empty_table().select(names).schema
        plain = [name for name in self.schema.names if name not in rules.masks]
        pruning = condition_on(predicate, plain)
        left = limit if predicate is None else None
        pushed = left if rules.row_filter is None else None
        if left == 0:
            return
        row_filter = rules.row_filter
        source = self.source if row_filter is None else self.source.filtered(row_filter)
        with reading(source.batches(wanted, pruning, pushed)) as batches:
            for batch in batches:
                rows = rules.apply(batch, shown)
                if left is not None:
                    rows = rows.slice(0, left)
                    left -= rows.num_rows
                if rows.num_rows:
                    yield rows
                if left == 0:
                    return
                # A row may be large: the next batch is read without this one in memory.
                del batch, rows

    def check_files(self) -> None:
        """Raise Unsupported for an unknown rule, and CorruptTable for visible damage.

        If lakecore raised these errors while an engine reads, the engine would raise an error of
        its own class instead.
        """
        self.rules([])
        source = self.source
        if isinstance(source, CheckedSource):
            told_call(source.check_files, self.context)

    def rules(self, columns: Sequence[str]) -> ReadRules:
        """The rules that the catalog states now for a read of these columns.

        The catalog knows the columns by their current names. Raises the catalog's error if the
        reader may not read one of the columns, Unsupported for a rule that cannot be applied.
        """
        read, newest = self.source.table_schema, _newest(self.context)
        ids = {read.field(name).id for name in columns}
        asked = [field.name for field in newest.fields if field.id in ids or field.name in columns]
        stated = self.access.rules(self.context.layout.branch, asked)
        rules = parse_rules(stated, read, self.context.identifier)
        for name in {*rules.masks, *rules.inputs(list(rules.masks))}:
            self._check_name(name, newest)
        return rules

    def _check_name(self, name: str, newest: TableSchema) -> None:
        """Raise Unsupported if the name means another column in the state that is read.

        A mask of a renamed column would leave its older values visible.
        """
        read, column = self.source.table_schema, newest.by_name.get(name)
        same = {field.name for field in read.fields if column and field.id == column.id}
        here = {name} & set(read.by_name)
        if column is None or same != here:
            raise Unsupported(
                "a rule of the catalog for readers names a column that was renamed or replaced "
                "since; open the table again, or read its newest state",
                column=name,
                columns=read.names,
                table=self.context.identifier,
            )


def _newest(context: TableContext) -> TableSchema:
    """The newest schema. Another user may have renamed columns since the table was opened."""
    newest = context.history.latest_schema()
    if newest is None:
        raise NotFound(
            "the table is not there any more: it was dropped or renamed", table=context.identifier
        )
    return newest
