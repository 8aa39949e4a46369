"""BLOB columns: how their values are stored, found and returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.kinds import FLAG, NAME, NAMES, SIZE, TEXT
from lakecore.options.option import OTHER, READ, WRITE, keyed_family, option

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class BlobOptions:
    """BLOB columns: how their values are stored, found and returned."""

    # fmt: off
    blob_field: tuple[str, ...] = option(
        "blob-field", NAMES, (), WRITE,
        "Binary columns that a new table stores as BLOB.", immutable=True,
    )
    blob_descriptor_field: tuple[str, ...] = option(
        "blob-descriptor-field", NAMES, (), READ,
        "BLOB columns whose rows hold descriptors: where a value is, in any file.",
        immutable=True, fallbacks=("blob.stored-descriptor-fields",),
    )
    blob_view_field: tuple[str, ...] = option(
        "blob-view-field", NAMES, (), READ,
        "BLOB columns whose rows name a row and a BLOB column of another table.", immutable=True,
    )
    blob_external_storage_field: tuple[str, ...] = option(
        "blob-external-storage-field", NAMES, (), READ,
        "Columns of `blob-descriptor-field` whose values are in `blob-external-storage-path`.",
        immutable=True,
    )
    blob_external_storage_path: str | None = option(
        "blob-external-storage-path", NAME, None, READ,
        "The directory for the values of `blob-external-storage-field`.", immutable=True,
    )
    blob_target_file_size_bytes: int | None = option(
        "blob.target-file-size", SIZE, None, WRITE,
        "Size of a file of BLOB values; `target-file-size` if not set.",
    )
    blob_as_descriptor: bool = option(
        "blob-as-descriptor", FLAG, False, READ,
        "Read the descriptors of BLOB values (file, offset, length) in place of the values.",
    )
    blob_view_resolve_enabled: bool = option(
        "blob-view.resolve.enabled", FLAG, True, READ,
        "Read the values that views of BLOB values name; if false, the names themselves.",
    )
    blob_write_null_on_missing_file: bool = option(
        "blob-write-null-on-missing-file", FLAG, False, WRITE,
        "Write null for a descriptor of a file that does not exist.",
    )
    blob_write_null_on_fetch_failure: bool = option(
        "blob-write-null-on-fetch-failure", FLAG, False, WRITE,
        "Write null for a descriptor of a file that exists, but cannot be read.",
    )
    lakecore_blob_paths: tuple[str, ...] = option(
        "lakecore.blob-paths", NAMES, (), OTHER,
        "Directories outside the table whose files descriptors may name; never stored.",
        stored=False,
    )
    blob_descriptor_storage: Mapping[str, str] = keyed_family(
        "blob-descriptor.#", TEXT, OTHER,
        "Option of the storage that descriptors name, if it is not that of the table; a stored one "
        "does not count.",
    )
    # fmt: on

    @property
    def blob_inline_field(self) -> frozenset[str]:
        """The BLOB columns whose rows hold descriptors or views."""
        return frozenset((*self.blob_descriptor_field, *self.blob_view_field))
