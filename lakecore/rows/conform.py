"""Turns the rows given to a write into rows of the table, each with its kind, or raises an error.

1. Columns are matched by name, case-sensitive, in any order. A missing column counts as null.
   Columns that the table does not have are an error, except `_row_kind`.
2. Values are converted to the column's type without loss (`rows/fit.py`).
3. A null, given or missing, becomes the column's default value. A null given for a NOT NULL column
   is an error even if the column has a default. The order of the checks is Paimon's.
4. Row kinds come from `_row_kind`, or from the column that `rowkind.field` names.
5. Rows of kinds that the table ignores are dropped.

NOT NULL applies to rows of every kind, also to deletions: data files cannot store such a null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.rows import KIND_TEXTS, ROW_KIND, RowKind
from lakecore.model.types import LENGTH_MAX, Atomic, Field, Root, string_array, with_nullable
from lakecore.rows.casts import cast
from lakecore.rows.fit import Place, check_names, check_once, fit, show

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema

_STRING = Atomic(root=Root.VARCHAR, length=LENGTH_MAX)
_KIND_TEXTS = string_array(KIND_TEXTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRule:
    """The column that holds the row kinds of a table, and which kinds it takes and ignores."""

    rowkind_field: str | None
    keyed: bool
    ignore_delete: bool
    ignore_update_before: bool

    @property
    def ignored(self) -> frozenset[RowKind]:
        """The row kinds that are dropped when rows are written."""
        if self.ignore_delete:
            return frozenset({RowKind.DELETE, RowKind.UPDATE_BEFORE})
        return frozenset({RowKind.UPDATE_BEFORE} if self.ignore_update_before else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformedBatch:
    """Rows in the table's Arrow schema, and their kinds as int8; None if every row is an insert."""

    rows: pa.RecordBatch
    kinds: pa.Array | None


def conform(
    batch: pa.RecordBatch, schema: TableSchema, *, first_row: int, kinds: KindRule
) -> ConformedBatch:
    """The rows of the batch as rows of the table.

    `first_row` is the number of the batch's first row within the write. Raises InvalidRequest with
    column, value and row number for the first value that does not fit.
    """
    given = batch.schema.names
    check_once(given)
    names = [name for name in given if name != ROW_KIND]
    check_names(names, list(schema.names), also=ROW_KIND)
    columns = [_column(batch, field, schema, first_row) for field in schema.fields]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    codes = _kinds(batch, rows, first_row, kinds)
    if codes is None:
        return ConformedBatch(rows=rows, kinds=None)
    ignored = [int(kind) for kind in kinds.ignored]
    dropped = pc.is_in(codes, pa.array(ignored, pa.int8()))
    if not kinds.keyed:
        changes = pc.and_not(pc.not_equal(codes, int(RowKind.INSERT)), dropped)
        _check_none(changes, codes, kinds.rowkind_field or ROW_KIND, first_row)
    if pc.any(dropped).as_py():
        kept = pc.invert(dropped)
        rows, codes = rows.filter(kept), codes.filter(kept)
    if not pc.any(pc.not_equal(codes, int(RowKind.INSERT))).as_py():
        codes = None
    return ConformedBatch(rows=rows, kinds=codes)


def _column(batch: pa.RecordBatch, field: Field, schema: TableSchema, first_row: int) -> pa.Array:
    place = Place(column=field.name, first_row=first_row)
    data_type = field.type
    if field.name in schema.primary_keys and schema.options.get("primary-key.nullable") != "true":
        data_type = with_nullable(data_type, nullable=False)
    index = batch.schema.get_field_index(field.name)
    if index >= 0:
        values = fit(batch.column(index), data_type, place)
        if field.default_value is None or not values.null_count:
            return values
        return pc.fill_null(values, _default(field))
    if field.default_value is not None:
        return pa.repeat(_default(field), batch.num_rows)
    if not data_type.nullable:
        raise InvalidRequest(
            "a column that is NOT NULL is missing", column=field.name, type=field.type
        )
    return pa.nulls(batch.num_rows, schema.arrow.field(field.name).type)


def _default(field: Field) -> pa.Scalar:
    """The default value of the column. Single quotes around its text are removed."""
    if not isinstance(field.type, Atomic):
        raise Unsupported(
            "default values of nested types are not supported", column=field.name, type=field.type
        )
    text = field.default_value or ""
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    return cast(pa.array([text]), _STRING, field.type, field.name)[0]


def _kinds(
    batch: pa.RecordBatch, rows: pa.RecordBatch, first_row: int, rule: KindRule
) -> pa.Array | None:
    """The kind of each row as int8; None if all are inserts."""
    index = batch.schema.get_field_index(ROW_KIND)
    if rule.rowkind_field is None:
        return None if index < 0 else _parsed(batch.column(index), ROW_KIND, first_row)
    if index >= 0:
        raise InvalidRequest(
            "kinds come from the column of rowkind.field: leave out _row_kind",
            column=ROW_KIND,
            rowkind_field=rule.rowkind_field,
        )
    at = rows.schema.get_field_index(rule.rowkind_field)
    if at < 0:
        raise InvalidRequest(
            "rowkind.field is not a column", column=rule.rowkind_field, columns=rows.schema.names
        )
    return _parsed(rows.column(at), rule.rowkind_field, first_row)


def _parsed(column: pa.Array, name: str, first_row: int) -> pa.Array | None:
    texts = fit(column, _STRING, Place(column=name, first_row=first_row))
    if not texts.null_count and pc.all(pc.equal(texts, KIND_TEXTS[0])).as_py():
        return None
    codes = pc.index_in(texts, _KIND_TEXTS)
    if codes.null_count:
        index = pc.index(codes.is_null(), pa.scalar(True)).as_py()
        raise InvalidRequest(
            "unknown row kind",
            column=name,
            value=show(texts[index]),
            row=first_row + index,
            known=KIND_TEXTS,
        )
    return codes.cast(pa.int8())


def _check_none(changes: pa.Array, codes: pa.Array, name: str, first_row: int) -> None:
    """Raise InvalidRequest for a kind other than +I: without a key, old rows cannot be found."""
    index = pc.index(changes, pa.scalar(True)).as_py()
    if index >= 0:
        raise InvalidRequest(
            "a table without a primary key takes inserts only",
            column=name,
            value=KIND_TEXTS[codes[index].as_py()],
            row=first_row + index,
        )
