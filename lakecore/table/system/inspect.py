"""The metadata of a table as rows: Paimon's system tables (`$` tables).

Each function of `Inspect` is one of them, and each row what Java Paimon shows for the same table,
with these exceptions: bytes are given in hex (Java prints the address of an object), rows have
a fixed order, partitions with timestamps do not fail, and `buckets` supports time travel.

`files`, `manifests`, `partitions`, `buckets`, `file_key_ranges`, `table_indexes` and `statistics`
show one snapshot: the newest, or the one that the table's `scan.*` options travel to. They count
rows as stored, not merged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from lakecore.display import public_names
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.table.system.change_log import AUDIT_LOG, BINLOG, ChangeLog
from lakecore.table.system.read_optimized import RO, ReadOptimized
from lakecore.table.system.row_tracking import ROW_TRACKING, RowTracking
from lakecore.table.system.system_columns import (
    SYSTEM_TABLES,
    UNSUPPORTED_SYSTEM_TABLES,
    system_schema,
)
from lakecore.table.system.system_rows import check_shown, system_rows
from lakecore.table.system.system_table import SystemSource, SystemTable

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["Inspect"]


class Inspect:
    """The metadata of a table as Polars frames, read at each call; returned by `table.inspect`."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def __dir__(self) -> list[str]:
        return public_names(self)

    def snapshots(self) -> pl.DataFrame:
        """The live snapshots, oldest first.

        - snapshot_id BIGINT: the snapshot, numbered from 1
        - schema_id BIGINT: the schema of the table when it was committed
        - commit_user STRING: the job that committed it
        - commit_identifier BIGINT: the number that job gave the commit
        - commit_kind STRING: APPEND, COMPACT, OVERWRITE or ANALYZE
        - commit_time TIMESTAMP(3): when, in local time of this process
        - base_manifest_list, delta_manifest_list, changelog_manifest_list STRING: the files that
          list what was there before, what it changed, and its changelog
        - total_record_count BIGINT: rows stored after it, unmerged
        - delta_record_count BIGINT: rows it added, less those of files it took away
        - changelog_record_count BIGINT: rows of its changelog
        - watermark BIGINT: its watermark, in milliseconds since 1970
        - next_row_id BIGINT: the first row id that is free after it
        """
        return self._frame("snapshots")

    def schemas(self) -> pl.DataFrame:
        """The schemas the table has had, oldest first.

        - schema_id BIGINT: the schema, numbered from 0
        - fields, partition_keys, primary_keys, options STRING: its parts, as JSON
        - comment STRING: the comment of the table
        - update_time TIMESTAMP(3): when it was made, in local time of this process
        """
        return self._frame("schemas")

    def options(self) -> pl.DataFrame:
        """The options that were set, in the order of the schema file.

        - key STRING, value STRING: the option and its value, as text
        """
        return self._frame("options")

    def files(self) -> pl.DataFrame:
        """The live data files, by partition and bucket.

        - partition STRING: the partition's values, as {a, b}
        - bucket INT, level INT: the place of the file; level 0 is the newest
        - file_path STRING: its whole path
        - file_format STRING: parquet, orc, avro, csv, json or text
        - schema_id BIGINT: the schema it was written with
        - record_count BIGINT: its rows, unmerged
        - file_size_in_bytes BIGINT: its size
        - min_key, max_key STRING: its first and last key, as [a, b]; null for an append table
        - null_value_counts STRING: nulls by column, as {a=0, b=1}
        - min_value_stats, max_value_stats STRING: bounds by column, as {a=1, b=null}; a DATE is its
          day, a TIME its milliseconds, a binary value in hex
        - min_sequence_number, max_sequence_number BIGINT: its range of sequence numbers
        - creation_time TIMESTAMP(3): when it was written, in local time of its writer
        - deleteRowCount BIGINT: its rows of kind -U and -D
        - file_source STRING: APPEND or COMPACT, whichever wrote it
        - first_row_id BIGINT: the row id of its first row
        - write_cols ARRAY<STRING>: the columns it holds, if not all
        """
        return self._frame("files")

    def manifests(self) -> pl.DataFrame:
        """The manifests of the snapshot: those before it, its own, those of its changelog.

        - file_name STRING: the manifest, in the folder `manifest`
        - file_size BIGINT: its bytes
        - num_added_files, num_deleted_files BIGINT: data files it adds and removes
        - schema_id BIGINT: the schema it was written with
        - min_partition_stats, max_partition_stats STRING: bounds of partition values, as {a, b}
        - min_row_id, max_row_id BIGINT: the row ids in it
        """
        return self._frame("manifests")

    def partitions(self) -> pl.DataFrame:
        """The partitions that have data files, sorted by their text.

        - partition STRING: the partition, as a=1/b=2; empty for an unpartitioned table
        - record_count BIGINT: rows stored, unmerged
        - file_size_in_bytes BIGINT, file_count BIGINT: bytes and number of its data files
        - last_update_time TIMESTAMP(3): when the newest was written, by its writer's clock
        - created_at TIMESTAMP(3), created_by, updated_by, options STRING: null, since a filesystem
          catalog does not know
        """
        return self._frame("partitions")

    def buckets(self) -> pl.DataFrame:
        """The buckets that have data files, sorted by partition and number.

        - partition STRING: the partition's values, as {a, b}
        - bucket INT: the bucket
        - record_count BIGINT: rows stored, unmerged
        - file_size_in_bytes BIGINT, file_count BIGINT: bytes and number of its data files
        - last_update_time TIMESTAMP(3): when the newest was written, by its writer's clock
        """
        return self._frame("buckets")

    def tags(self) -> pl.DataFrame:
        """The tags, sorted by name.

        - tag_name STRING: the tag
        - snapshot_id BIGINT, schema_id BIGINT: the snapshot it keeps, and that one's schema
        - commit_time TIMESTAMP(3): when that was committed, in local time of this process
        - record_count BIGINT: rows stored then, unmerged
        - create_time TIMESTAMP(3): when the tag was made, by its maker's clock
        - time_retained STRING: how long it is kept, as PT24H; null means for ever
        """
        return self._frame("tags")

    def audit_log(self) -> pl.LazyFrame:
        """The rows of the table with their kinds, in the column `rowkind`: +I, -U, +U or -D.

        A deleted key may have a row of kind -D. With the options `incremental-between...`, the
        changes between two points. `system_table("audit_log")` can also be read as a stream.

            table.inspect.audit_log().collect()
        """
        return ChangeLog(self._context, AUDIT_LOG).scan()

    def binlog(self) -> pl.LazyFrame:
        """The rows of `audit_log`, each value in a list.

        Between two points, and in a stream of `system_table("binlog")`, an update is one row of
        kind +U with lists of two values: before and after.

            table.inspect.binlog().collect()
        """
        return ChangeLog(self._context, BINLOG).scan()

    def ro(self) -> pl.LazyFrame:
        """The rows that full compaction has written, which are read without a merge.

        Newer rows are left out. Without a primary key, all rows of the table.

            table.inspect.ro().collect()
        """
        return ReadOptimized(self._context).scan()

    def branches(self) -> pl.DataFrame:
        """The branches, sorted by name, without `main`.

        - branch_name STRING: the branch
        - create_time TIMESTAMP(3): when its directory was last changed, in local time of this
          process
        """
        return self._frame("branches")

    def consumers(self) -> pl.DataFrame:
        """The consumers, sorted by id.

        - consumer_id STRING: the consumer
        - next_snapshot_id BIGINT: the snapshot that it reads next
        """
        return self._frame("consumers")

    def aggregation_fields(self) -> pl.DataFrame:
        """The columns, with their options `fields.NAME.…`, in the order of the schema.

        - field_name STRING, field_type STRING: a column and its type
        - function STRING: the values of its options, as [sum]
        - function_options STRING: the keys of its options, as [fields.a.aggregate-function]
        - comment STRING: the comment of the column
        """
        return self._frame("aggregation_fields")

    def file_key_ranges(self) -> pl.DataFrame:
        """The live data files with their key ranges, by partition and bucket.

        - partition STRING: the partition's values, as {a, b}
        - bucket INT, level INT: the place of the file; level 0 is the newest
        - file_path STRING: its whole path
        - file_format STRING: parquet, orc, avro, csv, json or text
        - schema_id BIGINT: the schema it was written with
        - record_count BIGINT: its rows, unmerged
        - file_size_in_bytes BIGINT: its size
        - min_key, max_key STRING: its first and last key, as [a, b]; null for an append table
        - first_row_id BIGINT: the row id of its first row
        """
        return self._frame("file_key_ranges")

    def table_indexes(self) -> pl.DataFrame:
        """The index files of the snapshot: key hashes of dynamic buckets, deletion vectors.

        - partition STRING: the partition's values, as {a, b}
        - bucket INT: the bucket
        - index_type STRING: HASH or DELETION_VECTORS
        - file_name STRING, file_size BIGINT: the index file and its size
        - row_count BIGINT: its hashes or deletion vectors
        - dv_ranges ARRAY<ROW<`f0` STRING NOT NULL, `f1` INT NOT NULL, `f2` INT NOT NULL,
          `_CARDINALITY` BIGINT>>: the position of each deletion vector: data file, offset, length,
          deleted rows; null for other indexes
        """
        return self._frame("table_indexes")

    def statistics(self) -> pl.DataFrame:
        """The statistics that `analyze` computed; no row if the snapshot has none.

        - snapshot_id BIGINT, schema_id BIGINT: the snapshot that was analyzed, and its schema
        - mergedRecordCount BIGINT: its rows, merged
        - mergedRecordSize BIGINT: their size in bytes
        - colstat STRING: the statistics of columns, as JSON
        """
        return self._frame("statistics")

    def system_table(self, name: str) -> SystemTable:
        """The `$` table of that name, as a table that can be read."""
        if not isinstance(name, str):
            raise InvalidRequest("a system table is named by a text", name=name)
        if name in (AUDIT_LOG, BINLOG):
            return ChangeLog(self._context, name)
        if name == RO:
            return ReadOptimized(self._context)
        if name == ROW_TRACKING:
            return RowTracking(self._context)
        if name not in SYSTEM_TABLES:
            known = name in UNSUPPORTED_SYSTEM_TABLES
            raise Unsupported(
                "the system table is not supported" if known else "no such system table",
                table=f"{self._context.identifier}${name}",
                system_tables=[*SYSTEM_TABLES, AUDIT_LOG, BINLOG, RO, ROW_TRACKING],
            )
        check_shown(self._context, name)
        return SystemTable(
            f"{self._context.identifier}${name}",
            SystemSource(
                table_schema=system_schema(name), load=partial(system_rows, self._context, name)
            ),
        )

    def _frame(self, name: str) -> pl.DataFrame:
        frame = pl.from_arrow(system_rows(self._context, name))
        assert isinstance(frame, pl.DataFrame)
        return frame
