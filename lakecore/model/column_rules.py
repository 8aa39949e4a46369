"""The rules of a schema about columns, keys and buckets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.blob_rules import as_blob
from lakecore.model.casts import check_default
from lakecore.model.data_types import vector
from lakecore.model.merge_rules import needs_primary_key
from lakecore.model.rows import KEY_PREFIX, ROW_KIND, SYSTEM_COLUMNS
from lakecore.model.types import (
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    inner_types,
    is_blob,
)
from lakecore.options import NAMES, RENAMED, BucketFunction, TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.schema import TableSchema

_COMPLEX = (Array, Map, Multiset, Row)
NESTING_MAX = 32
"""The deepest nesting of types.

Arrow reads about 48 nested ARRAYs from Parquet, other types deeper.
"""


def check_column_names(schema: TableSchema, options: TableOptions) -> None:
    """Check that there is a column, and that names are unique, not blank and not reserved.

    Raises Unsupported for a name that Polars reads as a pattern.
    """
    if not schema.fields:
        raise InvalidRequest("a table needs at least one column", table=options.table)
    _check_names(schema.fields, "", options.table)
    require_plain_names(schema, options.table)
    for name in schema.names:
        if name in SYSTEM_COLUMNS or name == ROW_KIND or name.startswith(KEY_PREFIX):
            raise InvalidRequest("the column name is reserved", column=name, table=options.table)


def require_plain_names(schema: TableSchema, table: str) -> None:
    """Raise Unsupported for a column name that Polars reads as a pattern: `*`, or `^...$`.

    Such a name selects other columns, so a condition on it would return rows that do not match.
    """
    for name in schema.names:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise Unsupported(
                "a column name that stands for a pattern of names cannot be used; rename it",
                column=name,
                patterns=("*", "^...$"),
                table=table,
            )


def _check_names(fields: Iterable[Field], inside: str, table: str) -> None:
    columns = tuple(fields)
    for name, count in Counter(column.name for column in columns).items():
        if not name.strip():
            raise InvalidRequest("a column name is blank", inside=inside, table=table)
        if count > 1:
            raise InvalidRequest(
                "two columns have the same name", column=inside + name, table=table
            )
    for column in columns:
        for row in _rows_in(column.type):
            if not row.fields:
                raise InvalidRequest(
                    "a ROW needs at least one field", column=inside + column.name, table=table
                )
            _check_names(row.fields, f"{inside}{column.name}.", table)


def _rows_in(data_type: DataType) -> tuple[Row, ...]:
    match data_type:
        case Row():
            return (data_type,)
        case Array() | Multiset():
            return _rows_in(data_type.element)
        case Map():
            return _rows_in(data_type.key) + _rows_in(data_type.value)
        case Atomic():
            return ()


def check_nesting(schema: TableSchema, options: TableOptions) -> None:
    """Check that no type is nested deeper than every format and engine can read."""
    for field in schema.fields:
        depth = _depth(field.type)
        if depth > NESTING_MAX:
            raise InvalidRequest(
                "the type is nested too deeply: its values could not be read back",
                column=field.name,
                depth=depth,
                most=NESTING_MAX,
                table=options.table,
            )


def _depth(data_type: DataType) -> int:
    return max((1 + _depth(part) for part in inner_types(data_type)), default=0)


def check_keys_are_columns(schema: TableSchema, options: TableOptions) -> None:
    """Check that each key is a column, is named once, and has a type that sorts and hashes."""
    for role, names in (
        ("primary key", schema.primary_keys),
        ("partition key", schema.partition_keys),
        ("bucket-key", options.bucket_key),
        ("sequence.field", options.sequence_field),
    ):
        for name, count in Counter(names).items():
            if name not in schema.by_name:
                raise InvalidRequest(
                    f"the {role} is not a column",
                    column=name,
                    columns=schema.names,
                    table=options.table,
                )
            if count > 1:
                raise InvalidRequest(
                    f"the {role} names a column twice", column=name, table=options.table
                )
            column = schema.by_name[name]
            if isinstance(column.type, _COMPLEX):
                raise InvalidRequest(
                    f"a column of this type cannot be a {role}",
                    column=name,
                    type=column.type,
                    table=options.table,
                )


def check_primary_key(schema: TableSchema, options: TableOptions) -> None:
    """Check that rows of one key share a partition and a bucket, unless buckets are dynamic."""
    if not schema.primary_keys:
        if options.primary_key_nullable:
            raise needs_primary_key("primary-key.nullable", options)
        return
    if not schema.trimmed_primary_keys:
        raise InvalidRequest(
            "the primary key consists only of partition keys: a partition would hold one row",
            primary_key=schema.primary_keys,
            partition_keys=schema.partition_keys,
            table=options.table,
        )
    missing = [name for name in schema.partition_keys if name not in schema.primary_keys]
    if missing and options.bucket >= 1:
        raise InvalidRequest(
            "the primary key must contain every partition key, unless buckets are "
            "dynamic (bucket=-1)",
            missing=missing,
            primary_key=schema.primary_keys,
            bucket=options.bucket,
            table=options.table,
        )
    if missing and options.sequence_field:
        raise InvalidRequest(
            "sequence.field needs a primary key that contains every partition key",
            missing=missing,
            table=options.table,
        )


def check_key_nullability(schema: TableSchema, options: TableOptions) -> None:
    """Check that keys are NOT NULL: null equals nothing, so rows with null would never merge."""
    for name in schema.primary_keys:
        if schema.by_name[name].nullable is not options.primary_key_nullable:
            raise InvalidRequest(
                "a primary-key column must be NOT NULL", column=name, table=options.table
            )


def check_defaults(schema: TableSchema, options: TableOptions) -> None:
    """Raise InvalidRequest for a default value that is not a value of its column's type."""
    del options
    for column in schema.fields:
        check_default(column.type, column.default_value, column=column.name)


