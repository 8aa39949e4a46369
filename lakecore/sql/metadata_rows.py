"""The rows of a table with the metadata columns that a query names."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.model.types import arrow_type
from lakecore.plan.predicate import Predicate, condition_on
from lakecore.table.changes.between import changes_of_options
from lakecore.table.file_reader.blob_resolution import followed
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel, as_of, resolve
from lakecore.table.splits.read import scan_at
from lakecore.table.system.system_columns import SystemTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.sql.native_views import ReadState
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table


# --- metadata columns -----------------------------------------------------------------------------
# Columns that say where a row is stored: Spark's metadata columns of Paimon tables.
#
# - `__paimon_partition`: a struct of the partition keys; null if the table has none;
# - `__paimon_bucket`: the bucket;
# - `__paimon_file_path`: the path of the data file, as in `$files`;
# - `__paimon_row_index`: the position of the row in this file, from 0.
#
# A merged row comes from several files. File and position are therefore only known if no files have
# to be merged (https://paimon.apache.org/docs/master/spark/sql-query/).

PARTITION = "__paimon_partition"
BUCKET = "__paimon_bucket"
FILE_PATH = "__paimon_file_path"
ROW_INDEX = "__paimon_row_index"
METADATA_COLUMNS = (PARTITION, BUCKET, FILE_PATH, ROW_INDEX)
_OF_FILES = frozenset({FILE_PATH, ROW_INDEX})


def with_metadata(context: TableContext, travel: Travel, names: Sequence[str]) -> MetadataSource:
    """The rows of a state, with these metadata columns after the columns of the table.

    Raises Unsupported where the columns have no meaning: for a table with a fallback branch, and,
    for file and position, if files have to be merged.
    """
    context.options.require_readable()
    if context.falls_back:
        raise Unsupported(
            "rows of two branches have no metadata columns; read each branch by itself",
            columns=list(names),
            option="scan.fallback-branch",
        )
    snapshot, schema = resolve(context, travel)
    rows = TableSource(context=as_of(context, schema), snapshot=snapshot, table_schema=schema)
    if not _OF_FILES.isdisjoint(names):
        merged = next((split for split in rows.plan().splits if not split.raw), None)
        if merged is not None:
            raise Unsupported(
                "a row that is merged from several files has no file and no position; run a full "
                "compaction first, or use deletion vectors",
                columns=sorted(_OF_FILES.intersection(names)),
                table=context.identifier,
                partition=merged.partition_path or None,
                bucket=merged.bucket,
            )
    return MetadataSource(rows=rows, names=tuple(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSource:
    """The rows of a state of a table, with metadata columns."""

    rows: TableSource
    names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, then the metadata columns."""
        schema = self.rows.schema
        for name in self.names:
            schema = schema.append(pa.field(name, self._type(name)))
        return schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches, split by split.

        The predicate is only used to prune files: the batches may still hold rows that do not
        match. The limit is ignored. If file or position is requested, a batch holds the rows of one
        file.
        """
        del limit
        schema = self.schema
        wanted = schema.names if columns is None else list(columns)
        stored = self.rows.schema.names
        read = [name for name in wanted if name in stored] or stored[:1]
        pruning = condition_on(predicate, stored)
        for split in self.rows.plan(pruning).splits:
            for values, batch in self._placed(split, read, wanted):
                arrays = [
                    values[name] if name in values else batch.column(batch.schema.names.index(name))
                    for name in wanted
                ]
                yield pa.RecordBatch.from_arrays(
                    arrays, schema=pa.schema([schema.field(name) for name in wanted])
                )

    def check_files(self) -> None:
        """Raise CorruptTable if a file is missing or visibly damaged."""
        self.rows.check_files()

    def _placed(
        self, split: Split, read: Sequence[str], wanted: Sequence[str]
    ) -> Iterator[tuple[dict[str, pa.Array], pa.RecordBatch]]:
        """The batches of a split, each with its values of the metadata columns."""
        context = self.rows.context
        asked = set(self.names).intersection(wanted)
        of_split = {
            PARTITION: pa.scalar(self._partition(split), self._type(PARTITION)),
            BUCKET: pa.scalar(split.bucket, pa.int32()),
        }
        of_split = {name: value for name, value in of_split.items() if name in asked}
        if _OF_FILES.isdisjoint(asked):
            plan = self.rows.read_plan([split], read)
            with closing(self.rows.read([split], plan)) as batches:
                for batch in batches:
                    yield _repeated(of_split, batch.num_rows), batch
            return
        assert split.raw, "`with_metadata` refuses files that are merged"
        for file in split.files:
            alone = _alone(split, file)
            path = context.layout.data_file(split.partition_path, split.bucket, file)
            plan = self.rows.read_plan([alone], read)
            with closing(scan_at(alone, plan, context.store, context.budget)) as placed:
                for positions, stored in placed:
                    start = 0
                    for batch in followed(iter([stored]), plan, context.store, context.budget):
                        own = np.asarray(positions, np.int64)[start : start + batch.num_rows]
                        start += batch.num_rows
                        values = _repeated({**of_split, FILE_PATH: pa.scalar(path)}, len(own))
                        values[ROW_INDEX] = pa.array(own)
                        yield {name: values[name] for name in asked}, batch

    def _partition(self, split: Split) -> dict[str, object] | None:
        partitions = self.rows.context.partitions
        if not partitions.fields:
            return None
        (values,) = partitions.values([split.partition]).to_pylist()
        return dict(values)

    def _type(self, name: str) -> pa.DataType:
        if name != PARTITION:
            return {BUCKET: pa.int32(), ROW_INDEX: pa.int64()}.get(name, pa.string())
        fields = self.rows.context.partitions.fields
        if not fields:
            return pa.string()
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])


def _repeated(values: dict[str, pa.Scalar], rows: int) -> dict[str, pa.Array]:
    return {name: pa.repeat(value, rows) for name, value in values.items()}


def _alone(split: Split, file: DataFile) -> Split:
    """A split with one file of `split`."""
    vectors = {file.name: split.vectors[file.name]} if file.name in split.vectors else {}
    return replace(split, runs=((file,),), vectors=vectors, selected={})


# --- metadata rows --------------------------------------------------------------------------------


def metadata_names(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The metadata columns among the names: all names that are not columns of the table.

    Raises Unsupported if such a name is not a metadata column, and for a system table.
    """
    own = {name.lower() for name in table.schema.names} if names else ()
    found = tuple(name for name in names if name not in own)
    unknown = [name for name in found if name not in METADATA_COLUMNS]
    if unknown:
        raise Unsupported(
            "no such metadata column", column=unknown[0], known=list(METADATA_COLUMNS)
        )
    read: object = table  # a catalog gives system tables the type of a table
    if found and isinstance(read, SystemTable):
        raise Unsupported(
            "a system table has no metadata columns", table=table.identifier, columns=list(found)
        )
    return found


def rows_with_metadata(table: Table, travel: ReadState, names: Sequence[str]) -> MetadataSource:
    """The rows of a state of a table, with these metadata columns after its own.

    Raises Unsupported if the columns have no meaning for this table.
    """
    if not travel and changes_of_options(table.context) is not None:
        raise Unsupported(
            "rows between two snapshots have no metadata columns", columns=list(names)
        )
    return with_metadata(table.context, Travel(**travel), names)
