"""Casts that may fail on a value, applied after the merge to the surviving rows.

A value that a newer row or a deletion vector hides is never returned, so a failing cast of it must
not fail the read. In a merge that returns rows unchanged, such a column is merged together with a
second column that holds the values as old files store them. The surviving values are cast after the
merge. Files that need no such cast have no second column.

A merge that folds rows may take the two columns from different rows. Then only nested values are
cast late, because the merge only checks whether such a value is null. Both columns are *packed*
into one column of ROWs, each with the cast value and the stored value; the ROW is null where the
value is null.

Any other value that affects the merge (a sequence field) or is folded is cast before the merge.
Java Paimon casts a value when it is first accessed, which has the same effect; it accesses
the fields of a nested value last.

If a catalog hides rows (`row_filter`), the columns of the filter are cast first. A row for which
they cannot be cast is dropped; in other hidden rows, the late columns become null. The reader of
the rows drops them: a comparison of two states still needs them. If a cast before the merge fails,
the value is null, and the row is flagged (`UNREAD`): the merge decides whether that matters. The
same holds for a string that is not valid UTF-8, which cannot be compared.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.merge.keys import is_valid
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import (
    Atomic,
    DataType,
    Field,
    Root,
    arrow_schema,
    arrow_type,
    with_nullable,
)
from lakecore.plan.predicate import condition_on, to_arrow
from lakecore.rows.evolution import ColumnMapping, conform_batch, convert, map_fields, may_fail
from lakecore.rows.read_rules import Condition, inputs_of, judged
from lakecore.rows.utf8 import holds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.schema import TableSchema
    from lakecore.table.file_reader.read_plan import ReadPlan

_FILES_SHOWN = 5

# No column of a table has a name with this prefix, or this id.
UNREAD = Field(id=-1, name=f"{KEY_PREFIX}UNREAD", type=Atomic(root=Root.BOOLEAN))
"""Whether a value of the row cannot be cast; null if all can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCast:
    """A column, and its second column of stored values. In each row, one of the two is null."""

    column: Field
    stored: Field


