"""Data files, statistics, manifests, deletion vectors and file indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.kinds import (
    COMPRESSION,
    COUNT,
    FILE_PREFIX,
    FLAG,
    FOLDER,
    FORMAT,
    LONG_MAX,
    NAMES,
    PER_LEVEL,
    SIZE,
    STATS_MODE,
    TEXT,
    integer,
)
from lakecore.options.option import (
    KEYED,
    OTHER,
    READ,
    WRITE,
    family,
    keyed_family,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Data files, statistics, manifests, deletion vectors and file indexes."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- data files -------------------------------------------------------------------------------
    file_format: str = option("file.format", FORMAT, "parquet", WRITE, "Format of new data files.")
    file_format_per_level: Mapping[int, str] = option(
        "file.format.per.level", PER_LEVEL, {}, WRITE,
        "Format of new data files, by level.", scope=KEYED,
    )
    file_compression: str = option(
        "file.compression", COMPRESSION, "zstd", WRITE,
        "Compression of new data files; Parquet columns that hardly compress stay uncompressed.",
    )
    file_compression_per_level: Mapping[int, str] = option(
        "file.compression.per.level", PER_LEVEL, {}, WRITE,
        "Compression of new data files, by level.", scope=KEYED,
    )
    file_compression_zstd_level: int = option(
        "file.compression.zstd-level", integer(-7, 22), 1, WRITE,
        "Level of zstd; a higher level makes smaller files.",
    )
    file_block_size_bytes: int | None = option(
        "file.block-size", SIZE, None, OTHER,
        "Size of a row group or stripe.",
        no_effect="Row groups are sized for merging within the memory budget.",
    )
    target_file_size_bytes: int | None = option(
        "target-file-size", SIZE, None, WRITE,
        "Size at which a new file begins; 128 mb with a primary key, 256 mb without.",
    )
    target_file_row_num: int = option(
        "target-file-row-num", integer(1, LONG_MAX), LONG_MAX, WRITE,
        "Rows at which a new file begins.", supported=False, ignorable=True,
    )
    data_file_prefix: str = option(
        "data-file.prefix", FILE_PREFIX, "data-", WRITE,
        "Prefix of the names of data files.",
    )
    data_file_thin_mode: bool = option(
        "data-file.thin-mode", FLAG, False, WRITE,
        "Store key columns once, not as `_KEY_` columns too.", scope=KEYED,
    )
    data_file_path_directory: str | None = option(
        "data-file.path-directory", FOLDER, None, READ,
        "Folder of the table that holds its partitions and buckets.", immutable=True,
    )
    data_file_external_paths: tuple[str, ...] = option(
        "data-file.external-paths", NAMES, (), WRITE,
        "Places outside the table's path for new data files.",
        supported=False,
    )
    lakecore_external_paths: tuple[str, ...] = option(
        "lakecore.external-paths", NAMES, (), OTHER,
        "Directories outside the table whose files its metadata may name; never stored.",
        stored=False,
    )
    index_file_in_data_file_dir: bool = option(
        "index-file-in-data-file-dir", FLAG, False, READ,
        "Index files are in the directory of the data files.", immutable=True,
    )
    file_suffix_include_compression: bool = option(
        "file.suffix.include.compression", FLAG, False, WRITE,
        "Names of data files contain the compression.",
    )
    changelog_file_prefix: str = option(
        "changelog-file.prefix", FILE_PREFIX, "changelog-", WRITE,
        "Prefix of the names of changelog files.", scope=KEYED,
    )
    changelog_file_format: str | None = option(
        "changelog-file.format", FORMAT, None, WRITE,
        "Format of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    changelog_file_compression: str | None = option(
        "changelog-file.compression", COMPRESSION, None, WRITE,
        "Compression of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    changelog_file_stats_mode: str | None = option(
        "changelog-file.stats-mode", STATS_MODE, None, WRITE,
        "Statistics of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    orc_timestamp_ltz_legacy_type: bool = option(
        "orc.timestamp-ltz.legacy.type", FLAG, True, READ,
        "ORC stores local-zoned timestamps as wall clock of the writer's zone; lakecore's is UTC.",
        no_effect="The true instant is always written and read.",
    )

    # --- statistics and manifests -----------------------------------------------------------------
    metadata_stats_mode: str = option(
        "metadata.stats-mode", STATS_MODE, "truncate(16)", WRITE,
        "Statistics of each column in the manifest.",
    )
    stats_modes: Mapping[str, str] = family(
        "stats-mode", STATS_MODE, WRITE,
        "Statistics of the column.",
    )
    metadata_stats_dense_store: bool = option(
        "metadata.stats-dense-store", FLAG, True, WRITE,
        "Store statistics only for columns that have statistics.",
    )
    metadata_stats_keep_first_n_columns: int = option(
        "metadata.stats-keep-first-n-columns", integer(-1), -1, WRITE,
        "First columns that get statistics; -1: all.", supported=False, ignorable=True,
    )
    metadata_stats_mode_per_level: Mapping[int, str] = option(
        "metadata.stats-mode.per.level", PER_LEVEL, {}, WRITE,
        "Statistics by level.", scope=KEYED, supported=False, ignorable=True,
    )
    manifest_format: str = option("manifest.format", FORMAT, "avro", WRITE, "Format of manifests.")
    manifest_compression: str = option(
        "manifest.compression", COMPRESSION, "zstd", WRITE,
        "Compression of manifests.",
    )
    manifest_target_file_size_bytes: int = option(
        "manifest.target-file-size", SIZE, 8 << 20, WRITE,
        "Size of a merged manifest.",
    )
    manifest_full_compaction_threshold_size_bytes: int = option(
        "manifest.full-compaction-threshold-size", SIZE, 16 << 20, WRITE,
        "Bytes of small manifests at which a commit merges all manifests.",
    )
    manifest_merge_min_count: int = option(
        "manifest.merge-min-count", COUNT, 30, WRITE,
        "Number of small manifests from which a commit merges them.",
    )
    manifest_delete_file_drop_stats: bool = option(
        "manifest.delete-file-drop-stats", FLAG, False, OTHER,
        "Leave the statistics of columns of deleted files out of manifests.",
    )

    # --- deletion vectors and file indexes --------------------------------------------------------
    deletion_vectors_enabled: bool = option(
        "deletion-vectors.enabled", FLAG, False, READ,
        "Deleted rows are marked in index files.",
    )
    deletion_vectors_bitmap64: bool = option(
        "deletion-vectors.bitmap64", FLAG, False, WRITE,
        "Write 64-bit deletion vectors.",
    )
    deletion_vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read", FLAG, False, READ,
        "Reads include level 0 and merge it.", scope=KEYED,
    )
    deletion_vectors_modifiable: bool = option(
        "deletion-vectors.modifiable", FLAG, False, WRITE,
        "Let deletion-vectors.enabled change on a table with snapshots.",
    )
    deletion_vector_index_file_target_size_bytes: int = option(
        "deletion-vector.index-file.target-size", SIZE, 2 << 20, WRITE,
        "Size at which a new file of deletion vectors begins.",
    )
    file_index_in_manifest_threshold_bytes: int = option(
        "file-index.in-manifest-threshold", SIZE, 500, WRITE,
        "Size up to which a file index is stored in the manifest.",
    )
    file_index_read_enabled: bool = option(
        "file-index.read.enabled", FLAG, True, OTHER,
        "Let file indexes skip files.",
    )
    file_index_columns: Mapping[str, tuple[str, ...]] = keyed_family(
        "file-index.#.columns", NAMES, WRITE,
        "Columns with a file index of that type; `map[key]` is a key of a map.", ignorable=True,
    )
    file_index_settings: Mapping[str, str] = keyed_family(
        "file-index.#", TEXT, WRITE,
        "`TYPE.COLUMN.SETTING` of a file index.", ignorable=True,
    )
    # fmt: on
