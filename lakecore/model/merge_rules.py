"""The rules of a schema about merging: sequence fields, merge engines, aggregates, changelogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.types import (
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    Array,
    Atomic,
    DataType,
    Map,
    Root,
    Row,
    Vector,
)
from lakecore.options import ChangelogProducer, MergeEngine, TableOptions, member
from lakecore.options.choices import IcebergStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakecore.model.schema import TableSchema


_DEFAULT_FUNCTION = "fields.default-aggregate-function"
_AGGREGATING = (MergeEngine.AGGREGATION, MergeEngine.PARTIAL_UPDATE)
_USED_BY = {
    "fields_default_aggregate_function": _AGGREGATING,
    "fields_aggregate_function": _AGGREGATING,
    "fields_sequence_group": (MergeEngine.PARTIAL_UPDATE,),
}
"""The merge engines that use an option, by its attribute."""
_HIVE, _REST = (IcebergStorage.HIVE_CATALOG,), (IcebergStorage.REST_CATALOG,)
_REST_KEY = "metadata.iceberg.rest."
_LISTED_BY = {
    "metadata.iceberg.uri": _HIVE,
    "metadata.iceberg.hive-skip-update-stats": _HIVE,
    _REST_KEY: _REST,
    "metadata.iceberg.database": (*_HIVE, *_REST),
    "metadata.iceberg.table": (*_HIVE, *_REST),
}
"""The catalogs for whose entries an option is, by its key, or by how the keys begin."""


def needs_primary_key(key: str, options: TableOptions) -> InvalidRequest:
    """The error for an option that needs a primary key."""
    return InvalidRequest(
        "the option needs a primary key",
        option=key,
        value=options.texts.get(key, ""),
        table=options.table,
    )


def check_fields_families(schema: TableSchema, options: TableOptions) -> None:
    """Check that every `fields.X.*` option names a column."""
    for key in options.texts:
        found = member(key) if key.startswith("fields.") else None
        if found is None:
            continue
        family, named = found
        for name in named.split(",") if family == "fields_sequence_group" else (named,):
            _need_column(name, key, schema, options)


def check_have_effect(keys: Iterable[str], options: TableOptions) -> None:
    """Check that these options, which a user has set now, have an effect in the table.

    Some are of another merge engine, or of another kind of Iceberg catalog. A table that Java wrote
    may have options that it ignores.
    """
    for key in keys:
        found = "fields_default_aggregate_function" if key == _DEFAULT_FUNCTION else None
        if key.startswith("fields.") and (own := member(key)) is not None:
            found = own[0]
        engines = _USED_BY.get(found or "")
        if engines is not None and options.merge_engine not in engines:
            raise InvalidRequest(
                "the merge engine of the table ignores the option: set merge-engine, or leave the "
                "option out",
                option=key,
                merge_engine=options.merge_engine.value,
                used_by=[each.value for each in engines],
                table=options.table,
            )
        catalogs = _LISTED_BY.get(_REST_KEY if key.startswith(_REST_KEY) else key)
        storage = options.metadata_iceberg_storage
        if catalogs and storage not in (*catalogs, IcebergStorage.DISABLED):
            raise InvalidRequest(
                "metadata.iceberg.storage of the table ignores the option: set another storage, or "
                "leave the option out",
                option=key,
                storage=storage.value,
                used_by=[each.value for each in catalogs],
                table=options.table,
            )


def check_sequence(schema: TableSchema, options: TableOptions) -> None:
    """Check sequence fields: a first-row table has none, and none has an aggregate function."""
    if not options.sequence_field:
        return
    if options.merge_engine is MergeEngine.FIRST_ROW:
        raise InvalidRequest(
            "merge-engine=first-row takes no sequence.field",
            sequence_field=options.sequence_field,
            table=options.table,
        )
    for name in options.sequence_field:
        if name in options.fields_aggregate_function:
            raise InvalidRequest(
                "a sequence field cannot have an aggregate function",
                column=name,
                function=options.fields_aggregate_function[name],
                table=options.table,
            )
    if not schema.primary_keys:
        raise needs_primary_key("sequence.field", options)


def check_row_kind(schema: TableSchema, options: TableOptions) -> None:
    """Check that the column that `rowkind.field` names exists and is a string."""
    name = options.rowkind_field
    if name is None:
        return
    if not schema.primary_keys:
        raise needs_primary_key("rowkind.field", options)
    column = schema.by_name.get(name)
    if column is None:
        raise InvalidRequest(
            "the rowkind.field is not a column",
            column=name,
            columns=schema.names,
            table=options.table,
        )
    if not (isinstance(column.type, Atomic) and column.type.root in STRINGS):
        raise InvalidRequest(
            "the rowkind.field must be a STRING column",
            column=name,
            type=column.type,
            table=options.table,
        )


def check_merge_engine(schema: TableSchema, options: TableOptions) -> None:
    """Check that the merge engine fits keys, changelog producer, deletion vectors and functions."""
    if not schema.primary_keys:
        if options.merge_engine is not MergeEngine.DEDUPLICATE:
            raise needs_primary_key("merge-engine", options)
        return
    if options.merge_engine is MergeEngine.FIRST_ROW:
        if options.changelog_producer not in (ChangelogProducer.NONE, ChangelogProducer.LOOKUP):
            raise InvalidRequest(
                "merge-engine=first-row supports only changelog-producer none and lookup",
                changelog_producer=options.changelog_producer,
                table=options.table,
            )
        if options.deletion_vectors_enabled:
            raise InvalidRequest(
                "merge-engine=first-row does not support deletion vectors", table=options.table
            )
    if options.merge_engine is MergeEngine.PARTIAL_UPDATE:
        _check_sequence_groups(schema, options)
    if options.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION):
        _check_aggregates(schema, options)


def check_changelog(schema: TableSchema, options: TableOptions) -> None:
    """Check that the changelog producer fits the keys, overwrites and compaction."""
    producer = options.changelog_producer
    if producer is not ChangelogProducer.NONE and not schema.primary_keys:
        raise needs_primary_key("changelog-producer", options)
    emitted_late = producer in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
    if emitted_late and options.streaming_read_overwrite:
        raise InvalidRequest(
            "streaming-read-overwrite would emit changes twice with this changelog-producer",
            changelog_producer=producer,
            table=options.table,
        )
    if options.streaming_read_overwrite and not schema.primary_keys:
        raise needs_primary_key("streaming-read-overwrite", options)
    if producer is ChangelogProducer.LOOKUP and options.full_compaction_delta_commits is not None:
        raise InvalidRequest(
            "full-compaction.delta-commits cannot be combined with changelog-producer=lookup",
            full_compaction_delta_commits=options.full_compaction_delta_commits,
            table=options.table,
        )
    if producer is ChangelogProducer.FULL_COMPACTION and options.deletion_vectors_enabled:
        raise InvalidRequest(
            "deletion vectors need changelog-producer none, input or lookup",
            changelog_producer=producer,
            table=options.table,
        )
    for name in options.changelog_producer_row_deduplicate_ignore_fields:
        _need_column(name, "changelog-producer.row-deduplicate-ignore-fields", schema, options)
    unaware = not schema.primary_keys and options.bucket == -1
    if unaware and options.full_compaction_delta_commits is not None:
        raise needs_primary_key("full-compaction.delta-commits", options)


# --- sequence groups and aggregates -------------------------------------------------------------


def _check_sequence_groups(schema: TableSchema, options: TableOptions) -> None:
    grouped: dict[str, str] = {}
    for sequence, columns in options.fields_sequence_group.items():
        key = f"fields.{sequence}.sequence-group"
        own = dict.fromkeys(sequence.split(","))
        for name in (*own, *(column for column in columns if column not in own)):
            _need_column(name, key, schema, options)
            if name in schema.primary_keys:
                raise InvalidRequest(
                    "a primary-key column cannot be in a sequence group",
                    column=name,
                    option=key,
                    table=options.table,
                )
            if name in grouped:
                raise InvalidRequest(
                    "a column is in two sequence groups, or twice in one",
                    column=name,
                    options=(grouped[name], key),
                    table=options.table,
                )
            grouped[name] = key
    removing = options.partial_update_remove_record_on_sequence_group
    conflicts = {
        "partial-update.remove-record-on-delete and ignore-delete": (
            options.partial_update_remove_record_on_delete and options.ignore_delete
        ),
        "partial-update.remove-record-on-sequence-group and ignore-delete": (
            bool(removing) and options.ignore_delete
        ),
        "partial-update.remove-record-on-delete and sequence groups": (
            options.partial_update_remove_record_on_delete and bool(grouped)
        ),
    }
    for both, conflict in conflicts.items():
        if conflict:
            raise InvalidRequest(
                "two options contradict each other", both=both, table=options.table
            )
    sequences = {name for group in options.fields_sequence_group for name in group.split(",")}
    for name in removing:
        if name not in sequences:
            raise InvalidRequest(
                "partial-update.remove-record-on-sequence-group names no sequence column",
                column=name,
                sequence_columns=sorted(sequences),
                table=options.table,
            )


def _check_aggregates(schema: TableSchema, options: TableOptions) -> None:
    default = options.fields_default_aggregate_function
    if default is not None:
        _need_function(default, "fields.default-aggregate-function", options)
    ignoring = [name for name, ignores in options.fields_ignore_retract.items() if ignores]
    if ignoring and options.aggregation_remove_record_on_delete:
        raise InvalidRequest(
            "two options contradict each other",
            both=f"aggregation.remove-record-on-delete and fields.{ignoring[0]}.ignore-retract",
            table=options.table,
        )
    if options.merge_engine is MergeEngine.PARTIAL_UPDATE:
        _check_grouped(schema, options)
    for name, function in options.fields_aggregate_function.items():
        key = f"fields.{name}.aggregate-function"
        _need_function(function, key, options)
        if name in schema.primary_keys:
            raise InvalidRequest(
                "a primary-key column cannot have an aggregate function",
                column=name,
                option=key,
                table=options.table,
            )
        _need_type(function, name, schema, options)
    for name, function in aggregate_functions(schema, options).items():
        _need_type(function, name, schema, options)
        _need_parts(function, name, schema.by_name[name].type, options)


def _need_parts(function: str, name: str, data_type: DataType, options: TableOptions) -> None:
    """Check that the options of an aggregate function name fields of the ROWs in its column."""
    match data_type:
        case Array(element=Row() as row) | Map(value=Row() as row):
            parts = [field.name for field in row.fields]
        case _:
            return
    named: dict[str, Sequence[str]] = {}
    if function in ("nested_update", "nested_partial_update"):
        named["nested-key"] = options.fields_nested_key.get(name, ())
        named["nested-sequence-field"] = options.fields_nested_sequence_field.get(name, ())
    elif function == "merge_map_with_keytime" and name in options.fields_ts_field:
        named["ts-field"] = [options.fields_ts_field[name]]
    for option, names in named.items():
        wrong = [part for part in names if part not in parts]
        if wrong or (not names and (function, option) == ("nested_partial_update", "nested-key")):
            raise InvalidRequest(
                "the aggregate function needs fields of the ROWs in the column",
                column=name,
                function=function,
                option=f"fields.{name}.{option}",
                missing=wrong,
                parts=parts,
                table=options.table,
            )


def aggregate_functions(schema: TableSchema, options: TableOptions) -> dict[str, str]:
    """The aggregate function of each column that the merge engine folds, by column name.

    A column's own function replaces the default one. Primary-key columns and the sequence columns
    of a sequence group have none.
    """
    aggregates_all = options.merge_engine is MergeEngine.AGGREGATION
    if not aggregates_all and options.merge_engine is not MergeEngine.PARTIAL_UPDATE:
        return {}
    names = options.fields_sequence_group if not aggregates_all else ()
    ordering = {name.strip() for group in names for name in group.split(",")}
    found: dict[str, str] = {}
    for name in schema.names:
        function = options.fields_aggregate_function.get(name)
        function = function or options.fields_default_aggregate_function
        if aggregates_all:
            function = function or "last_non_null_value"
            function = "last_value" if name in options.sequence_field else function
        if function is not None and name not in ordering and name not in schema.primary_keys:
            found[name] = function
    return found


def _check_grouped(schema: TableSchema, options: TableOptions) -> None:
    """Check that columns with functions are in a sequence group, which defines their order."""
    grouped = {name for columns in options.fields_sequence_group.values() for name in columns}
    for name, function in aggregate_functions(schema, options).items():
        if function != "last_non_null_value" and name not in grouped:
            raise InvalidRequest(
                "merge-engine=partial-update aggregates only columns of a sequence group; put the "
                "column into one, or use last_non_null_value",
                column=name,
                function=function,
                table=options.table,
            )


def _need_function(function: str, key: str, options: TableOptions) -> None:
    if function not in AGGREGATE_FUNCTIONS:
        raise InvalidRequest(
            "unknown aggregate function",
            option=key,
            value=function,
            allowed=sorted(AGGREGATE_FUNCTIONS),
            table=options.table,
        )


def _need_type(function: str, name: str, schema: TableSchema, options: TableOptions) -> None:
    if not AGGREGATE_FUNCTIONS[function](schema.by_name[name].type):
        raise InvalidRequest(
            "the aggregate function does not support the column's type",
            column=name,
            type=schema.by_name[name].type,
            function=function,
            table=options.table,
        )


def _need_column(name: str, key: str, schema: TableSchema, options: TableOptions) -> None:
    if name not in schema.by_name:
        raise InvalidRequest(
            "the option names a column that does not exist",
            option=key,
            column=name,
            columns=schema.names,
            table=options.table,
        )


def _of_roots(*roots: Root) -> Callable[[DataType], bool]:
    return lambda data_type: isinstance(data_type, Atomic) and data_type.root in roots


def _is_rows(data_type: DataType) -> bool:
    return isinstance(data_type, Array) and isinstance(data_type.element, Row)


def _is_map_of_rows(data_type: DataType) -> bool:
    """Whether the type is a MAP to ROWs of at least two fields: a value and its time."""
    rows = data_type.value if isinstance(data_type, Map) else None
    return isinstance(rows, Row) and len(rows.fields) > 1


def _is_plain(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic)


def _is_string(data_type: DataType) -> bool:
    """Whether the type is STRING without a length limit: joined values outgrow any limit."""
    return _of_roots(Root.VARCHAR)(data_type) and getattr(data_type, "length", 0) == LENGTH_MAX


def _is_any(data_type: DataType) -> bool:
    del data_type
    return True


_is_number = _of_roots(*INTEGERS, Root.FLOAT, Root.DOUBLE, Root.DECIMAL)
_is_bytes = _of_roots(Root.VARBINARY)

AGGREGATE_FUNCTIONS: Mapping[str, Callable[[DataType], bool]] = {
    "sum": _is_number,
    "product": _is_number,
    "max": _is_plain,
    "min": _is_plain,
    "last_value": _is_any,
    "last_non_null_value": _is_any,
    "first_value": _is_any,
    "first_non_null_value": _is_any,
    "first_not_null_value": _is_any,
    "listagg": _is_string,
    "bool_and": _of_roots(Root.BOOLEAN),
    "bool_or": _of_roots(Root.BOOLEAN),
    "collect": lambda data_type: isinstance(data_type, Array) and not isinstance(data_type, Vector),
    "merge_map": lambda data_type: isinstance(data_type, Map),
    "merge_map_with_keytime": _is_map_of_rows,
    "nested_update": _is_rows,
    "nested_partial_update": _is_rows,
    "rbm32": _is_bytes,
    "rbm64": _is_bytes,
    "hll_sketch": _is_bytes,
    "theta_sketch": _is_bytes,
}
"""The aggregate functions, each with a check of the types that it supports."""
