"""The directory of a bucket, and the names of the files that a writer makes there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.format.layout import data_file_name

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.table.context import TableContext
    from lakecore.table.run_writer.file_shape import FileShape


@dataclass(slots=True)
class FileNames:
    """The names of the files of one bucket writer; all kinds share one counter."""

    writer: str
    count: int = 0

    def next(self, shape: FileShape) -> str:
        """The next unused name of a file of this shape."""
        compression = shape.write_format.compression if shape.name_compression else None
        return self.next_of(shape.prefix, shape.write_format.format, compression)

    def next_of(self, prefix: str, kind: str, compression: str | None = None) -> str:
        """The next unused name with this prefix, and with `kind` as its ending."""
        name = data_file_name(prefix, self.writer, self.count, kind, compression)
        self.count += 1
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """The directory of a bucket, and the names of new files in it."""

    store: Store
    layout: Layout
    ambient: Ambient
    partition_path: str
    bucket: int
    names: FileNames


def new_place(context: TableContext, partition_path: str, bucket: int) -> BucketPlace:
    """The place of one new writer of a bucket: no other writer uses its file names."""
    return BucketPlace(
        store=context.store,
        layout=context.layout,
        ambient=context.ambient,
        partition_path=partition_path,
        bucket=bucket,
        names=FileNames(context.ambient.new_uuid()),
    )
