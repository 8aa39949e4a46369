"""`sequence.snapshot-ordering`: the sequence number of a row is the id of its snapshot.

The commit puts its snapshot id into the manifest entries of the files that writers added, and of
the files with which a compaction moves postponed rows to real buckets. The sequence numbers in
these files were assigned earlier and are ignored. Any other compaction stores the snapshot ids of
its rows in its files (https://paimon.apache.org/docs/master/primary-key-table/sequence-rowkind/).

INVARIANT: a merge never uses the sequence numbers that a writer's file stores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.model.files import FileSource
from lakecore.model.manifest import FileKind
from lakecore.model.rows import SEQUENCE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry


def numbered_by_snapshot(rows: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
    """The rows of a file; those of a writer's file get the snapshot id as sequence number.

    Raises Unsupported for a file that does not state whether a write or a compaction made it.
    """
    at = rows.schema.get_field_index(SEQUENCE_NUMBER)
    if file.file_source is None:
        raise Unsupported(
            "a file of a table with sequence.snapshot-ordering does not say what wrote it",
            file=file.name,
        )
    if at < 0 or file.file_source is not FileSource.APPEND:
        return rows
    numbers = pa.repeat(pa.scalar(file.sequence_min, pa.int64()), rows.num_rows)
    return rows.set_column(at, rows.schema.field(at), numbers)


def with_snapshot_id(entries: Sequence[ManifestEntry], snapshot_id: int) -> list[ManifestEntry]:
    """The entries of a commit; files that writers added get the snapshot id as sequence numbers.

    A file that changes its level, or that a compaction wrote, keeps its numbers.
    """
    kept = {entry.file.name for entry in entries if entry.kind is FileKind.DELETE}
    return [
        replace(entry, file=replace(entry.file, sequence_min=snapshot_id, sequence_max=snapshot_id))
        if entry.kind is FileKind.ADD
        and entry.file.file_source is not FileSource.COMPACT
        and entry.file.name not in kept
        else entry
        for entry in entries
    ]
