"""Selects the files that may hold a matching row, by the statistics of their value columns.

The statistics of a file are converted to the schema that is read. A column that the file lacks is
null in all its rows. If the type of a column has changed, its statistics count as unknown, and the
file may match.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.format.statistics import stats_frame
from lakecore.plan.predicate import columns_of
from lakecore.plan.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.history.history import History
    from lakecore.model.files import DataFile
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["matching_values"]


def matching_values(
    files: Sequence[DataFile],
    history: History,
    schema: TableSchema,
    predicate: Predicate | None,
) -> np.ndarray:
    """For each file, whether its value statistics allow a matching row.

    A file that holds only some columns is always kept: other files hold the row's other columns.
    """
    mask = np.ones(len(files), bool)
    names = columns_of(predicate) if predicate is not None else ()
    if not names:
        return mask
    assert predicate is not None
    by_schema: dict[int, list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        if file.write_columns is None:
            by_schema[file.schema_id].append(index)
    for schema_id, inside in by_schema.items():
        own = [files[index] for index in inside]
        stats = _stats(own, history.schema(schema_id), schema, sorted(names))
        rows = np.array([file.row_count for file in own], np.int64)
        mask[inside] = may_match(predicate, *stats, rows)
    return mask


def _stats(
    files: Sequence[DataFile], file_schema: TableSchema, schema: TableSchema, names: Sequence[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
    """Minima, maxima and null counts, each as columns `names` of the table's schema.

    A column that the files lack is all null. The statistics of a column whose type has changed are
    unknown.
    """
    twins = {name: file_schema.by_id.get(schema.field(name).id) for name in names}
    known = [
        twin
        for name, twin in twins.items()
        if twin is not None and _same_values(twin.type, schema.field(name).type)
    ]
    frame = stats_frame(files, file_schema, [field.name for field in known])
    columns: tuple[list[pa.Array], ...] = ([], [], [])
    rows = pa.array([file.row_count for file in files], pa.int64())
    for name in names:
        field, twin = schema.field(name), twins[name]
        unknown = pa.nulls(len(files), schema.arrow.field(field.name).type)
        if twin in known:
            assert twin is not None
            parts = [batch.column(twin.name) for batch in frame]
        else:
            counts = rows if twin is None else pa.nulls(len(files), pa.int64())
            parts = [unknown, unknown, counts]
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    low, high, nulls = (pa.RecordBatch.from_arrays(c, list(names)) for c in columns)
    return low, high, nulls


def _same_values(old: object, new: object) -> bool:
    """Whether statistics of the old type are valid for the new: only nullability may differ."""
    return str(old).removesuffix(" NOT NULL") == str(new).removesuffix(" NOT NULL")