def check_bucket(schema: TableSchema, options: TableOptions) -> None:
    """Check that the bucket key fits the number of buckets and the primary key."""
    if options.bucket_key and options.bucket == -1:
        raise InvalidRequest(
            "bucket-key needs a fixed number of buckets: set bucket, or leave bucket-key out",
            bucket_key=options.bucket_key,
            table=options.table,
        )
    if not schema.primary_keys and options.bucket == -2:
        raise needs_primary_key("bucket", options)
    if not schema.primary_keys and options.bucket >= 1 and not options.bucket_key:
        raise InvalidRequest(
            "a table without a primary key with a fixed number of buckets needs bucket-key",
            bucket=options.bucket,
            table=options.table,
        )
    for name in options.bucket_key:
        if name in schema.partition_keys:
            raise InvalidRequest(
                "a partition key cannot be in bucket-key", column=name, table=options.table
            )
        if schema.primary_keys and name not in schema.primary_keys:
            raise InvalidRequest(
                "bucket-key must be part of the primary key: otherwise a key would be in "
                "several buckets",
                column=name,
                primary_key=schema.primary_keys,
                table=options.table,
            )


def check_bucket_function(schema: TableSchema, options: TableOptions) -> None:
    """Check the bucket key: `mod` needs one integer column, `hive` types that it can hash."""
    function = options.bucket_function_type
    if function is BucketFunction.DEFAULT or options.bucket < 1:
        return
    keys = options.bucket_key or schema.trimmed_primary_keys
    roots = [getattr(schema.by_name[name].type, "root", None) for name in keys]
    shown = [f"{name} {schema.by_name[name].type}" for name in keys]
    if function is BucketFunction.MOD and roots not in ([Root.INT], [Root.BIGINT]):
        raise InvalidRequest(
            "bucket-function.type=mod needs one bucket key of type INT or BIGINT",
            bucket_key=shown,
            table=options.table,
        )
    if function is BucketFunction.HIVE and not set(roots).isdisjoint({None, *TIMESTAMPS}):
        raise InvalidRequest(
            "bucket-function.type=hive supports neither timestamps nor nested types",
            bucket_key=shown,
            table=options.table,
        )


