"""Creates a schema, and checks the rules that every schema must keep before it is written.

Each rule checks one thing and raises InvalidRequest with its own message. Together they are
Paimon's checks for every option that lakecore knows. A table that breaks a rule would lose or mix
up rows in some engine.

A schema that is valid in Paimon but not supported by lakecore passes here. Reading or writing such
a table raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.blob_rules import check_blobs, with_blobs
from lakecore.model.column_rules import (
    apply_directive,
    check_bucket,
    check_bucket_function,
    check_column_names,
    check_defaults,
    check_key_nullability,
    check_keys_are_columns,
    check_nesting,
    check_primary_key,
)
from lakecore.model.file_indexes import check_file_indexes
from lakecore.model.merge_rules import (
    check_changelog,
    check_fields_families,
    check_have_effect,
    check_merge_engine,
    check_row_kind,
    check_sequence,
)
from lakecore.model.option_rules import (
    check_clustering,
    check_formats,
    check_levels,
    check_partition_expiry,
    check_record_expiry,
    check_retained,
    check_row_tracking,
    check_scan,
    check_sizes,
    check_snapshot_ordering,
)
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import (
    DataType,
    Field,
    fields_from_arrow,
    fields_from_polars,
    parse_type,
    with_nullable,
)
from lakecore.options import (
    NEVER_STORED,
    ROW_TABLES,
    TableOptions,
    parse_known,
    parse_options,
    tidy,
)

Columns: TypeAlias = "pa.Schema | pl.Schema | Mapping[str, str | DataType] | Sequence[Field]"


def create_schema(  # noqa: PLR0913  the parts of a table, all by name
    columns: Columns,
    *,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    now_ms: int,
    table: str = "",
) -> TableSchema:
    """The first schema of a new table: columns numbered, key columns NOT NULL, all rules checked.

    Columns are an Arrow or Polars schema, Paimon's type texts by name, or fields (their ids are
    ignored). The options `primary-key` and `partition` become the keys.
    """
    given = dict(options or {})
    for key, value in given.items():
        if not isinstance(value, str):
            raise InvalidRequest("the value of an option is a string", option=key, value=value)
    if comment is not None and not isinstance(comment, str):
        raise InvalidRequest("the comment of a table is a string", comment=comment, table=table)
    primary, partitions, kept = lift_keys(given, primary_keys, partition_keys, table=table)
    stated: list[Field] = []
    for column in _fields(columns):
        field, kept = apply_directive(column, kept, table=table)
        stated.append(field)
    parsed = parse_options(kept, table=table, creating=True)
    if parsed.type not in ROW_TABLES:
        raise Unsupported(
            "lakecore creates no table of this kind: leave out the option",
            option="type",
            value=parsed.type,
            table=table,
        )
    fields = with_blobs(stated, parsed)
    nullable_keys = parsed.primary_key_nullable
    fields, next_id = number_fields(
        key_columns(fields, primary, nullable=nullable_keys), int(parsed.field_id_one_based)
    )
    kept = tidy(kept)
    check_stored(kept, table=table)
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=next_id - 1,
        partition_keys=partitions,
        primary_keys=primary,
        options=kept,
        comment=comment,
        time_ms=now_ms,
    )
    validate_schema(schema, table=table)
    check_have_effect(kept, parse_known(kept, table=table))
    return schema


def check_stored(options: Mapping[str, str], *, table: str = "") -> None:
    """Raise InvalidRequest for options that no table stores."""
    own = sorted(NEVER_STORED)
    for key, harmless, way_out in (
        (
            "path",
            None,
            "the name of a table determines its path; lakecore.open_table opens any path",
        ),
        ("branch", "main", "open a branch by open_table(branch=...), or as 'db.table$branch_NAME'"),
        ("auto-create", "false", "pass it to lakecore.open_table"),
        *((key, None, "whoever uses the table gives it, as a dynamic option") for key in own),
    ):
        text = options.get(key)
        if text is not None and text.lower() != harmless:
            raise InvalidRequest(
                "the option cannot be stored in a table",
                option=key,
                value=text,
                way_out=way_out,
                table=table,
            )


def lift_keys(
    options: Mapping[str, str],
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    *,
    table: str = "",
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """The primary keys, the partition keys, and the options without `primary-key`, `partition`."""
    kept = dict(options)
    keys: list[tuple[str, ...]] = []
    for key, declared in (("primary-key", primary_keys), ("partition", partition_keys)):
        text = kept.pop(key, None)
        if text is not None and declared:
            raise InvalidRequest(
                "the keys are stated twice, as an argument and as an option",
                option=key,
                columns=tuple(declared),
                table=table,
            )
        names = declared if text is None else (name.strip() for name in text.split(","))
        keys.append(tuple(name for name in names if name))
    return keys[0], keys[1], kept


def key_columns(
    fields: Sequence[Field], primary_keys: Sequence[str], *, nullable: bool = False
) -> tuple[Field, ...]:
    """The fields, with those of the primary key NOT NULL (or nullable)."""
    return tuple(
        replace(column, type=with_nullable(column.type, nullable=nullable))
        if column.name in primary_keys
        else column
        for column in fields
    )


def validate_schema(
    schema: TableSchema, options: TableOptions | None = None, *, table: str = ""
) -> None:
    """Raise InvalidRequest for the first rule that the schema breaks.

    `options` default to the schema's own, parsed as for a new table.
    """
    if options is None:
        options = parse_options(schema.options, table=table, creating=True)
    for rule in _RULES:
        rule(schema, options)


def check_dynamic_rules(schema: TableSchema, options: TableOptions, *, table: str = "") -> None:
    """Raise InvalidRequest if dynamic options of one `Table` object break a rule.

    A rule is not checked if the stored options already break it: the table then comes from another
    engine, which accepts it. Two options cannot differ from the stored ones:

    - `bucket`: other writers and readers would look for rows in other buckets;
    - whether compaction looks up rows: after compactions with look-ups, a reader without look-ups
      would count rows twice.
    """
    stated = parse_known(schema.stated_options, table=table)
    if options.bucket != stated.bucket:
        raise InvalidRequest(
            "bucket cannot be a dynamic option: alter the table",
            bucket=stated.bucket,
            given=options.bucket,
            table=table,
        )
    levels_count = options.folds_rows or bool(options.sequence_field)
    if levels_count and options.needs_lookup != stated.needs_lookup:
        raise InvalidRequest(
            "options that make compaction look up rows cannot be dynamic: alter the table",
            changelog_producer=options.changelog_producer,
            force_lookup=options.force_lookup,
            deletion_vectors=options.deletion_vectors_enabled,
            merge_engine=options.merge_engine,
            table=table,
        )
    try:
        validate_schema(replace(schema, options=dict(options.texts)), options, table=table)
    except InvalidRequest:
        try:
            validate_schema(schema, parse_known(schema.stated_options, table=table), table=table)
        except (InvalidRequest, Unsupported):
            return
        raise


def _fields(columns: Columns) -> tuple[Field, ...]:
    if isinstance(columns, pa.Schema):
        return fields_from_arrow(list(columns))
    if isinstance(columns, pl.Schema):
        return fields_from_polars(columns)
    if isinstance(columns, Mapping):
        return tuple(
            Field(
                id=index,
                name=name,
                type=parse_type(source, context=name) if isinstance(source, str) else source,
            )
            for index, (name, source) in enumerate(columns.items())
        )
    return tuple(columns)


_RULES: tuple[Callable[[TableSchema, TableOptions], None], ...] = (
    check_column_names,
    check_nesting,
    check_keys_are_columns,
    check_primary_key,
    check_key_nullability,
    check_defaults,
    check_bucket,
    check_bucket_function,
    check_fields_families,
    check_sequence,
    check_row_kind,
    check_merge_engine,
    check_changelog,
    check_sizes,
    check_levels,
    check_formats,
    check_retained,
    check_clustering,
    check_record_expiry,
    check_partition_expiry,
    check_row_tracking,
    check_blobs,
    check_snapshot_ordering,
    check_scan,
    check_file_indexes,
)
