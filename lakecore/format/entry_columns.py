"""The entries of a manifest as columns of few bytes, and the rows of them that are live files.

A large table has too many files for a Python object each. `EntryColumns` holds what counting,
grouping, folding and planning need, in about 45 bytes an entry and the bytes of its first and last
key; the manifest as stored (some 300 bytes an entry) holds the rest. Objects are made from it for
the files that a caller touches: only the blocks that hold them are decompressed.

A file is identified by two hashes of 64 bits each of its identity (`model/manifest.py`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.format.avro_container import chosen_blocks
from lakecore.format.layout import LAKECORE_NAME
from lakecore.format.manifest_files import decode_entries, entries_of, entry_identities
from lakecore.format.manifest_records import is_table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from lakecore.model.manifest import ManifestEntry

    Rows: TypeAlias = NDArray[np.int64]
    Wanted: TypeAlias = Mapping[bytes, Collection[int] | None]
    """The partitions to take, each with its buckets (None: all of them)."""

_SEEDS = (17, 4_211)
_BYTES_BESIDE = 2_000
"""About what the objects of a manifest take, beside their arrays."""
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)
NO_TIME = -1
"""The creation time of a file whose writer states none."""
HOLDS_DELETIONS, COUNTED = 1, 2
"""Bits of `deletions`: the file holds deletions; their stated count is 0, and can be trusted."""


class Ints:
    """Whole numbers, held as differences from the least one in as few bytes as possible."""

    def __init__(self, values: Rows) -> None:
        self._count = len(values)
        self._low = int(values.min()) if len(values) else 0
        # In numbers without sign, the difference of any two numbers of 64 bits fits.
        above = values.astype(np.uint64) - np.uint64(self._low & (1 << 64) - 1)
        most = int(above.max()) if len(values) else 0
        width = next(each for each in _WIDTHS if most <= np.iinfo(each).max)
        self._above: NDArray[Any] | None = above.astype(width) if most else None

    @property
    def size_bytes(self) -> int:
        return 0 if self._above is None else self._above.nbytes

    def take(self, rows: Rows) -> Rows:
        if self._above is None:
            return np.full(len(rows), self._low, np.int64)
        low = np.uint64(self._low & (1 << 64) - 1)
        return (self._above[rows].astype(np.uint64) + low).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EntryColumns:
    """The entries of a manifest, in order. `codes` are places in `partitions`."""

    count: int
    partitions: tuple[bytes, ...]
    codes: Ints
    buckets: Ints
    total_buckets: Ints
    levels: Ints
    row_counts: Ints
    sizes_bytes: Ints
    sequences_min: Ints
    sequences_max: Ints
    creation_times_ms: Ints
    deletions: Ints
    keys: tuple[pa.BinaryArray, pa.BinaryArray]
    deletes: NDArray[np.bool_]
    hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]]

    @staticmethod
    def of(frame: pl.DataFrame) -> EntryColumns:
        partitions = frame["_PARTITION"].unique(maintain_order=True)
        places = pl.DataFrame({"_PARTITION": partitions}).with_row_index("code")
        codes = frame.select("_PARTITION").join(
            places, on="_PARTITION", how="left", maintain_order="left"
        )["code"]
        identities = entry_identities(frame)
        first, second = (identities.hash(seed).to_numpy() for seed in _SEEDS)
        times = frame["_CREATION_TIME"].fill_null(NO_TIME)
        count = pl.col("_DELETE_ROW_COUNT")
        trusted = (pl.col("_LEVEL") > 0) | pl.col("_FILE_NAME").str.contains(LAKECORE_NAME)
        holds = (count.fill_null(0) != 0) * HOLDS_DELETIONS
        counted = (count.fill_null(-1).eq(0) & trusted) * COUNTED
        return EntryColumns(
            count=frame.height,
            partitions=tuple(partitions.to_list()),
            codes=_ints(codes),
            buckets=_ints(frame["_BUCKET"]),
            total_buckets=_ints(frame["_TOTAL_BUCKETS"]),
            levels=_ints(frame["_LEVEL"]),
            row_counts=_ints(frame["_ROW_COUNT"]),
            sizes_bytes=_ints(frame["_FILE_SIZE"]),
            sequences_min=_ints(frame["_MIN_SEQUENCE_NUMBER"]),
            sequences_max=_ints(frame["_MAX_SEQUENCE_NUMBER"]),
            creation_times_ms=_ints(times),
            deletions=_ints(frame.select(holds + counted).to_series()),
            keys=(_binary(frame["_MIN_KEY"]), _binary(frame["_MAX_KEY"])),
            deletes=frame["_KIND"].to_numpy() != 0,
            hashes=(np.array(first), np.array(second)),
        )

    @property
    def size_bytes(self) -> int:
        ints = (
            self.codes,
            self.buckets,
            self.total_buckets,
            self.levels,
            self.row_counts,
            self.sizes_bytes,
            self.sequences_min,
            self.sequences_max,
            self.creation_times_ms,
            self.deletions,
        )
        numbers = sum(each.size_bytes for each in ints)
        partitions = sum(map(sys.getsizeof, self.partitions))
        arrays: int = sum(each.nbytes for each in (*self.keys, self.deletes, *self.hashes))
        return numbers + partitions + arrays + _BYTES_BESIDE

    def rows_of(self, wanted: Wanted | None) -> Rows:
        """The rows of the entries in these partitions and buckets (None: of all)."""
        every = np.arange(self.count)
        if wanted is None:
            return every
        taken = [number for number, each in enumerate(self.partitions) if each in wanted]
        if not taken:
            return every[:0]
        codes = self.codes.take(every)
        rows = np.flatnonzero(np.isin(codes, taken)) if len(taken) < len(self.partitions) else every
        some = [number for number in taken if wanted[self.partitions[number]] is not None]
        if not some:
            return rows
        buckets, codes = self.buckets.take(rows), codes[rows]
        keep = ~np.isin(codes, some)
        for number in some:
            own = wanted[self.partitions[number]]
            assert own is not None
            keep |= (codes == number) & np.isin(buckets, list(own))
        return rows[keep]


def _ints(series: pl.Series) -> Ints:
    return Ints(series.cast(pl.Int64).to_numpy())


def _binary(series: pl.Series) -> pa.BinaryArray:
    # In this form, no bytes of other columns or manifests stay in memory.
    return series.to_arrow().cast(pa.binary())


class Unmatched(ValueError):
    """An entry that does not follow from those before it: the file at `row` of a manifest."""

    def __init__(self, reason: str, manifest: int, row: int) -> None:
        super().__init__(reason)
        self.reason, self.manifest, self.row = reason, manifest, row


def live_rows(manifests: Sequence[EntryColumns], wanted: Wanted | None = None) -> list[Rows]:
    """For each of the manifests, which are in order, its rows of live files.

    Files of other partitions and buckets than the wanted are left out. Raises Unmatched if a file
    is added twice, or deleted without having been added.
    """
    rows = [each.rows_of(wanted) for each in manifests]
    if not rows:
        return []
    pairs = list(zip(manifests, rows, strict=True))
    first, second = (np.concatenate([each.hashes[n][own] for each, own in pairs]) for n in (0, 1))
    deletes = np.concatenate([each.deletes[own] for each, own in pairs])
    ordered = np.sort(first)
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(several) and not deletes.any():
        return rows
    # Only entries that are alone, and add a file, are live for certain.
    involved = np.flatnonzero(np.isin(first, several) | deletes)
    keep = np.ones(len(first), np.bool_)
    keep[involved] = False
    ends = np.cumsum([len(each) for each in rows])
    live: dict[tuple[int, int], int] = {}
    for at, one, two, is_delete in zip(
        involved.tolist(),
        first[involved].tolist(),
        second[involved].tolist(),
        deletes[involved].tolist(),
        strict=True,
    ):
        key = (one, two)
        if is_delete == (key in live):
            if is_delete:
                del live[key]
            else:
                live[key] = at
            continue
        manifest = int(np.searchsorted(ends, at, "right"))
        row = int(rows[manifest][at - (ends[manifest] - len(rows[manifest]))])
        reason = "a file is deleted that was not added" if is_delete else "a file is added twice"
        raise Unmatched(reason, manifest, row)
    keep[list(live.values())] = True
    kept = np.split(keep, ends[:-1])
    return [own[mask] for own, mask in zip(rows, kept, strict=True)]


def decode_rows_of(data: bytes, path: str, rows: Rows) -> list[ManifestEntry]:
    """The entries of a manifest at these rows, which ascend."""
    if not is_table(data):
        data, rows = chosen_blocks(data, path, rows)
    return entries_of(decode_entries(data, path)[rows], path)