# --- column directives ---------------------------------------------------------------------------
# Comments that say how a column is stored, as Paimon defines them.
#
# https://paimon.apache.org/docs/master/append-table/blob/
#
# - `__BLOB_FIELD; comment`: binaries, a list of these or a map to them become BLOB values;
# - `__BLOB_DESCRIPTOR_FIELD; comment`: binaries become BLOB, and rows hold descriptors of the
#   values;
# - `__BLOB_VIEW_FIELD; comment`: binaries become BLOB, and rows name values of other tables;
# - `__VECTOR_FIELD; length; comment`: a list becomes a VECTOR of this length.
#
# The option of the same name, such as `blob-field`, then names the column, and the text after the
# last semicolon of the directive becomes its comment.

_BLOB, _VECTOR = "__BLOB_FIELD", "__VECTOR_FIELD"
_OPTIONS = {
    _BLOB: "blob-field",
    "__BLOB_DESCRIPTOR_FIELD": "blob-descriptor-field",
    "__BLOB_VIEW_FIELD": "blob-view-field",
    _VECTOR: "vector-field",
}


def apply_directive(
    field: Field, options: Mapping[str, str], *, table: str = ""
) -> tuple[Field, dict[str, str]]:
    """The column as its comment says, and the options that name it.

    Raises InvalidRequest for a directive that Paimon does not know or that does not fit the type.
    """
    kept = _current(options)
    comment = (field.description or "").strip()
    if not _is_directive(comment):
        return field, kept
    marker, _, rest = (part.strip() for part in comment.partition(";"))
    facts = {"column": field.name, "comment": comment, "table": table}
    if marker not in _OPTIONS:
        raise InvalidRequest("the comment is no directive of Paimon", known=[*_OPTIONS], **facts)
    if marker == _VECTOR:
        length, _, rest = (part.strip() for part in rest.partition(";"))
        kind = _as_vector(field.type, length, field.name)
    else:
        kind = as_blob(field.type)
    fits = marker == _VECTOR or (
        kind is not None and is_blob(kind) and (marker == _BLOB or isinstance(kind, Atomic))
    )
    if kind is None or not fits:
        raise InvalidRequest(
            "the directive in the comment does not fit the column", type=field.type, **facts
        )
    key = _OPTIONS[marker]
    names = dict.fromkeys([*NAMES.parse(kept.get(key, "")), field.name])
    kept[key] = ",".join(names)
    return replace(field, type=kind, description=rest or None), kept


def refuse_directive(comment: str | None, path: Sequence[str], *, table: str = "") -> None:
    """Raise InvalidRequest if the comment is a directive, which would have no effect here.

    A directive has an effect only in the comment of a new column, not of an existing column or a
    nested field.
    """
    if _is_directive((comment or "").strip()):
        raise InvalidRequest(
            "a directive is followed in the comment only of a new column of a table",
            column=".".join(path),
            comment=comment,
            table=table,
        )


def without_column(options: Mapping[str, str], column: str) -> dict[str, str]:
    """The options; a dropped column is removed from the options that directives set."""
    kept = _current(options)
    for key in _OPTIONS.values():
        if key in kept:
            left = [name for name in NAMES.parse(kept.pop(key)) if name != column]
            kept |= {key: ",".join(left)} if left else {}
    return kept


def _current(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with the newest keys of those that directives set."""
    newest = {key: RENAMED.get(key, key) for key in options}
    return {
        newest[key] if newest[key] in _OPTIONS.values() else key: text
        for key, text in options.items()
    }


def _is_directive(comment: str) -> bool:
    return comment.startswith(("__BLOB", "__VECTOR"))


def _as_vector(data_type: DataType, length: str, column: str) -> DataType | None:
    is_number = length.isascii() and length.isdigit()
    if not isinstance(data_type, Array) or not is_number:
        return None
    return vector(data_type.element, int(length), column, nullable=data_type.nullable)