@dataclass(frozen=True, slots=True)
class LateCasts:
    """The columns that are cast late, and the condition `wanted` on the keys of the result.

    Rows that `wanted` excludes are dropped before the cast. Such a row may be an old version whose
    newer version is in a pruned file; a failing cast of it must not fail the read. With `packed`,
    the column itself holds the stored values, too (see the module).
    """

    casts: tuple[LateCast, ...] = ()
    wanted: pc.Expression | None = None
    row_filter: Condition | None = None
    packed: bool = False
    files: tuple[str, ...] = ()
    """The names of the files with such values, for errors."""

    def __bool__(self) -> bool:
        return bool(self.casts)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of stored values, which are read in addition to the others."""
        return tuple(each.stored for each in self.casts)

    def map_fields(
        self, fields: Sequence[Field], stored: Sequence[Field]
    ) -> tuple[ColumnMapping, ...]:
        """How each field is read from a file: into its column, or into its stored-values column."""
        late = {
            each.stored: field
            for each in self.casts
            for field in stored
            if field.id == each.column.id and _nullable(field) == each.stored.type
        }
        second = set(self.fields)
        at_once = [field for field in stored if field not in late.values()]
        plain = iter(map_fields([field for field in fields if field not in second], at_once))
        return tuple(
            ColumnMapping(read=field, stored=late.get(field), changed=False)
            if field in second
            else next(plain)
            for field in fields
        )

    def pack(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns of `map_fields`, packed for the merge."""
        for name, stored in self._stored_names.items():
            columns = [rows.column(part) for part in (name, *stored)]
            kinds = [pa.field(str(at), column.type) for at, column in enumerate(columns)]
            null = np.logical_and.reduce([~is_valid(column) for column in columns])
            packed = pa.StructArray.from_arrays(columns, fields=kinds, mask=pa.array(null))
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, packed).drop_columns(stored)
        return rows

    def cast(self, rows: pa.Table) -> pa.Table:
        """The wanted rows with cast values. Raises InvalidRequest if a value cannot be cast."""
        if not self.casts:
            return rows
        if self.wanted is not None:
            rows = rows.filter(self.wanted)
        rows = self._unpacked(rows)
        stored = {each.name for each in self.fields}
        schema = rows.select([name for name in rows.schema.names if name not in stored]).schema
        with naming_files(self.files):
            done = [
                _cast(part, self.casts)
                for batch in rows.to_batches()
                for part in self._shown(batch)
            ]
        return pa.Table.from_batches(done, schema)

    def cast_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `cast`, as one batch."""
        done = self.cast(pa.Table.from_batches([rows]))
        batches = done.to_batches()
        if len(batches) == 1:
            return batches[0]
        return pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in done.columns], schema=done.schema
        )

    def _shown(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, with null in place of stored values that the row filter hides."""
        if self.row_filter is None:
            yield rows
            return
        inputs = inputs_of(self.row_filter)
        later = [each.stored.name for each in self.casts if each.column.name not in inputs]
        for part, keeps in self.judge(rows, self.row_filter):
            shown = part
            for name in later:
                at = part.schema.get_field_index(name)
                values = pc.if_else(keeps, part.column(at), pa.scalar(None, part.column(at).type))
                shown = shown.set_column(at, part.schema.field(at), values)
            yield shown

    def judge(
        self, rows: pa.RecordBatch, row_filter: Condition
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The rows for which the filter can be computed, in parts, each part with its mask."""
        inputs = inputs_of(row_filter)
        first = [each for each in self.casts if each.column.name in inputs]
        for part in _castable(rows, first):
            yield part, judged(row_filter, _cast(part, first))

    @property
    def _stored_names(self) -> Mapping[str, list[str]]:
        """For each column, the names of its columns of stored values."""
        names = dict.fromkeys(each.column.name for each in self.casts)
        return {
            name: [each.stored.name for each in self.casts if each.column.name == name]
            for name in names
        }

    def _unpacked(self, rows: pa.Table) -> pa.Table:
        if not self.packed:
            return rows
        fields = {each.column.name: each.column for each in self.casts}
        for name, stored in self._stored_names.items():
            at = rows.schema.get_field_index(name)
            value, *parts = (
                pc.struct_field(rows.column(at), [part]) for part in range(1 + len(stored))
            )
            rows = rows.set_column(at, arrow_schema([fields[name]]).field(0), value)
            for part, column in zip(stored, parts, strict=True):
                rows = rows.append_column(part, column)
        return rows


NO_LATE_CASTS = LateCasts()


def _cast(rows: pa.RecordBatch, casts: Iterable[LateCast]) -> pa.RecordBatch:
    for each in casts:
        name, kind = each.column.name, each.stored.type
        place = rows.schema.get_field_index(each.stored.name)
        stored = rows.column(place)
        if pa.types.is_nested(stored.type):
            # A cast of a slice of lists would also see the elements outside the slice.
            stored = stored.take(pa.array(np.arange(len(stored))))
        if stored.null_count < len(stored):
            at = rows.schema.get_field_index(name)
            values = convert(stored, kind, each.column.type, name)
            both = pc.coalesce(values, rows.column(at))
            rows = rows.set_column(at, rows.schema.field(at), both)
        rows = rows.remove_column(place)
    return rows


def _castable(rows: pa.RecordBatch, casts: Sequence[LateCast]) -> Iterator[pa.RecordBatch]:
    try:
        _cast(rows, casts)
    except InvalidRequest:
        half = rows.num_rows // 2
        if half:
            yield from _castable(rows.slice(0, half), casts)
            yield from _castable(rows.slice(half), casts)
        return
    yield rows


def flagged(rows: pa.RecordBatch, mappings: Sequence[ColumnMapping]) -> Iterator[pa.RecordBatch]:
    """The rows of `conform_batch`, with null for values that cannot be cast, and `UNREAD`."""
    try:
        yield conform_batch(rows, mappings)
    except InvalidRequest:
        half = rows.num_rows // 2
        if half:
            yield from flagged(rows.slice(0, half), mappings)
            yield from flagged(rows.slice(half), mappings)
            return
        read = [each if _casts(rows, each) else replace(each, stored=None) for each in mappings]
        row = conform_batch(rows, read)
        at = row.schema.get_field_index(UNREAD.name)
        yield row.set_column(at, row.schema.field(at), pa.array([True]))


def _casts(rows: pa.RecordBatch, mapping: ColumnMapping) -> bool:
    try:
        conform_batch(rows, [mapping])
    except InvalidRequest:
        return False
    return True


def with_flags(rows: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    """The rows, with the flag `UNREAD` set at these places, too."""
    if not places:
        return rows
    at = rows.schema.get_field_index(UNREAD.name)
    flags = is_valid(rows.column(at)) | np.isin(np.arange(rows.num_rows), places)
    values = pa.array(np.ones(rows.num_rows, bool), mask=~flags)
    return rows.set_column(at, rows.schema.field(at), values)


def may_be_unread(name: str, plan: ReadPlan) -> bool:
    """Whether the merge compares or folds a column that is no key: it may read null and a flag."""
    return name not in plan.merge.key and not chooses_value(plan.merge, name)


@contextmanager
def naming_files(files: Sequence[str]) -> Iterator[None]:
    """Add the names of the files to the error of a value that cannot be cast."""
    try:
        yield
    except InvalidRequest as error:
        shown = files[0] if len(files) == 1 else [*files[:_FILES_SHOWN]]
        raise InvalidRequest(error.message, **error.facts, file=shown) from error


def late_casts(
    files: Iterable[DataFile], fields: Iterable[Field], schemas: Mapping[int, TableSchema]
) -> LateCasts:
    """The casts that may fail on a value, from the types in these files to those of `fields`."""
    read = tuple(fields)
    of_schema: dict[int, list[str]] = defaultdict(list)
    for file in files:
        of_schema[file.schema_id].append(file.name)
    found = {
        (mapping.read, _nullable(mapping.stored)): names
        for schema_id, names in of_schema.items()
        for mapping in map_fields(read, schemas[schema_id].fields)
        if mapping.changed and mapping.stored is not None
        if may_fail(mapping.stored.type, mapping.read.type)
    }
    # No column of a table has a name with this prefix.
    casts = (
        LateCast(
            column=field, stored=Field(id=field.id, name=f"{KEY_PREFIX}STORED_{number}", type=kind)
        )
        for number, (field, kind) in enumerate(found)
    )
    return LateCasts(tuple(casts), files=tuple(dict.fromkeys(chain(*found.values()))))


def casts_after_merge(
    files: Iterable[DataFile], fields: Sequence[Field], plan: ReadPlan
) -> LateCasts:
    """The casts that can wait until after the merge, which does not read their values."""
    packed = not MERGE_FUNCTIONS[plan.engine].chooses_rows
    time = None if plan.expiry is None else plan.expiry.column
    chosen = [
        field
        for field in fields
        if chooses_value(plan.merge, field.name) and not (packed and isinstance(field.type, Atomic))
        # This column decides before the merge which rows have expired.
        if field.name != time
    ]
    late = late_casts(files, chosen, plan.schemas)
    wanted = keys_wanted(fields, plan)
    return replace(late, wanted=wanted, row_filter=plan.row_filter, packed=packed) if late else late


def flags_of(
    files: Iterable[DataFile], fields: Iterable[Field], plan: ReadPlan, late: LateCasts
) -> tuple[Field, ...]:
    """`UNREAD`, if rows are hidden, and a cast or a string may be unreadable before the merge."""
    if plan.row_filter is None:
        return ()
    columns = {each.column for each in late.casts}
    early = [field for field in fields if field not in columns]
    texts = any(
        may_be_unread(each.name, plan) and holds_text(arrow_type(each.type)) for each in early
    )
    return (UNREAD,) if texts or late_casts(files, early, plan.schemas) else ()


def keys_wanted(fields: Iterable[Field], plan: ReadPlan) -> pc.Expression | None:
    """The part of the plan's predicate that concerns key columns; None if there is none."""
    # Float keys are excluded: engines compare NaN differently.
    keys = [
        field.name
        for field in fields
        if field.name in plan.merge.key and not pa.types.is_floating(arrow_type(field.type))
    ]
    condition = condition_on(plan.predicate, keys)
    return None if condition is None else to_arrow(condition)


def _nullable(field: Field) -> DataType:
    return with_nullable(field.type, nullable=True)
