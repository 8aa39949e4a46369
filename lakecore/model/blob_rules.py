"""Which columns are BLOB columns, and which tables may have them.

https://paimon.apache.org/docs/master/append-table/blob/

The values of a BLOB column are stored in one of three ways:

- in *files of BLOB values*, each of one column. The table needs data evolution: row ids say which
  file holds the value of a row;
- *inline*: a column of `blob-descriptor-field` holds descriptors of values in any file, a column of
  `blob-view-field` names a row and a BLOB column of another table;
- *managed*: in a table with a primary key, the values are in files that the table owns, and the
  column holds descriptors of them
  (https://paimon.apache.org/docs/master/primary-key-table/blob-storage/).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.types import (
    BINARIES,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Root,
    is_blob,
    leaves,
)
from lakecore.options import ChangelogProducer, MergeEngine, TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.schema import TableSchema

_KEY_ROOTS = frozenset(
    {
        Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DECIMAL,
        Root.DATE, Root.TIME, Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY,
    }
)  # fmt: skip


_MANAGING_ENGINES = (MergeEngine.DEDUPLICATE, MergeEngine.PARTIAL_UPDATE, MergeEngine.FIRST_ROW)


def with_blobs(fields: Sequence[Field], options: TableOptions) -> tuple[Field, ...]:
    """The columns of a new table. Binary columns that options name become BLOB columns."""
    named = {*options.blob_field, *options.blob_inline_field}
    return tuple(
        replace(field, type=as_blob(field.type)) if field.name in named else field
        for field in fields
    )


def in_blob_files(field: Field, schema: TableSchema, options: TableOptions) -> bool:
    """Whether the values of a column are in files of BLOB values, which row ids find."""
    return (
        is_blob(field.type)
        and not schema.primary_keys
        and field.name not in options.blob_inline_field
    )


def is_managed(field: Field, schema: TableSchema, options: TableOptions) -> bool:
    """Whether the values of a column are in files that a table with a primary key owns."""
    return (
        is_blob(field.type)
        and bool(schema.primary_keys)
        and field.name not in options.blob_inline_field
    )


def holds_references(field: Field, schema: TableSchema, options: TableOptions) -> bool:
    """Whether a column holds descriptors or views in place of BLOB values."""
    return is_blob(field.type) and not in_blob_files(field, schema, options)


def check_blobs(schema: TableSchema, options: TableOptions) -> None:
    """Check that the table may have its BLOB columns, and that the options name only these."""
    blobs = [field.name for field in schema.fields if is_blob(field.type)]
    single = [field.name for field in schema.fields if _is_single(field)]
    for key, names, allowed in (
        ("blob-field", options.blob_field, blobs),
        ("blob-descriptor-field", options.blob_descriptor_field, single),
        ("blob-view-field", options.blob_view_field, single),
    ):
        for name in names:
            if name not in allowed:
                kind = "a BLOB column" if allowed is blobs else "a column of the type BLOB"
                raise InvalidRequest(
                    f"{key} names a column that is not {kind}",
                    column=name,
                    blob_columns=allowed,
                    table=options.table,
                )
    _check_inline(options)
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
    if schema.primary_keys:
        _check_keyed(schema, options, blobs)


def _check_inline(options: TableOptions) -> None:
    both = sorted({*options.blob_descriptor_field} & {*options.blob_view_field})
    if both:
        raise InvalidRequest(
            "blob-view-field and blob-descriptor-field name the same column",
            columns=both,
            table=options.table,
        )
    external = options.blob_external_storage_field
    stray = [name for name in external if name not in options.blob_descriptor_field]
    if stray:
        raise InvalidRequest(
            "blob-external-storage-field names a column that blob-descriptor-field does not",
            columns=stray,
            table=options.table,
        )
    if external and not options.blob_external_storage_path:
        raise InvalidRequest(
            "blob-external-storage-field needs blob-external-storage-path", table=options.table
        )


def _check_keyed(schema: TableSchema, options: TableOptions, blobs: Sequence[str]) -> None:
    """Check a table with a primary key. Paimon's rules of keys apply to managed columns."""
    groups = ",".join(options.fields_sequence_group)
    for what, names in (
        ("a primary key", schema.primary_keys),
        ("a bucket key", options.bucket_key),
        ("a sequence field", options.sequence_field),
        ("a sequence field of a group", [name.strip() for name in groups.split(",")]),
    ):
        placing = [name for name in blobs if name in names]
        if placing:
            raise InvalidRequest(
                f"a BLOB column cannot be {what}", columns=placing, table=options.table
            )
    managed = [field.name for field in schema.fields if is_managed(field, schema, options)]
    if not managed:
        return
    for refused, key, value in (
        (options.merge_engine not in _MANAGING_ENGINES, "merge-engine", options.merge_engine),
        (
            options.changelog_producer is not ChangelogProducer.NONE,
            "changelog-producer",
            options.changelog_producer,
        ),
        (
            bool(options.data_file_external_paths),
            "data-file.external-paths",
            options.data_file_external_paths,
        ),
    ):
        if refused:
            raise InvalidRequest(
                "Paimon does not allow this option for BLOB columns of a table with a primary key, "
                "except for those that blob-descriptor-field or blob-view-field names",
                option=key,
                value=value,
                columns=managed,
                table=options.table,
            )
    if options.merge_engine is MergeEngine.PARTIAL_UPDATE and not options.ignore_delete:
        _check_retractable(options, managed)


