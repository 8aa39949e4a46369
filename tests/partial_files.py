"""Files that hold some columns of rows, as engines write them when they change these columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.model.files import EMPTY_ROW, CommitMessage, DataFile
from lakecore.table.commits.commit import commit
from lakecore.table.commits.commit_change import CommitRequest
from lakecore.table.run_writer.file_shape import BucketPlace, FileNames, data_shape
from lakecore.table.run_writer.rolling_writer import RollingWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecore.table.handle import Table


def rewrite_columns(table: Table, rows: pa.Table, first_row_id: int) -> DataFile:
    """Commit new values of some columns for the rows from `first_row_id` on."""
    context = table.context
    fields = tuple(table.schema.field(name) for name in rows.column_names)
    schema = replace(table.schema, fields=fields, partition_keys=())
    writer = RollingWriter(
        BucketPlace(
            store=context.store,
            layout=context.layout,
            ambient=context.ambient,
            partition_path="",
            bucket=0,
            names=FileNames(context.ambient.new_uuid()),
        ),
        data_shape(schema, context.options),
    )
    writer.write(rows.cast(schema.arrow))
    (file,) = writer.close()
    file = replace(
        file,
        write_columns=schema.names,
        first_row_id=first_row_id,
        sequence_min=0,
        sequence_max=0,
    )
    base = context.history.latest_snapshot()
    assert base is not None
    message = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=-1,
        new_files=(file,),
        base_snapshot_id=base.id,
        base_snapshot_uuid=base.uuid,
    )
    commit(context, CommitRequest(messages=[message], user="columns"))
    return file
