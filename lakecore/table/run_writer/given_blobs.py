"""BLOB values that a write is given: bytes, or descriptors of bytes in other files.

As in Paimon, bytes that begin like a descriptor count as a descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.format.blob_references import is_descriptor, is_view
from lakecore.format.blob_values import with_each_blob
from lakecore.io.referenced_blobs import ReferencedBlobs

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.options import TableOptions


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
