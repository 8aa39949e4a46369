"""Values that all rows of a file share, so that the file need not hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.model.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field


def known_values(
    split: Split, file: DataFile, schema: TableSchema, fields: Sequence[Field]
) -> dict[str, pa.Scalar]:
    """The values that all rows of a file share: partition keys, and nulls for missing columns.

    A migrated file may lack columns.

    `schema` is the schema of the file, and `fields` are columns of it.
    """
    known: dict[str, pa.Scalar] = {}
    if not file.sequence_max:
        known = {f.name: pa.scalar(None, arrow_type(f.type)) for f in fields if f.nullable}
    return known | partition_values(split, schema, fields)


def partition_values(
    split: Split, schema: TableSchema, fields: Sequence[Field]
) -> dict[str, pa.Scalar]:
    """For each column of `fields` that is a partition key, its value in the partition."""
    names = [field.name for field in fields if field.name in schema.partition_keys]
    if not names:
        return {}
    row = decode_rows([split.partition], schema.partition_fields)
    return {name: row.column(name)[0] for name in names}
