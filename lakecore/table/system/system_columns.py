"""The columns of each system table: Paimon's names, types and order, as of its release 1.4.

https://paimon.apache.org/docs/master/concepts/system-tables/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.model.schema import TableSchema
from lakecore.model.types import Field, parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SYSTEM_TABLES", "UNSUPPORTED_SYSTEM_TABLES", "SystemColumn", "system_schema"]


@dataclass(frozen=True, slots=True)
class SystemColumn:
    """One column of a system table: its type as Paimon writes it, and what it holds."""

    name: str
    type: str
    meaning: str


def _columns(text: str) -> tuple[SystemColumn, ...]:
    """Parse the columns from lines of the form `name | TYPE | meaning`."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return tuple(SystemColumn(*row) for row in rows)


_VECTORS = (
    "ARRAY<ROW<`f0` STRING NOT NULL, `f1` INT NOT NULL, `f2` INT NOT NULL, `_CARDINALITY` BIGINT>>"
)

SYSTEM_TABLES: Mapping[str, tuple[SystemColumn, ...]] = {
    "snapshots": _columns("""
        snapshot_id | BIGINT NOT NULL | the snapshot, numbered from 1
        schema_id | BIGINT NOT NULL | the schema of the table when it was committed
        commit_user | STRING NOT NULL | the job that committed it
        commit_identifier | BIGINT NOT NULL | the number that job gave the commit
        commit_kind | STRING NOT NULL | APPEND, COMPACT, OVERWRITE or ANALYZE
        commit_time | TIMESTAMP(3) NOT NULL | when, in local time of this process
        base_manifest_list | STRING NOT NULL | file of what was there before
        delta_manifest_list | STRING NOT NULL | file of what it changed
        changelog_manifest_list | STRING | file of its changelog
        total_record_count | BIGINT | rows stored after it, unmerged
        delta_record_count | BIGINT | rows it added, less those of files it took away
        changelog_record_count | BIGINT | rows of its changelog
        watermark | BIGINT | its watermark, in milliseconds since 1970
        next_row_id | BIGINT | the first row id that is free after it
    """),
    "schemas": _columns("""
        schema_id | BIGINT NOT NULL | the schema, numbered from 0
        fields | STRING NOT NULL | its columns, as JSON
        partition_keys | STRING NOT NULL | its partition keys, as JSON
        primary_keys | STRING NOT NULL | its primary keys, as JSON
        options | STRING NOT NULL | its options, as JSON
        comment | STRING | the comment of the table
        update_time | TIMESTAMP(3) NOT NULL | when it was made, in local time of this process
    """),
    "options": _columns("""
        key | STRING NOT NULL | an option that was set
        value | STRING NOT NULL | its value, as text
    """),
    "files": _columns("""
        partition | STRING | the partition's values, as {a, b}
        bucket | INT NOT NULL | the bucket
        file_path | STRING NOT NULL | the whole path of the data file
        file_format | STRING NOT NULL | parquet, orc, avro, csv, json or text
        schema_id | BIGINT NOT NULL | the schema it was written with
        level | INT NOT NULL | its level in the LSM tree of the bucket, 0 the newest
        record_count | BIGINT NOT NULL | its rows, unmerged
        file_size_in_bytes | BIGINT NOT NULL | its size
        min_key | STRING | the first key, as [a, b]; null for an append table
        max_key | STRING | the last key
        null_value_counts | STRING NOT NULL | nulls by column, as {a=0, b=1}
        min_value_stats | STRING NOT NULL | least value by column, as {a=1, b=null}
        max_value_stats | STRING NOT NULL | greatest value by column
        min_sequence_number | BIGINT | its least sequence number
        max_sequence_number | BIGINT | its greatest sequence number
        creation_time | TIMESTAMP(3) | when it was written, in local time of its writer
        deleteRowCount | BIGINT | its rows of kind -U and -D
        file_source | STRING | APPEND or COMPACT: what wrote it
        first_row_id | BIGINT | the row id of its first row
        write_cols | ARRAY<STRING> | the columns it holds, if not all
    """),
    "manifests": _columns("""
        file_name | STRING NOT NULL | the manifest, in the folder `manifest`
        file_size | BIGINT NOT NULL | its bytes
        num_added_files | BIGINT NOT NULL | data files it adds
        num_deleted_files | BIGINT NOT NULL | data files it removes
        schema_id | BIGINT NOT NULL | the schema it was written with
        min_partition_stats | STRING | least partition values in it, as {a, b}
        max_partition_stats | STRING | greatest partition values in it
        min_row_id | BIGINT | the least row id in it
        max_row_id | BIGINT | the greatest row id in it
    """),
    "partitions": _columns("""
        partition | STRING | the partition, as a=1/b=2; empty for an unpartitioned table
        record_count | BIGINT NOT NULL | rows stored, unmerged
        file_size_in_bytes | BIGINT NOT NULL | bytes of its data files
        file_count | BIGINT NOT NULL | number of its data files
        last_update_time | TIMESTAMP(3) | when the newest was written, by its writer's clock
        created_at | TIMESTAMP(3) | null: a filesystem catalog does not know
        created_by | STRING | null: a filesystem catalog does not know
        updated_by | STRING | null: a filesystem catalog does not know
        options | STRING | null: a filesystem catalog has none
    """),
    "buckets": _columns("""
        partition | STRING | the partition's values, as {a, b}
        bucket | INT NOT NULL | the bucket
        record_count | BIGINT NOT NULL | rows stored, unmerged
        file_size_in_bytes | BIGINT NOT NULL | bytes of its data files
        file_count | BIGINT NOT NULL | number of its data files
        last_update_time | TIMESTAMP(3) | when the newest was written, by its writer's clock
    """),
    "tags": _columns("""
        tag_name | STRING NOT NULL | the tag
        snapshot_id | BIGINT NOT NULL | the snapshot it keeps
        schema_id | BIGINT NOT NULL | the schema of that snapshot
        commit_time | TIMESTAMP(3) NOT NULL | when that was committed, in local time of this process
        record_count | BIGINT | rows stored then, unmerged
        create_time | TIMESTAMP(3) | when the tag was made, by its maker's clock
        time_retained | STRING | how long it is kept, as PT24H; null: for ever
    """),
    "branches": _columns("""
        branch_name | STRING NOT NULL | the branch
        create_time | TIMESTAMP(3) NOT NULL | when its directory was last changed, in local time
    """),
    "consumers": _columns("""
        consumer_id | STRING NOT NULL | the consumer
        next_snapshot_id | BIGINT NOT NULL | the snapshot that it reads next
    """),
    "aggregation_fields": _columns("""
        field_name | STRING NOT NULL | a column
        field_type | STRING NOT NULL | its type
        function | STRING | the values of its options, as [sum]
        function_options | STRING | the keys of its options, as [fields.a.aggregate-function]
        comment | STRING | the comment of the column
    """),
    "file_key_ranges": _columns("""
        partition | STRING | the partition's values, as {a, b}
        bucket | INT NOT NULL | the bucket
        file_path | STRING NOT NULL | the whole path of the data file
        file_format | STRING NOT NULL | parquet, orc, avro, csv, json or text
        schema_id | BIGINT NOT NULL | the schema it was written with
        level | INT NOT NULL | its level in the LSM tree of the bucket, 0 the newest
        record_count | BIGINT NOT NULL | its rows, unmerged
        file_size_in_bytes | BIGINT NOT NULL | its size
        min_key | STRING | the first key, as [a, b]; null for an append table
        max_key | STRING | the last key
        first_row_id | BIGINT | the row id of its first row
    """),
    "table_indexes": _columns(f"""
        partition | STRING | the partition's values, as {{a, b}}
        bucket | INT NOT NULL | the bucket
        index_type | STRING NOT NULL | HASH or DELETION_VECTORS
        file_name | STRING NOT NULL | the index file
        file_size | BIGINT NOT NULL | its size
        row_count | BIGINT NOT NULL | its hashes or deletion vectors
        dv_ranges | {_VECTORS} | the position of each deletion vector in the file
    """),
    "statistics": _columns("""
        snapshot_id | BIGINT NOT NULL | the snapshot that was analyzed
        schema_id | BIGINT NOT NULL | the schema of that snapshot
        mergedRecordCount | BIGINT | its rows, merged
        mergedRecordSize | BIGINT | their size in bytes
        colstat | STRING | the statistics of columns, as JSON
    """),
}

UNSUPPORTED_SYSTEM_TABLES = ("file_indexes",)
"""System tables that Paimon has and lakecore does not."""


def system_schema(name: str) -> TableSchema:
    """The columns of a system table as a schema."""
    fields = tuple(
        Field(
            id=index,
            name=column.name,
            type=parse_type(column.type, context=column.name),
            description=column.meaning,
        )
        for index, column in enumerate(SYSTEM_TABLES[name])
    )
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)
