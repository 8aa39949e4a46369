"""Entries as columns are the entries that the other reader and writer know, whoever wrote them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable
from lakecore.format.manifest_files import (
    ENTRY_SCHEMA,
    decode_entries,
    decode_manifest,
    encode_entries,
    encode_manifest,
    entry_identities,
)
from lakecore.model.manifest import FileKind, ManifestEntry
from tests.tables import entry, files

if TYPE_CHECKING:
    import polars as pl

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFESTS = [
    path
    for path in sorted(GOLDEN.glob("**/manifest/manifest-*"))
    if "manifest-list" not in path.name
]


def entries(count: int) -> list[ManifestEntry]:
    first = entry(files("L0 a-m")[0])
    return [
        replace(first, bucket=number, file=replace(first.file, name=f"data-{number}"))
        for number in range(count)
    ]


def frame(found: list[ManifestEntry]) -> pl.DataFrame:
    return decode_entries(encode_manifest(found), "m")


def test_manifests_of_every_writer_stay_what_they_are_as_columns() -> None:
    assert len(MANIFESTS) > 200
    for path in MANIFESTS:
        wanted = decode_manifest(path.read_bytes(), str(path))
        columns = decode_entries(path.read_bytes(), str(path))
        (written,) = encode_entries(columns, "zstd", 1 << 20)

        assert columns.schema == ENTRY_SCHEMA
        assert decode_manifest(written.data, "m") == wanted, path
        identities = entry_identities(columns).to_list()
        pairs = set(zip(identities, (each.identity for each in wanted), strict=True))
        assert len(pairs) == len(set(identities)) == len({each.identity for each in wanted})


def test_no_entries_make_no_manifest() -> None:
    nothing = frame([])

    assert nothing.height == 0
    assert list(encode_entries(nothing, "zstd", 100)) == []


@pytest.mark.parametrize("target", [1, 200, 1_000, 1 << 20])
def test_manifests_are_cut_at_the_target_and_none_is_smaller(target: int) -> None:
    wanted = entries(500)
    cut = list(encode_entries(frame(wanted), "zstd", target))

    assert [(part.first, part.count) for part in cut] == [
        (sum(each.count for each in cut[:number]), part.count) for number, part in enumerate(cut)
    ]
    assert [each for part in cut for each in decode_manifest(part.data, "m")] == wanted
    assert len(cut) == 1 or all(len(part.data) >= target for part in cut)
    assert (len(cut) > 1) == (target < 1 << 20)


def test_more_entries_than_are_encoded_at_once_stay_in_order() -> None:
    wanted = entries(20_000)
    (written,) = encode_entries(frame(wanted), "none", 1 << 30)

    assert decode_manifest(written.data, "m") == wanted


@pytest.mark.parametrize("compression", ["zstd", "none", "snappy", "deflate"])
def test_compression_is_the_one_that_is_asked_for(compression: str) -> None:
    (written,) = encode_entries(frame(entries(3)), compression, 1 << 20)

    assert decode_manifest(written.data, "m") == entries(3)


def test_entries_of_one_file_share_their_identity_and_others_do_not() -> None:
    (first,) = entries(1)
    file = first.file
    others = [
        replace(first, partition=b"p"),
        replace(first, bucket=7),
        replace(first, file=replace(file, level=1)),
        replace(first, file=replace(file, name="b")),
        replace(first, file=replace(file, extra_files=("a",))),
        replace(first, file=replace(file, extra_files=("a", "b"))),
        replace(first, file=replace(file, extra_files=("ab",))),
        replace(first, file=replace(file, embedded_index=b"")),
        replace(first, file=replace(file, embedded_index=b"x")),
        replace(first, file=replace(file, external_path="")),
        replace(first, file=replace(file, external_path="x")),
    ]
    same = [
        replace(first, kind=FileKind.DELETE),
        replace(first, total_buckets=9),
        replace(first, file=replace(file, row_count=9, first_row_id=4)),
    ]
    found = entry_identities(frame([first, *same, *others])).to_list()

    assert len(set(found[: 1 + len(same)])) == 1
    assert len(set(found)) == 1 + len(others)


@pytest.mark.parametrize("cut", [1, 40, 3_000])
def test_manifest_that_is_cut_short_or_damaged_is_corrupt(cut: int) -> None:
    data = encode_manifest(entries(50))

    with pytest.raises(CorruptTable, match="path=m"):
        decode_entries(data[:-cut], "m")
    with pytest.raises(CorruptTable, match="path=m"):
        decode_entries(b"x" + data, "m")


@pytest.mark.parametrize("magic", [b"PAR1", b"ORC"])
def test_beginning_of_another_format_alone_is_damaged(magic: bytes) -> None:
    with pytest.raises(CorruptTable, match="path=m"):
        decode_entries(magic + bytes(20), "m")
