"""Data files that an engine's own Parquet reader reads with the same result as lakecore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.files.data_files import file_columns
from lakecore.io.files.file_checks import check_files
from lakecore.model.types import TIMESTAMPS, Atomic, timestamp_unit, with_nullable
from lakecore.table.runs.split_files import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.format.layout import Layout
    from lakecore.io.files.checks import Checks
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field


def native_paths(
    splits: Iterable[Split],
    fields: Sequence[Field],
    schema_of: Callable[[int], TableSchema],
    layout: Layout,
    store: Store,
    checks: Checks,
) -> list[str] | None:
    """The local paths of the files of the splits, in order, if engines can read them directly.

    None if the store is not local, a value must be cast, or a column is missing. `schema_of`
    returns the schema of an id. Raises CorruptTable for a file with a wrong size or checksum,
    because engines do not check these; `checks` says how often checksums are verified.
    """
    files = [(split, file) for split in splits for file in split.files]
    if not all(file.write_columns is None and file.format == "parquet" for _, file in files):
        return None
    # Files of several schemas have different columns, and engines match columns by position.
    schemas = [schema_of(schema_id) for schema_id in {file.schema_id for _, file in files}]
    if len(schemas) > 1 or not all(_same_columns(fields, stored) for stored in schemas):
        return None
    # The Java versions that wrote no file source declared map keys nullable in Parquet. Engines
    # refuse such a file.
    old = any(file.file_source is None for _, file in files)
    if old and not all(isinstance(each.type, Atomic) for s in schemas for each in s.fields):
        return None
    names = {name for schema in schemas for name in schema.names}
    paths = _checked(files, names, layout, store)
    if paths is not None:
        check_files(store, paths, [field.name for field in fields], checks)
    return paths


def _checked(
    files: Sequence[tuple[Split, DataFile]], names: set[str], layout: Layout, store: Store
) -> list[str] | None:
    paths: list[str] = []
    for split, file in files:
        path = layout.data_file(split.partition_path, split.bucket, file)
        local = store.local_path(path)
        if local is None:
            return None
        # The engine's reader does not know the manifest, so check the size first.
        check_size(store, path, file)
        # Files that were migrated from Hive have no sequence numbers and may lack columns.
        if not file.sequence_max and not names <= {*file_columns(store, path)}:
            return None
        paths.append(local)
    return paths


def _same_columns(wanted: Sequence[Field], stored: TableSchema) -> bool:
    """Whether files of a schema hold these columns with the same names and equal plain types.

    False for nanoseconds: engines read values outside the nanosecond range as other values
    (`io/files/parquet_times.py`).
    """
    return all(
        (twin := stored.by_id.get(field.id)) is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
        and isinstance(field.type, Atomic)
        and not (
            field.type.root in TIMESTAMPS and timestamp_unit(field.type.precision or 0) == "ns"
        )
        for field in wanted
    )
