"""Which columns are BLOB columns, and which tables may have them.

https://paimon.apache.org/docs/master/append-table/blob/

The values of a BLOB column are in files of their own, which are found by the row ids of a table
with data evolution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import BINARIES, Array, Atomic, Map, Root, is_blob, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.types import DataType, Field
    from lakecore.options import TableOptions

_KEY_ROOTS = frozenset(
    {
        Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DECIMAL,
        Root.DATE, Root.TIME, Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY,
    }
)  # fmt: skip


def with_blobs(fields: Sequence[Field], options: TableOptions) -> tuple[Field, ...]:
    """The columns of a new table; the binary ones that `blob-field` names become BLOB columns."""
    return tuple(
        replace(field, type=as_blob(field.type)) if field.name in options.blob_field else field
        for field in fields
    )


def check_blobs(schema: TableSchema, options: TableOptions) -> None:
    """Check that the table may have its BLOB columns, and that `blob-field` names such columns."""
    blobs = [field.name for field in schema.fields if is_blob(field.type)]
    for name in options.blob_field:
        if name not in blobs:
            raise InvalidRequest(
                "blob-field names a column that is not BLOB",
                column=name,
                blob_columns=blobs,
                table=options.table,
            )
    require_known_blobs(schema.fields, schema, options)
    if not blobs:
        return
    if len(blobs) == len(schema.fields):
        raise InvalidRequest(
            "a table with BLOB columns needs another column", columns=blobs, table=options.table
        )
    placing = [name for name in blobs if name in schema.partition_keys]
    if placing:
        raise InvalidRequest(
            "a BLOB column cannot be a partition key", columns=placing, table=options.table
        )


def require_known_blobs(
    fields: Iterable[Field], schema: TableSchema, options: TableOptions
) -> None:
    """Raise an error if one of these columns stores BLOB values in a form that lakecore lacks.

    Paimon also has BLOB values in tables with a primary key.
    """
    for field in fields:
        if not any(part.root is Root.BLOB for part in leaves(field.type)):
            continue
        if not is_blob(field.type):
            raise Unsupported(
                "BLOB values are columns, elements of a list, or values of a map",
                column=field.name,
                type=field.type,
                table=options.table,
            )
        if isinstance(field.type, Map) and not _is_key_type(field.type.key):
            raise Unsupported(
                "a map of BLOB values cannot have keys of this type",
                column=field.name,
                type=field.type.key,
                table=options.table,
            )
        if schema.primary_keys:
            raise Unsupported(
                "BLOB columns of tables with a primary key are not supported",
                column=field.name,
                table=options.table,
            )
        if not options.data_evolution_enabled:
            raise InvalidRequest(
                "a BLOB column needs data-evolution.enabled=true",
                column=field.name,
                table=options.table,
            )


def _is_key_type(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic) and data_type.root in _KEY_ROOTS


def as_blob(data_type: DataType) -> DataType:
    """The type with BLOB in place of binaries: a binary, a list of these, or a map to them."""
    match data_type:
        case Atomic() if data_type.root in BINARIES:
            return Atomic(root=Root.BLOB, nullable=data_type.nullable)
        case Array():
            return replace(data_type, element=as_blob(data_type.element))
        case Map():
            return replace(data_type, value=as_blob(data_type.value))
        case _:
            return data_type
