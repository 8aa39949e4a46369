"""How files are laid: row groups of other writers, and files of other levels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.model.files import CommitMessage

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table


def cut_row_groups(store: Store, directory: str, rows: int, *, integers: bool = True) -> int:
    """Write each Parquet file anew in row groups of so many rows; how many groups there are.

    What a writer with other habits would have written: the rows, their order and the file's name
    stay; decimals are integers, or bytes.
    """
    groups = 0
    for status in store.list(directory):
        if status.is_directory:
            groups += cut_row_groups(store, status.path, rows, integers=integers)
        elif status.path.endswith(".parquet"):
            with store.open_input(status.path) as source:
                whole = pq.read_table(source)
            out = pa.BufferOutputStream()
            pq.write_table(
                whole,
                out,
                row_group_size=rows,
                store_decimal_as_integer=integers,
                store_schema=False,
            )
            store.put(status.path, out.getvalue().to_pybytes())
            groups += max(1, -(-whole.num_rows // rows))
    return groups


def settle(table: Table) -> int:
    """Move the only file of each bucket to the last level, as a compaction does; how many moved."""
    context = table.context
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        return 0
    entries = context.history.live_entries(snapshot)
    files = Counter((entry.partition, entry.bucket) for entry in entries)
    messages = [
        CommitMessage(
            partition=entry.partition,
            bucket=entry.bucket,
            total_buckets=entry.total_buckets,
            compact_before=(entry.file,),
            compact_after=(replace(entry.file, level=5),),
            base_snapshot_id=snapshot.id,
        )
        for entry in entries
        if files[entry.partition, entry.bucket] == 1
        and entry.file.level == 0
        and entry.file.delete_row_count == 0
    ]
    if messages:
        table.commit(messages)
    return len(messages)
