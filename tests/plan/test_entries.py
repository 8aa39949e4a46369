"""What is left of entries when manifests are merged, a column at a time."""

from __future__ import annotations

import random
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.binary_row import serialize_row
from lakecore.format.manifest_files import decode_entries, encode_manifest
from lakecore.model.manifest import FileKind
from lakecore.model.types import parse_type
from lakecore.model.validation import create_schema
from lakecore.plan.manifests import Deletions, cancel, in_order_of_partitions
from lakecore.plan.partitions import Partitions
from tests.tables import entry, files

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from lakecore.model.manifest import ManifestEntry

ADD, DELETE = FileKind.ADD, FileKind.DELETE


def frame(entries: Sequence[ManifestEntry]) -> pl.DataFrame:
    return decode_entries(encode_manifest(entries), "m")


def changes(text: str) -> pl.DataFrame:
    """`"+a -b"`: file a is added, file b deleted."""
    return frame(
        [
            entry(file, ADD if word[0] == "+" else DELETE)
            for word in text.split()
            for file in files(f"L0 {word[1]}-{word[1]}")
        ]
    )


def shown(found: pl.DataFrame) -> str:
    return " ".join(
        f"{'+' if kind == ADD else '-'}{name[3]}"
        for kind, name in found.select("_KIND", "_FILE_NAME").rows()
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("+a +b", "+a +b"),
        ("+a -a", ""),
        ("+a +b -a", "+b"),
        ("-a +b", "-a +b"),
        ("-a +b -b", "-a"),
        ("-a +a", ""),
        ("-a +a -a", "-a"),
        ("+c +a -a +b +a -c", "+b +a"),
    ],
)
def test_added_and_deleted_cancel_and_other_deletions_stay(text: str, wanted: str) -> None:
    assert shown(cancel(changes(text))) == wanted


@pytest.mark.parametrize("text", ["+a +a", "-a -a", "+a +b +a", "+b +a -a +a +a"])
def test_entries_that_contradict_each_other_are_found(text: str) -> None:
    with pytest.raises(CorruptTable, match=r"added or deleted twice\. file=L0 a-a"):
        cancel(changes(text))


@pytest.mark.parametrize("seed", range(20))
def test_merging_any_neighbours_any_number_of_times_leaves_the_same_files(seed: int) -> None:
    chance = random.Random(seed)
    words: list[str] = []
    live: list[str] = []
    for name in chance.sample("abcdefghijklmnop", 16):
        words.append("+" + name)
        live.append(name)
        if chance.random() < 0.6:
            words.append("-" + live.pop(chance.randrange(len(live))))
    groups = [changes(word) for word in words]
    while len(groups) > 1:
        at = chance.randrange(len(groups) - 1)
        groups[at : at + 2] = [cancel(groups[at].vstack(groups[at + 1]))]

    assert shown(groups[0]) == " ".join("+" + name for name in words_of(words) if name in live)


def words_of(words: Sequence[str]) -> list[str]:
    """The files in the order they were added."""
    return [word[1] for word in words if word[0] == "+"]


@pytest.mark.parametrize(
    ("manifests", "wanted"),
    [
        (["+a +b", "-a"], ["+b", ""]),
        (["+a", "-a +b", "-b +c"], ["", "", "+c"]),
        (["+a", "-a +a"], ["", "+a"]),
        # Two deletions take the first two of three additions: they are all alike.
        (["+a -a +a", "+b -a +a"], ["", "+b +a"]),
        (["+a", "+b"], ["+a", "+b"]),
    ],
)
def test_deletions_meet_what_was_added_before_them(manifests: list[str], wanted: list[str]) -> None:
    frames = [changes(text) for text in manifests]
    deletions = Deletions(frames)

    assert [shown(deletions.take(each)) for each in frames] == wanted
    deletions.check_done()


def test_deletion_of_a_file_that_nobody_added_is_corrupt() -> None:
    frames = [changes("+a"), changes("-a -b")]
    deletions = Deletions(frames)
    for each in frames:
        deletions.take(each)

    with pytest.raises(CorruptTable, match=r"deleted that was not added\. file=L0 b-b"):
        deletions.check_done()


def test_deletions_know_their_partitions() -> None:
    eu, us = (entry(files("L0 a-a")[0], DELETE, partition=name) for name in (b"eu", b"us"))
    added = entry(files("L0 b-b")[0], partition=b"asia")

    assert Deletions([frame([us, added]), frame([eu, eu])]).partitions == [b"us", b"eu"]
    assert Deletions([]).partitions == []


def test_entries_come_by_the_values_of_their_partitions_and_keep_their_order_in_each() -> None:
    schema = create_schema(
        {"id": "INT", "dt": "DATE", "n": "INT"}, partition_keys=["n", "dt"], now_ms=0
    )
    types = [parse_type("INT"), parse_type("DATE")]
    partitions = [
        serialize_row([pa.array([n], pa.int32()), pa.array([day], pa.date32())], types)
        for n, day in [(300, None), (2, date(2026, 1, 2)), (None, None), (-5, None), (2, None)]
    ]
    entries = [
        entry(file, partition=partitions[number % 5])
        for number, file in enumerate(files(" | ".join(f"L0 {name}-z" for name in "abcdefghij")))
    ]
    found = in_order_of_partitions(frame(entries), Partitions(schema, schema.parsed_options()))

    assert shown(found) == "+c +h +d +i +e +j +b +g +a +f"