def _check_retractable(options: TableOptions, managed: Sequence[str]) -> None:
    """Refuse aggregate functions that need the value of a row that retracts another one.

    Rows that retract have no values in managed columns.
    """
    grouped = {name for columns in options.fields_sequence_group.values() for name in columns}
    default = options.fields_default_aggregate_function
    for name in managed:
        function = options.fields_aggregate_function.get(name) or default
        if (
            name in grouped
            and function not in (None, "last_value")
            and not options.fields_ignore_retract.get(name)
        ):
            raise InvalidRequest(
                "rows that retract have no BLOB values, which the aggregate function would need; "
                "set the option to ignore them",
                column=name,
                function=function,
                option=f"fields.{name}.ignore-retract",
                table=options.table,
            )


def require_known_blobs(
    fields: Iterable[Field], schema: TableSchema, options: TableOptions
) -> None:
    """Raise InvalidRequest if Paimon does not support the BLOB values of one of these columns."""
    for field in fields:
        if not any(part.root is Root.BLOB for part in leaves(field.type)):
            continue
        if not is_blob(field.type):
            raise InvalidRequest(
                "Paimon has BLOB values only as columns, elements of a list, or values of a map",
                column=field.name,
                type=field.type,
                table=options.table,
            )
        if isinstance(field.type, Map) and not _is_key_type(field.type.key):
            raise InvalidRequest(
                "a map of BLOB values cannot have keys of this type in Paimon",
                column=field.name,
                type=field.type.key,
                table=options.table,
            )
        if not schema.primary_keys and not options.data_evolution_enabled:
            raise InvalidRequest(
                "a BLOB column of a table without a primary key needs data-evolution.enabled=true",
                column=field.name,
                table=options.table,
            )


def _is_single(field: Field) -> bool:
    return isinstance(field.type, Atomic) and field.type.root is Root.BLOB


def _is_key_type(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic) and data_type.root in _KEY_ROOTS


def as_blob(data_type: DataType) -> DataType:
    """The type with BLOB in place of binaries: of the type itself, list elements or map values."""
    match data_type:
        case Atomic() if data_type.root in BINARIES:
            return Atomic(root=Root.BLOB, nullable=data_type.nullable)
        case Array():
            return replace(data_type, element=as_blob(data_type.element))
        case Map():
            return replace(data_type, value=as_blob(data_type.value))
        case _:
            return data_type


def columns_to_follow(schema: TableSchema, options: TableOptions) -> frozenset[str]:
    """The columns whose references a read follows."""
    return frozenset(
        field.name
        for field in schema.fields
        if holds_references(field, schema, options)
        and (
            options.blob_view_resolve_enabled
            if field.name in options.blob_view_field
            else not options.blob_as_descriptor
        )
    )
