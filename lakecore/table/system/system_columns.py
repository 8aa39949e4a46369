"""The columns of each system table: Paimon's names, types and order, as of its release 1.4.

https://paimon.apache.org/docs/master/concepts/system-tables/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from lakecore.errors import InvalidRequest
from lakecore.model.schema import TableSchema
from lakecore.model.types import Field, parse_type
from lakecore.table.reads.readable import Readable
from lakecore.table.reads.time_travel import Travel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.frames.source import RowSource
    from lakecore.plan.predicate import Predicate


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
        snapshot_id | BIGINT NOT NULL | the id of the snapshot; the first one is 1
        schema_id | BIGINT NOT NULL | the table's schema at the time of the commit
        commit_user | STRING NOT NULL | the job that made the commit
        commit_identifier | BIGINT NOT NULL | the number that the job gave the commit
        commit_kind | STRING NOT NULL | APPEND, COMPACT, OVERWRITE or ANALYZE
        commit_time | TIMESTAMP(3) NOT NULL | the time of the commit, in local time of this process
        base_manifest_list | STRING NOT NULL | manifest list of the files before the commit
        delta_manifest_list | STRING NOT NULL | manifest list of the changes
        changelog_manifest_list | STRING | manifest list of the changelog
        total_record_count | BIGINT | stored rows after the commit, before a merge
        delta_record_count | BIGINT | rows of the added files minus rows of the deleted files
        changelog_record_count | BIGINT | rows of the changelog
        watermark | BIGINT | the watermark, in milliseconds since 1970
        next_row_id | BIGINT | the first unused row id after the commit
    """),
    "schemas": _columns("""
        schema_id | BIGINT NOT NULL | the id of the schema; the first one is 0
        fields | STRING NOT NULL | the columns, as JSON
        partition_keys | STRING NOT NULL | the partition keys, as JSON
        primary_keys | STRING NOT NULL | the primary keys, as JSON
        options | STRING NOT NULL | the options, as JSON
        comment | STRING | the comment of the table
        update_time | TIMESTAMP(3) NOT NULL | when the schema was created, in local time
    """),
    "options": _columns("""
        key | STRING NOT NULL | an option that was set
        value | STRING NOT NULL | its value, as text
    """),
    "files": _columns("""
        partition | STRING | the partition's values, as {a, b}
        bucket | INT NOT NULL | the bucket
        file_path | STRING NOT NULL | the full path of the data file
        file_format | STRING NOT NULL | parquet, orc, avro, csv, json or text
        schema_id | BIGINT NOT NULL | the schema with which the file was written
        level | INT NOT NULL | the level of the file; level 0 is the newest
        record_count | BIGINT NOT NULL | rows of the file, before a merge
        file_size_in_bytes | BIGINT NOT NULL | size of the file
        min_key | STRING | the first key, as [a, b]; null for an append table
        max_key | STRING | the last key
        null_value_counts | STRING NOT NULL | number of nulls of each column, as {a=0, b=1}
        min_value_stats | STRING NOT NULL | least value of each column, as {a=1, b=null}
        max_value_stats | STRING NOT NULL | greatest value of each column
        min_sequence_number | BIGINT | the least sequence number
        max_sequence_number | BIGINT | the greatest sequence number
        creation_time | TIMESTAMP(3) | when the file was written, in local time of the writer
        deleteRowCount | BIGINT | number of rows of kind -U and -D
        file_source | STRING | APPEND: a write made the file; COMPACT: a compaction did
        first_row_id | BIGINT | the row id of the first row
        write_cols | ARRAY<STRING> | the columns of the file; null if it has all
    """),
    "manifests": _columns("""
        file_name | STRING NOT NULL | the name of the manifest, a file in the folder `manifest`
        file_size | BIGINT NOT NULL | size of the manifest in bytes
        num_added_files | BIGINT NOT NULL | number of data files added
        num_deleted_files | BIGINT NOT NULL | number of data files deleted
        schema_id | BIGINT NOT NULL | the schema with which the manifest was written
        min_partition_stats | STRING | least partition values, as {a, b}
        max_partition_stats | STRING | greatest partition values
        min_row_id | BIGINT | the least row id of its files
        max_row_id | BIGINT | the greatest row id of its files
    """),
    "partitions": _columns("""
        partition | STRING | the partition, as a=1/b=2; empty for an unpartitioned table
        record_count | BIGINT NOT NULL | stored rows, before a merge
        file_size_in_bytes | BIGINT NOT NULL | bytes of data files
        file_count | BIGINT NOT NULL | number of data files
        last_update_time | TIMESTAMP(3) | when the newest file was written, by the writer's clock
        created_at | TIMESTAMP(3) | null: a filesystem catalog does not store it
        created_by | STRING | null: a filesystem catalog does not store it
        updated_by | STRING | null: a filesystem catalog does not store it
        options | STRING | null: a filesystem catalog does not store them
    """),
    "buckets": _columns("""
        partition | STRING | the partition's values, as {a, b}
        bucket | INT NOT NULL | the bucket
        record_count | BIGINT NOT NULL | stored rows, before a merge
        file_size_in_bytes | BIGINT NOT NULL | bytes of data files
        file_count | BIGINT NOT NULL | number of data files
        last_update_time | TIMESTAMP(3) | when the newest file was written, by the writer's clock
    """),
    "tags": _columns("""
        tag_name | STRING NOT NULL | the tag
        snapshot_id | BIGINT NOT NULL | the snapshot of the tag
        schema_id | BIGINT NOT NULL | the schema of that snapshot
        commit_time | TIMESTAMP(3) NOT NULL | when the snapshot was committed, in local time
        record_count | BIGINT | stored rows of the snapshot, before a merge
        create_time | TIMESTAMP(3) | when the tag was created, by the clock of its creator
        time_retained | STRING | the time to live, such as PT24H; null: for ever
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
        file_path | STRING NOT NULL | the full path of the data file
        file_format | STRING NOT NULL | parquet, orc, avro, csv, json or text
        schema_id | BIGINT NOT NULL | the schema with which the file was written
        level | INT NOT NULL | the level of the file; level 0 is the newest
        record_count | BIGINT NOT NULL | rows of the file, before a merge
        file_size_in_bytes | BIGINT NOT NULL | size of the file
        min_key | STRING | the first key, as [a, b]; null for an append table
        max_key | STRING | the last key
        first_row_id | BIGINT | the row id of the first row
    """),
    "table_indexes": _columns(f"""
        partition | STRING | the partition's values, as {{a, b}}
        bucket | INT NOT NULL | the bucket
        index_type | STRING NOT NULL | HASH or DELETION_VECTORS
        file_name | STRING NOT NULL | the index file
        file_size | BIGINT NOT NULL | size of the index file
        row_count | BIGINT NOT NULL | number of hashes or deletion vectors in the file
        dv_ranges | {_VECTORS} | data file, offset, length and row count of each deletion vector
    """),
    "statistics": _columns("""
        snapshot_id | BIGINT NOT NULL | the snapshot that was analyzed
        schema_id | BIGINT NOT NULL | the schema of that snapshot
        mergedRecordCount | BIGINT | number of rows after a merge
        mergedRecordSize | BIGINT | size of these rows in bytes
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


# --- system table --------------------------------------------------------------------------------
# A system table (`$` table): metadata rows, read like any other table and never written.


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSource:
    """The rows of a system table as a source of batches, computed for each reader."""

    table_schema: TableSchema
    load: Callable[[], pa.Table]

    @property
    def schema(self) -> pa.Schema:
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows in batches of the requested columns. The predicate is ignored."""
        rows = self.load()
        if limit is not None and predicate is None:
            rows = rows.slice(0, limit)
        yield from rows.select(self.schema.names if columns is None else list(columns)).to_batches()


class SystemTable(Readable):
    """Reads the metadata of a table as rows, as they are at the time of each read."""

    def __init__(self, identifier: str, source: SystemSource) -> None:
        self.identifier = identifier
        self._source = source

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        return self._source.table_schema

    def __repr__(self) -> str:
        return f"SystemTable({self.identifier!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # Python and libraries probe for protocol methods this way
            raise AttributeError(name)
        raise InvalidRequest(
            "a system table can only be read", table=self.identifier, verb=name, verbs=_VERBS
        )

    def _facts(self) -> list[tuple[str, object]]:
        return [("system table", self.identifier)]

    def _rows(self, at: Travel) -> RowSource:
        if at != Travel():
            raise InvalidRequest(
                "a system table shows the present; that of a table's copy with scan options "
                "(table.copy(...).inspect) shows the past",
                table=self.identifier,
                snapshot_id=at.snapshot_id,
                tag=at.tag,
                timestamp=at.timestamp,
            )
        return self._source


_VERBS = tuple(name for name in vars(Readable) if not name.startswith("_"))
