"""The live files of a large table, as columns, are those that folding all entries gives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CorruptTable
from lakecore.format.entry_columns import Ints
from lakecore.format.manifest_files import encode_manifest
from lakecore.io.live_files import ManifestCache, facts_of
from lakecore.model.files import Stats
from lakecore.model.manifest import FileKind, ManifestEntry, ManifestFile, fold
from tests.tables import files

if TYPE_CHECKING:
    from collections.abc import Sequence

(FILE,) = files("L0 a-z")
PARTITIONS = [bytes(12), b"\x00\x00\x00\x01" + bytes(16), b"\x00\x00\x00\x01" + bytes(15) + b"\x01"]


@st.composite
def changes(draw: st.DrawFn) -> list[ManifestEntry]:
    """Entries that add and delete files; sometimes one that does not follow."""
    entries: list[ManifestEntry] = []
    live: list[ManifestEntry] = []
    for number in range(draw(st.integers(0, 25))):
        if draw(st.booleans()) and live:
            gone = live.pop(draw(st.integers(0, len(live) - 1)))
            entries.append(replace(gone, kind=FileKind.DELETE))
            if draw(st.booleans()):  # it changes its level, or comes back
                level = draw(st.sampled_from([gone.file.level, 5]))
                again = replace(gone, file=replace(gone.file, level=level))
                entries.append(again)
                live.append(again)
            continue
        file = replace(
            FILE,
            name=f"data-{number}.parquet",
            level=draw(st.integers(0, 5)),
            row_count=draw(st.integers(0, 1 << 62)),
            size_bytes=draw(st.integers(0, 300)),
            sequence_max=draw(st.integers(-(1 << 63), (1 << 63) - 1)),
            value_stats=Stats(null_counts=draw(st.sampled_from([None, (), (1, None)]))),
            extra_files=draw(st.sampled_from([(), ("a.index",), ("a.index", "b")])),
            embedded_index=draw(st.sampled_from([None, b"", b"index"])),
            creation_time_ms=draw(st.sampled_from([None, 0, 1_750_000_000_000])),
            external_path=draw(st.sampled_from([None, "file:/elsewhere"])),
        )
        added = ManifestEntry(
            kind=FileKind.ADD,
            partition=draw(st.sampled_from(PARTITIONS)),
            bucket=draw(st.integers(-2, 3)),
            total_buckets=draw(st.sampled_from([-1, 4])),
            file=file,
        )
        entries.append(added)
        live.append(added)
    if entries and draw(st.integers(0, 9)) == 0:
        wrong = draw(st.sampled_from(entries))
        entries.insert(draw(st.integers(0, len(entries))), wrong)
    return entries


def cache_of(
    entries: Sequence[ManifestEntry], cuts: Sequence[int], file_format: str
) -> tuple[ManifestCache, list[ManifestFile]]:
    """The entries in manifests that end at the cuts."""
    bounds = sorted({0, len(entries), *(cut % (len(entries) + 1) for cut in cuts)})
    stored: dict[str, bytes] = {}
    manifests: list[ManifestFile] = []
    for first, end in itertools.pairwise(bounds):
        own = entries[first:end]
        name = f"manifest-{first}"
        stored[name] = encode_manifest(own, file_format=file_format)
        manifests.append(
            ManifestFile(
                name=name,
                size_bytes=len(stored[name]),
                added_count=sum(each.kind is FileKind.ADD for each in own),
                deleted_count=sum(each.kind is FileKind.DELETE for each in own),
                schema_id=0,
            )
        )
    return ManifestCache(lambda manifest: stored[manifest.name], str), manifests


def folded(entries: Sequence[ManifestEntry]) -> tuple[Sequence[ManifestEntry] | None, str]:
    """The live files, or the error."""
    try:
        return fold(entries), ""
    except CorruptTable as error:
        return None, str(error)


@given(
    entries=changes(),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    partitions=st.sets(st.sampled_from(PARTITIONS)),
    buckets=st.none() | st.sets(st.integers(-2, 3)),
    file_format=st.sampled_from(["avro", "avro", "parquet", "orc"]),
)
def test_live_columns_are_the_fold_of_all_entries(
    *,
    entries: list[ManifestEntry],
    cuts: list[int],
    partitions: set[bytes],
    buckets: set[int] | None,
    file_format: str,
) -> None:
    cache, manifests = cache_of(entries, cuts, file_format)
    expected, reason = folded(entries)
    if expected is None:
        with pytest.raises(CorruptTable) as found:
            cache.live(manifests)
        assert str(found.value) == reason
        return
    live = cache.live(manifests)

    assert len(live) == len(expected)
    assert live.partitions() == list(dict.fromkeys(entry.partition for entry in expected))
    assert live.facts().equals(facts_of(expected)[1])
    wanted = dict.fromkeys(partitions, buckets)
    some = [
        entry
        for entry in expected
        if entry.partition in partitions and (buckets is None or entry.bucket in buckets)
    ]
    # The second time, objects of some files are cached.
    assert cache.live(manifests, wanted).entries() == some
    assert live.entries() == list(expected)
    assert cache.live(manifests, wanted).entries() == some


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_numbers_come_back(values: list[int]) -> None:
    stored = np.array(values, np.int64)

    assert Ints(stored).take(np.arange(len(values))).tolist() == values
