"""How Iceberg metadata of a table is written."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.choices import IcebergLocation, IcebergStorage
from lakecore.options.kinds import (
    COUNT,
    FLAG,
    MAINTAIN,
    TEXT,
    WRITE,
    choice,
    integer,
    keyed_family,
    one_of,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODECS = ("snappy", "deflate", "zstd", "zstandard", "none", "null")


@dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """How Iceberg metadata of a table is written."""

    # fmt: off
    metadata_iceberg_storage: IcebergStorage = option(
        "metadata.iceberg.storage", choice(IcebergStorage), IcebergStorage.DISABLED, WRITE,
        "Write Iceberg metadata for each snapshot, and where.",
        ignorable=True,
    )
    metadata_iceberg_storage_location: IcebergLocation | None = option(
        "metadata.iceberg.storage-location", choice(IcebergLocation), None, MAINTAIN,
        "Iceberg: directory of the metadata, if it is not that of the storage.",
    )
    metadata_iceberg_format_version: int = option(
        "metadata.iceberg.format-version", integer(2, 3), 2, MAINTAIN,
        "Iceberg: version of the format; 3 shows deletion vectors.",
    )
    metadata_iceberg_manifest_compression: str = option(
        "metadata.iceberg.manifest-compression", one_of(*_CODECS), "snappy", MAINTAIN,
        "Iceberg: compression of manifests.",
    )
    metadata_iceberg_manifest_legacy_version: bool = option(
        "metadata.iceberg.manifest-legacy-version", FLAG, False, MAINTAIN,
        "Iceberg: write manifests of Iceberg 1.4.",
    )
    metadata_iceberg_compaction_min_file_num: int = option(
        "metadata.iceberg.compaction.min.file-num", COUNT, 10, MAINTAIN,
        "Iceberg: least number of manifests to merge.",
    )
    metadata_iceberg_compaction_max_file_num: int = option(
        "metadata.iceberg.compaction.max.file-num", COUNT, 50, MAINTAIN,
        "Iceberg: number of small manifests from which they are always merged.",
    )
    metadata_iceberg_delete_after_commit_enabled: bool = option(
        "metadata.iceberg.delete-after-commit.enabled", FLAG, True, MAINTAIN,
        "Iceberg: delete old metadata files after a commit.",
    )
    metadata_iceberg_previous_versions_max: int = option(
        "metadata.iceberg.previous-versions-max", integer(0), 0, MAINTAIN,
        "Iceberg: number of old metadata files to keep; lakecore always keeps one.",
    )
    metadata_iceberg_table_properties: Mapping[str, str] = keyed_family(
        "metadata.iceberg.table-properties.#", TEXT, MAINTAIN,
        "Iceberg: property of the table in its metadata.",
    )
    # fmt: on
