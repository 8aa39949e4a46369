"""The shape of the data files and changelog files of a table: columns, format, size, statistics.

Columns of a primary-key table's files (https://paimon.apache.org/docs/master/concepts/spec/datafile/):
`_KEY_x` for each column of the trimmed primary key (unless `data-file.thin-mode`), sequence number,
kind, then every column of the table. An append table's files hold only the table's columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.format.blob_file import with_each_blob
from lakecore.format.blob_references import is_descriptor, is_view
from lakecore.format.layout import Layout, data_file_name
from lakecore.format.statistics import (
    StatsKind,
    StatsMode,
    are_bounded_texts,
    parse_stats_mode,
    stats_modes,
)
from lakecore.io.files.data_files import WriteFormat, row_group_bytes_of
from lakecore.io.referenced_blobs import ReferencedBlobs
from lakecore.model.arrow_arrays import size_of
from lakecore.model.blob_rules import in_blob_files, is_managed, require_known_blobs
from lakecore.model.file_indexes import IndexedColumn, indexed_columns
from lakecore.model.files import FileSource
from lakecore.model.line_format import line_format
from lakecore.model.rows import KEY_ID_OFFSET, KEY_PREFIX, KIND_FIELD, ROW_ID, SEQUENCE_FIELD
from lakecore.model.types import TIMESTAMPS, Field, Root, leaves, with_nullable
from lakecore.options.choices import IcebergStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext


# --- given blobs ---------------------------------------------------------------------------------
# BLOB values that a write is given: bytes, or descriptors of bytes in other files.
#
# As in Paimon, bytes that begin like a descriptor count as a descriptor.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRules:
    """How BLOB values are stored, from the options of a table.

    - `target_bytes`: the size of a file of BLOB values;
    - `null_if_missing`, `null_if_unreadable`: a descriptor becomes null if its file is missing, or
      cannot be read;
    - `storage`: the options of the storage that descriptors name, if it is not that of the table;
    - `inline`: the columns whose rows must hold references;
    - `managed`: the columns whose rows hold descriptors of files that the table owns.
    """

    target_bytes: int = 0
    null_if_missing: bool = False
    null_if_unreadable: bool = False
    storage: tuple[tuple[str, str], ...] = ()
    inline: tuple[str, ...] = ()
    managed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        options: TableOptions,
        target_bytes: int,
        *,
        inline: tuple[str, ...],
        managed: tuple[str, ...],
    ) -> BlobRules:
        """The rules of a table; `target_bytes` is the size of its data files."""
        return cls(
            target_bytes=options.blob_target_file_size_bytes or target_bytes,
            null_if_missing=options.blob_write_null_on_missing_file,
            null_if_unreadable=options.blob_write_null_on_fetch_failure,
            storage=tuple(options.blob_descriptor_storage.items()),
            inline=inline,
            managed=managed,
        )


NO_BLOBS = BlobRules()
"""The rules of a table without BLOB columns."""


class GivenBlobs:
    """Reads the values of the descriptors that a write is given for a column."""

    def __init__(self, store: Store, layout: Layout, rules: BlobRules, column: str) -> None:
        self._column = column
        self._rules = rules
        self._references = ReferencedBlobs(store, layout, dict(rules.storage))

    def close(self) -> None:
        """Close the file that was read last."""
        self._references.close()

    def value(self, value: object) -> object:
        """A value of the column, with bytes in place of each descriptor."""
        return None if value is None else with_each_blob(value, self.blob)

    def blob(self, given: bytes) -> bytes | None:
        """The bytes of a BLOB.

        None if its file is missing or cannot be read, and the options ask for null in that case.
        Raises InvalidRequest for a descriptor of a file that must not be read, or for a view.
        """
        if is_view(given):
            raise InvalidRequest(
                "only a column of blob-view-field takes views of BLOB values", column=self._column
            )
        if not is_descriptor(given):
            return given
        try:
            return self._references.read(given)
        except (NotFound, CorruptTable, StorageError, Unsupported) as error:
            # A missing file of the table itself is damage.
            missing = isinstance(error, NotFound) or isinstance(error.__cause__, NotFound)
            rules = self._rules
            if rules.null_if_missing if missing else rules.null_if_unreadable:
                return None
            raise


# --- bucket place --------------------------------------------------------------------------------
# The directory of a bucket, and the names of the files that a writer makes there.


@dataclass(slots=True)
class FileNames:
    """The names of the files of one bucket writer; all kinds share one counter."""

    writer: str
    count: int = 0

    def next(self, shape: FileShape) -> str:
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


# --- file shape ----------------------------------------------------------------------------------

_LOOK_BYTES_MIN = 1 << 20
"""The file size is checked only after at least this many bytes of rows."""
ENCODED_GROUPS = 6
"""Row groups in memory while a file is written: one is filled, two are encoded into bytes."""

_ANY_SIZE = 1 << 62
_AVRO_TIME_DIGITS, _AVRO_DIGITS = 3, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """The format of the files of one kind and level; it is the same for all buckets.

    The `indexes` of a file are stored in the manifest if they have at most `embedded_index_bytes`,
    else in a file. The values of the columns `blobs` are in separate files, one column in each.
    With `states_columns`, the manifest names the columns of the file.
    """

    schema: TableSchema
    write_format: WriteFormat
    prefix: str
    name_compression: bool
    target_bytes: int
    stats_modes: tuple[StatsMode, ...]
    dense_stats: bool
    thin: bool
    level: int = 0
    source: FileSource = FileSource.APPEND
    indexes: tuple[IndexedColumn, ...] = ()
    embedded_index_bytes: int = 0
    blobs: tuple[Field, ...] = ()
    blob_rules: BlobRules = NO_BLOBS
    states_columns: bool = False

    @property
    def write_columns(self) -> tuple[str, ...] | None:
        """The columns that the manifest names; None: those of the schema."""
        stated = self.states_columns or self.blobs or ROW_ID in self.schema.names
        return self.schema.names if stated else None

    @property
    def encoding_bytes(self) -> int:
        """The memory in bytes that the writer of one file takes."""
        return ENCODED_GROUPS * self.write_format.row_group_bytes

    def rows_between_looks(self, rows: pa.Table) -> int:
        """The number of rows to write before the file size is checked again."""
        wanted = self.write_format
        size_bytes = min(wanted.row_group_bytes, max(self.target_bytes, _LOOK_BYTES_MIN))
        fitting: int = size_bytes * rows.num_rows // (size_of(rows) or 1)
        return max(1, min(wanted.row_group_rows, fitting))

    @property
    def keyed(self) -> bool:
        """Whether the rows carry keys, sequence numbers and kinds."""
        return bool(self.schema.primary_keys)

    @property
    def bounded_names(self) -> tuple[str, ...]:
        """The columns with stored statistics; dense statistics leave out columns of mode `none`."""
        return tuple(
            field.name
            for field, mode in zip(self.schema.fields, self.stats_modes, strict=True)
            if not (self.dense_stats and mode.kind is StatsKind.NONE)
        )

    @property
    def text_bounds(self) -> dict[str, int | None]:
        """For string columns whose bounds the Parquet writer computes: the length of the bounds."""
        if self.write_format.format != "parquet":
            return {}
        return {
            field.name: mode.length
            for field, mode in zip(self.schema.fields, self.stats_modes, strict=True)
            if are_bounded_texts(field.type, mode)
        }

    @property
    def physical_fields(self) -> tuple[Field, ...]:
        """The columns of the files, in order."""
        if not self.keyed:
            return self.schema.fields
        keys = () if self.thin else tuple(key_field(f) for f in self.schema.key_fields)
        return (*keys, SEQUENCE_FIELD, KIND_FIELD, *self.schema.fields)


def data_shape(schema: TableSchema, options: TableOptions, level: int = 0) -> FileShape:
    """The shape of data files at a level."""
    require_known_blobs(schema.fields, schema, options)
    blobs = tuple(field for field in schema.fields if in_blob_files(field, schema, options))
    managed = tuple(f.name for f in schema.fields if is_managed(f, schema, options))
    inline = tuple(name for name in schema.names if name in options.blob_inline_field)
    if blobs:
        normal = tuple(field for field in schema.fields if field not in blobs)
        schema = replace(schema, fields=normal)
    target_bytes = options.target_file_size(primary_key=bool(schema.primary_keys))
    file_format = options.file_format_per_level.get(level, options.file_format)
    default_mode, modes = options.metadata_stats_mode, options.stats_modes
    return FileShape(
        schema=schema,
        write_format=WriteFormat(
            format=file_format,
            compression=options.file_compression_per_level.get(level, options.file_compression),
            zstd_level=options.file_compression_zstd_level,
            row_group_bytes=row_group_bytes_of(len(schema.fields), target_bytes),
            copies=_copies(schema, options),
            bare_milliseconds=options.metadata_iceberg_storage is not IcebergStorage.DISABLED,
            lines=line_format(file_format, schema.names, options),
        ),
        prefix=options.data_file_prefix,
        name_compression=options.file_suffix_include_compression,
        target_bytes=target_bytes,
        stats_modes=stats_modes(schema.fields, default_mode, modes),
        dense_stats=options.metadata_stats_dense_store,
        thin=options.data_file_thin_mode,
        level=level,
        indexes=indexed_columns(schema, options),
        embedded_index_bytes=options.file_index_in_manifest_threshold_bytes,
        blobs=blobs,
        blob_rules=BlobRules.of(options, target_bytes, inline=inline, managed=managed),
    )


def column_shape(schema: TableSchema, options: TableOptions, columns: Sequence[str]) -> FileShape:
    """The shape of a file that holds only these columns of its rows: one file, of any size."""
    whole = data_shape(schema, options)
    kept = [at for at, field in enumerate(whole.schema.fields) if field.name in columns]
    fields = tuple(whole.schema.fields[at] for at in kept)
    return replace(
        whole,
        schema=replace(schema, fields=fields, partition_keys=()),
        stats_modes=tuple(whole.stats_modes[at] for at in kept),
        indexes=tuple(each for each in whole.indexes if each.field in fields),
        blobs=tuple(field for field in whole.blobs if field.name in columns),
        blob_rules=replace(
            whole.blob_rules,
            inline=tuple(name for name in whole.blob_rules.inline if name in columns),
        ),
        target_bytes=_ANY_SIZE,
        states_columns=True,
    )


def postponed_shape(schema: TableSchema, options: TableOptions, prefix: str) -> FileShape:
    """The shape of the files of the postponed bucket: Avro without statistics, as Paimon writes.

    If Avro cannot store the types of the columns, the files have the format of the table. The names
    of the files begin with `prefix`.
    """
    data = data_shape(schema, options)
    if _avro_holds(schema):
        data = replace(data, write_format=replace(data.write_format, format="avro"))
    return replace(
        data,
        prefix=prefix,
        stats_modes=(parse_stats_mode("none"),) * len(schema.fields),
        indexes=(),
    )


def _avro_holds(schema: TableSchema) -> bool:
    """Whether Avro stores all digits of the times and timestamps of the table."""
    parts = [part for field in schema.fields for part in leaves(field.type)]
    return all(
        part.digits <= (_AVRO_TIME_DIGITS if part.root is Root.TIME else _AVRO_DIGITS)
        for part in parts
        if part.root is Root.TIME or part.root in TIMESTAMPS
    )


def changelog_shape(schema: TableSchema, options: TableOptions, level: int = 0) -> FileShape:
    """The shape of changelog files: level 0 for a flush, else the level of the compaction."""
    data = data_shape(schema, options, level)
    changed = data
    if options.changelog_file_stats_mode is not None:
        mode = parse_stats_mode(options.changelog_file_stats_mode)
        changed = replace(data, stats_modes=(mode,) * len(data.stats_modes))
    return replace(
        changed,
        write_format=replace(
            data.write_format,
            format=options.changelog_file_format or data.write_format.format,
            compression=options.changelog_file_compression or data.write_format.compression,
        ),
        prefix=options.changelog_file_prefix,
        blob_rules=replace(data.blob_rules, managed=()),
        indexes=(),
    )


def key_field(field: Field) -> Field:
    """The field `_KEY_x` of a key column x."""
    return Field(
        id=field.id + KEY_ID_OFFSET,
        name=KEY_PREFIX + field.name,
        type=with_nullable(field.type, nullable=False),
    )


def _copies(schema: TableSchema, options: TableOptions) -> tuple[tuple[str, str], ...]:
    """Pairs of columns that hold the same values: `_KEY_x` and x of each key column."""
    if not schema.primary_keys or options.data_file_thin_mode:
        return ()
    return tuple((KEY_PREFIX + field.name, field.name) for field in schema.key_fields)
