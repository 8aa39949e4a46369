"""Converts the changes of one batch to the rows that are written to the target.

A table without a primary key takes inserts only.

A retraction (-U or -D) that carries only the key has nulls in the other columns. In a NOT NULL
column, such a null becomes the zero of the type: data files cannot store the null, and no merge
reads the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.evolution import target_names
from lakecore.errors import InvalidRequest
from lakecore.model.rows import KIND_TEXTS, ROW_KIND, RowKind
from lakecore.model.types import arrow_type
from lakecore.options import ChangelogProducer, MergeEngine
from lakecore.rows.conform import KindRule, conform

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lakecore.cdc.events import ChangeBatch
    from lakecore.table.context import TableContext

__all__ = ["TargetRows"]

_KINDS = pa.array(KIND_TEXTS)
_RETRACTIONS = [int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE)]
_PAIR = 2


class TargetRows:
    """Converts changes to rows for a table under one schema."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def written(self, batch: ChangeBatch) -> pa.Table:
        """The rows to write: with `_row_kind`, and without retractions that change nothing."""
        kinds = batch.kinds.to_numpy(zero_copy_only=False)
        rows = self._named(batch)
        if self._needs_no_retraction():
            kept = ~_followed_by_same_key(rows, kinds, self._identity())
            if not kept.all():
                rows, kinds = rows.filter(pa.array(kept)), kinds[kept]
        return self._kinds_added(rows, kinds)

    def split(self, batch: ChangeBatch) -> tuple[list[int], list[tuple[int, str]]]:
        """The numbers of the rows that fit, and of those that do not fit, each with the reason.

        A range with a row that does not fit is halved until the row is found.
        """
        context = self._context
        rule = KindRule(
            rowkind_field=None,
            keyed=bool(context.schema.primary_keys),
            ignore_delete=context.options.ignore_delete,
            ignore_update_before=context.options.ignore_update_before,
        )
        good: list[int] = []
        bad: list[tuple[int, str]] = []
        kinds = batch.kinds.to_numpy(zero_copy_only=False)
        rows = self._kinds_added(self._named(batch), kinds).combine_chunks()
        ranges = [(0, len(batch))] if len(batch) else []
        while ranges:
            start, stop = ranges.pop()
            try:
                for part in rows.slice(start, stop - start).to_batches():
                    conform(part, context.schema, first_row=start, kinds=rule)
            except InvalidRequest as error:
                if stop - start == 1:
                    bad.append((start, str(error)))
                else:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
            else:
                good.extend(range(start, stop))
        return good, bad

    def _named(self, batch: ChangeBatch) -> pa.Table:
        """The rows under the table's column names, with BOOLEANs where the table has them.

        A TINYINT of the source may be a BOOLEAN of the table.
        """
        names = target_names(self._context.schema.names, batch.rows.column_names)
        rows = batch.rows.rename_columns(list(names.values()))
        for name in (names[each] for each in batch.schema.may_be_flags):
            at = rows.schema.get_field_index(name)
            column = self._context.schema.by_name.get(name)
            if at >= 0 and column is not None and arrow_type(column.type) == pa.bool_():
                rows = rows.set_column(at, name, pc.not_equal(rows.column(at), 0))
        return rows

    def _identity(self) -> tuple[str, ...]:
        """The columns that identify the row that a change replaces: primary and partition keys."""
        schema = self._context.schema
        return tuple(dict.fromkeys((*schema.primary_keys, *schema.partition_keys)))

    def _kinds_added(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """The rows with the column `_row_kind`, unless all are insertions."""
        if not kinds.any():
            return rows
        texts = pa.DictionaryArray.from_arrays(pa.array(kinds), _KINDS).cast(pa.string())
        return self._filled(rows, kinds).append_column(ROW_KIND, texts)

    def _needs_no_retraction(self) -> bool:
        """Whether an update needs no retraction, because the new row replaces the whole old row."""
        options = self._context.options
        return (
            bool(self._context.schema.primary_keys)
            and options.merge_engine is MergeEngine.DEDUPLICATE
            and options.changelog_producer is not ChangelogProducer.INPUT
            and not options.sequence_field
        )

    def _filled(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """The rows with zeros in place of nulls in NOT NULL columns of retractions."""
        retracts = np.isin(kinds, _RETRACTIONS)
        if not retracts.any():
            return rows
        schema = self._context.schema
        for column in schema.fields:
            at = rows.schema.get_field_index(column.name)
            if column.nullable or column.name in schema.primary_keys or at < 0:
                continue
            if rows.column(at).null_count:
                zero = _zero(rows.schema.field(at).type)
                empty = pc.and_(rows.column(at).is_null(), pa.array(retracts))
                filled = pc.if_else(empty, zero, rows.column(at))
                rows = rows.set_column(at, rows.schema.field(at), filled)
        return rows


def _followed_by_same_key(
    rows: pa.Table, kinds: npt.NDArray[np.int8], key: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """A mask of the retractions that are followed directly by an insertion of the same key."""
    count = rows.num_rows
    found = np.zeros(count, np.bool_)
    if count < _PAIR or not set(key) <= set(rows.column_names):
        return found
    retracts = np.isin(kinds, _RETRACTIONS)
    same = retracts[:-1] & ~retracts[1:]
    for name in key:
        if not same.any():
            break
        column = rows.column(name).combine_chunks()
        equal = pc.equal(column[:-1], column[1:]).fill_null(False)
        same &= equal.to_numpy(zero_copy_only=False)
    found[:-1] = same
    return found


def _zero(data_type: pa.DataType) -> pa.Scalar:
    """The zero of the type, for values that no merge reads."""
    if pa.types.is_nested(data_type):
        return pa.scalar({} if pa.types.is_struct(data_type) else [], data_type)
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar("", pa.string()).cast(data_type)
    if pa.types.is_fixed_size_binary(data_type):
        return pa.scalar(bytes(data_type.byte_width), data_type)
    if pa.types.is_date(data_type):
        return pa.scalar(0, pa.int32()).cast(data_type)
    return pa.scalar(0, pa.int64()).cast(data_type)
