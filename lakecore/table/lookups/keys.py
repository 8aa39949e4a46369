"""The keys of a look-up: rows whose columns are the columns to look up by.

Values are converted to the types of the table's columns without loss. As in SQL, a key with a null
matches no row, and float keys are compared by `=`, so that -0.0 finds 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.incoming import incoming_batches
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import Atomic, arrow_schema, with_nullable
from lakecore.plan.predicate import Column, all_of, is_in
from lakecore.rows.fit import Place, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["Keys", "keys_of", "rows_in_order"]

_LISTS = ("list", "tuple", "ndarray", "Array", "ChunkedArray", "Series", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys as rows. Their columns are the columns to look up by, with the types of the table.

    Rows with nulls are included, although they match nothing.
    """

    rows: pa.Table

    @property
    def names(self) -> list[str]:
        """The columns to look up by."""
        return list(self.rows.schema.names)

    def predicate(self) -> Predicate:
        """A condition that holds for every row that a key finds, and perhaps for other rows."""
        parts = []
        for name in self.names:
            column = self.rows.column(name).combine_chunks()
            if not pa.types.is_floating(column.type):
                parts.append(is_in(Column(name, column.type), column.drop_null().unique()))
        return all_of(parts)


def keys_of(data: object, schema: TableSchema, on: Sequence[str] | None = None) -> Keys:
    """The keys of `data`: rows of any kind that `Table.write` takes, or a dict of one key.

    Raises InvalidRequest for a column that the table lacks or that cannot be compared, and for a
    value that does not fit the column's type. With `on`, the keys must have exactly these columns.
    """
    if isinstance(data, Mapping) and not any(type(v).__name__ in _LISTS for v in data.values()):
        data = [data]
    batches: list[pa.RecordBatch] = []
    first_row = 0
    for batch in incoming_batches(data, schema.fields):
        names = batch.schema.names
        _check(names, schema, on)
        columns = [
            fit(
                batch.column(name),
                with_nullable(schema.field(name).type, nullable=True),
                Place(column=name, first_row=first_row),
            )
            for name in names
        ]
        kinds = arrow_schema([schema.field(name) for name in names])
        kinds = pa.schema([kind.with_nullable(True) for kind in kinds])
        batches.append(pa.RecordBatch.from_arrays(columns, schema=kinds))
        first_row += batch.num_rows
    if not batches:
        kinds = arrow_schema([schema.field(name) for name in on or schema.primary_keys])
        if not kinds.names:
            raise InvalidRequest("keys without rows name no columns to look up by")
        return Keys(rows=kinds.empty_table())
    order = batches[0].schema.names if on is None else list(on)
    return Keys(rows=pa.Table.from_batches([batch.select(order) for batch in batches]))


def _check(names: Sequence[str], schema: TableSchema, on: Sequence[str] | None) -> None:
    unknown = [name for name in names if name not in schema.by_name]
    if unknown or not names:
        raise InvalidRequest(
            "keys name columns of the table to look up by",
            unknown=unknown,
            columns=schema.names,
        )
    if on is not None and set(names) != set(on):
        raise InvalidRequest(
            "the keys must have the columns that the look-up was opened for",
            keys=list(names),
            columns=list(on),
        )
    for name in names:
        if not isinstance(schema.field(name).type, Atomic):
            raise InvalidRequest(
                "a nested column cannot be looked up by", column=name, type=schema.field(name).type
            )


def rows_in_order(keys: Keys, rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of `rows`, in the order of the keys that find the rows.

    Each row matches a key. `rows` has at least `columns` and the columns of the keys.
    """
    if keys.rows.num_rows <= 1:
        return rows if rows.columns == list(columns) else rows.select(columns)
    frame = to_frame(keys.rows)
    asked = [KEY_PREFIX + name for name in keys.names]
    # The result has the values of the rows, not of the keys: -0.0 finds 0.0.
    found = frame.rename(dict(zip(keys.names, asked, strict=True))).join(
        rows,
        left_on=asked,
        right_on=keys.names,
        how="inner",
        coalesce=False,
        maintain_order="left",
    )
    return found.select(columns)
