"""The live files of a large table: columns of all its manifests, objects only of touched files.

The columns of a manifest (`format/entry_columns.py`), the manifest as stored, and the objects that
were made, by partition, are cached within the memory budget. What the caches have dropped is read
again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.errors import CorruptTable
from lakecore.format.entry_columns import (
    NO_TIME,
    EntryColumns,
    Unmatched,
    decode_rows_of,
    live_rows,
)
from lakecore.format.manifest_files import decode_entries
from lakecore.io.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.format.entry_columns import Rows, Wanted
    from lakecore.model.manifest import ManifestEntry, ManifestFile

Value = TypeVar("Value")

ENTRY_BYTES = 2_100
"""The approximate bytes of an entry as objects, in a table of a dozen columns."""
_DECODERS = 2
"""Decoding one manifest takes some 60 MiB."""


class ManifestCache:
    """The manifests of a table, read once. Thread-safe."""

    def __init__(
        self, read: Callable[[ManifestFile], bytes], path_of: Callable[[str], str]
    ) -> None:
        """`read` returns a manifest as stored; `path_of` returns the path of a name."""
        self._read = read
        self._path_of = path_of
        self._stored: Cache[str, bytes] = Cache(1)
        self._columns: Cache[str, EntryColumns] = Cache(1)
        self._made: Cache[tuple[str, bytes], Mapping[int, ManifestEntry]] = Cache(ENTRY_BYTES)

    def stored(self, manifest: ManifestFile) -> bytes:
        cached = self._stored.get(manifest.name)
        if cached is None:
            cached = self._read(manifest)
            self.remember(manifest.name, cached)
        return cached

    def remember(self, name: str, data: bytes) -> None:
        """Cache a manifest as stored."""
        self._stored.put(name, data, len(data) + 100)

    def columns(self, manifest: ManifestFile) -> EntryColumns:
        cached = self._columns.get(manifest.name)
        if cached is None:
            data = self.stored(manifest)
            cached = EntryColumns.of(decode_entries(data, self._path_of(manifest.name)))
            self._columns.put(manifest.name, cached, cached.size_bytes)
        return cached

    def live(self, manifests: Sequence[ManifestFile], wanted: Wanted | None = None) -> LiveColumns:
        """The files that are live after these manifests, in the wanted partitions and buckets.

        Raises CorruptTable if a file is added twice, or deleted without having been added.
        """
        columns = self._all_columns(manifests)
        try:
            rows = live_rows(columns, wanted)
        except Unmatched as error:
            manifest = manifests[error.manifest]
            path = self._path_of(manifest.name)
            (entry,) = decode_rows_of(self.stored(manifest), path, np.array([error.row]))
            raise CorruptTable(error.reason, file=entry.file.name) from error
        parts = [
            LivePart(*each) for each in zip(manifests, columns, rows, strict=True) if len(each[2])
        ]
        return LiveColumns(self, parts)

    def partitions(self, manifests: Sequence[ManifestFile]) -> list[bytes]:
        """The partitions that these manifests have entries of, in order."""
        columns = self._all_columns(manifests)
        return list(dict.fromkeys(each for one in columns for each in one.partitions))

    def _all_columns(self, manifests: Sequence[ManifestFile]) -> list[EntryColumns]:
        known = [self._columns.get(each.name) for each in manifests]
        unknown = [each for each, own in zip(manifests, known, strict=True) if own is None]
        if len(unknown) > 1:
            with ThreadPoolExecutor(_DECODERS) as pool:
                read = list(pool.map(self.columns, unknown))
        else:
            read = [self.columns(each) for each in unknown]
        fresh = iter(read)
        return [next(fresh) if own is None else own for own in known]

    def made(self, part: LivePart) -> list[ManifestEntry]:
        """The entries of a part as objects."""
        codes = part.columns.codes.take(part.rows)
        found: dict[int, ManifestEntry] = {}
        missing: list[Rows] = []
        keys = [(part.manifest.name, part.columns.partitions[n]) for n in np.unique(codes)]
        for number, key in zip(np.unique(codes).tolist(), keys, strict=True):
            known = self._made.get(key) or {}
            own = part.rows[codes == number]
            found |= known
            missing.append(own if not known else own[[row not in known for row in own.tolist()]])
        rows = np.sort(np.concatenate(missing))
        if len(rows):
            path = self._path_of(part.manifest.name)
            made = decode_rows_of(self.stored(part.manifest), path, rows)
            found |= dict(zip(rows.tolist(), made, strict=True))
            self._keep(keys, missing, found)
        return [found[row] for row in part.rows.tolist()]

    def _keep(
        self,
        keys: Sequence[tuple[str, bytes]],
        missing: Sequence[Rows],
        found: Mapping[int, ManifestEntry],
    ) -> None:
        for key, rows in zip(keys, missing, strict=True):
            if len(rows):
                known = self._made.take(key) or {}
                both = {**known, **{row: found[row] for row in rows.tolist()}}
                self._made.put(key, both, len(both))


@dataclass(frozen=True, slots=True, eq=False)
class LivePart:
    """The rows of a manifest that are live files."""

    manifest: ManifestFile
    columns: EntryColumns
    rows: Rows


class LiveColumns:
    """Live files as columns, in the order in which they were added."""

    def __init__(self, cache: ManifestCache, parts: Sequence[LivePart]) -> None:
        self._cache = cache
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self._parts)

    def column(self, name: str) -> Rows:
        """A column of `EntryColumns` that holds numbers: a number for each file."""
        parts = [getattr(part.columns, name).take(part.rows) for part in self._parts]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def places(self, partitions: Sequence[bytes]) -> Rows:
        """For each file, the place of its partition in this list."""
        place_of = {each: number for number, each in enumerate(partitions)}
        parts = [
            np.array([place_of.get(each, -1) for each in part.columns.partitions], np.int64)[
                part.columns.codes.take(part.rows)
            ]
            for part in self._parts
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def entries_at(self, places: Rows) -> list[ManifestEntry]:
        """The files at these places as objects, in this order."""
        return self._at(places, self._cache.made)

    def keys_at(self, places: Rows) -> tuple[list[bytes], list[bytes]]:
        """The serialized first keys, and last keys, of the files at these places."""

        def keys(part: LivePart, side: int) -> list[bytes]:
            found: list[bytes] = part.columns.keys[side].take(pa.array(part.rows)).to_pylist()
            return found

        low, high = (self._at(places, partial(keys, side=side)) for side in range(2))
        return low, high

    def _at(self, places: Rows, values_of: Callable[[LivePart], Sequence[Value]]) -> list[Value]:
        ends = np.cumsum([len(part.rows) for part in self._parts])
        order = np.argsort(places)
        parts = np.searchsorted(ends, places[order], "right")
        found: dict[int, Value] = {}
        for number in np.unique(parts).tolist():
            part, own = self._parts[number], order[parts == number]
            rows = part.rows[places[own] - (ends[number] - len(part.rows))]
            values = values_of(LivePart(part.manifest, part.columns, rows))
            found |= zip(own.tolist(), values, strict=True)
        return [found[place] for place in range(len(places))]

    def entries(self) -> list[ManifestEntry]:
        """The files as objects."""
        return [entry for part in self._parts for entry in self._cache.made(part)]

    def partitions(self) -> list[bytes]:
        """The partitions of the files, in the order of their first files."""
        found: dict[bytes, None] = {}
        for part in self._parts:
            codes, first = np.unique(part.columns.codes.take(part.rows), return_index=True)
            for number in codes[np.argsort(first)].tolist():
                found.setdefault(part.columns.partitions[number])
        return list(found)

    def facts(self) -> pl.DataFrame:
        """A row for each file, in order: `FACTS`. An unknown creation time is null."""
        numbers = {
            "bucket": "buckets",
            "total_buckets": "total_buckets",
            "level": "levels",
            "row_count": "row_counts",
            "size_bytes": "sizes_bytes",
            "sequence_max": "sequences_max",
            "creation_time_ms": "creation_times_ms",
        }
        columns = {"partition": self.places(self.partitions())}
        columns |= {name: self.column(of) for name, of in numbers.items()}
        times = pl.col("creation_time_ms")
        return pl.DataFrame(columns, schema=FACTS).with_columns(
            pl.when(times != NO_TIME).then(times).alias("creation_time_ms")
        )


def facts_of(entries: Sequence[ManifestEntry]) -> tuple[list[bytes], pl.DataFrame]:
    """The partitions and the facts of live files that are objects."""
    partitions = dict.fromkeys(entry.partition for entry in entries)
    places = {each: number for number, each in enumerate(partitions)}
    rows = [
        (
            places[entry.partition],
            entry.bucket,
            entry.total_buckets,
            entry.file.level,
            entry.file.row_count,
            entry.file.size_bytes,
            entry.file.sequence_max,
            entry.file.creation_time_ms,
        )
        for entry in entries
    ]
    return list(partitions), pl.DataFrame(rows, schema=FACTS, orient="row")


FACTS = {
    "partition": pl.Int64,
    "bucket": pl.Int64,
    "total_buckets": pl.Int64,
    "level": pl.Int64,
    "row_count": pl.Int64,
    "size_bytes": pl.Int64,
    "sequence_max": pl.Int64,
    "creation_time_ms": pl.Int64,
}
"""The columns of the facts of live files; `partition` is a place in the list of partitions."""
