"""Which manifests are merged, and that merging keeps each ADD before its DELETE."""

from __future__ import annotations

import random

import pytest

from lakecore.errors import CorruptTable
from lakecore.model.manifest import FileKind, ManifestEntry, ManifestFile, fold
from lakecore.plan.manifests import cancel, full_merge_is_due, neighbours_to_merge
from tests.tables import entry, files

ADD, DELETE = FileKind.ADD, FileKind.DELETE


def manifests(text: str) -> list[ManifestFile]:
    """`"5 100-"`: a manifest of 5 bytes, and one of 100 with deletions."""
    return [
        ManifestFile(
            name=word,
            size_bytes=int(word.rstrip("-")),
            added_count=1,
            deleted_count=word.count("-"),
            schema_id=0,
        )
        for word in text.split()
    ]


def changes(text: str) -> list[ManifestEntry]:
    """`"+a -b"`: file a is added, file b deleted."""
    return [
        entry(file, ADD if word[0] == "+" else DELETE)
        for word in text.split()
        for file in files(f"L0 {word[1]}-{word[1]}")
    ]


def shown(found: list[ManifestEntry]) -> str:
    signs = {ADD: "+", DELETE: "-"}
    return " ".join(signs[each.kind] + each.file.name[3] for each in found)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("5", ["5"]),
        ("5 5", ["5", "5"]),
        ("5 5 5", ["5 5 5"]),
        ("100 5 5", ["100", "5", "5"]),
        ("60 60 5", ["60 60", "5"]),
        ("5 5 100 5 5 5", ["5 5 100", "5 5 5"]),
        ("100 100 100", ["100", "100", "100"]),
    ],
)
def test_neighbours_gather_up_to_the_target_or_the_count(text: str, wanted: list[str]) -> None:
    groups = neighbours_to_merge(manifests(text), target_bytes=100, count_min=3)

    assert [" ".join(manifest.name for manifest in group) for group in groups] == wanted


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("", False),
        ("99", False),
        ("50 49", True),
        ("50 48", False),
        ("500 500", False),
        ("500- 500", False),
        ("500- 500-", True),
        ("500- 1", True),
    ],
)
def test_full_merge_is_due_when_small_and_deleting_manifests_reach_the_threshold(
    text: str, *, due: bool
) -> None:
    assert full_merge_is_due(manifests(text), target_bytes=100, threshold_bytes=99) is due


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
    ],
)
def test_added_and_deleted_cancel_and_other_deletions_stay(text: str, wanted: str) -> None:
    assert shown(list(cancel(changes(text)))) == wanted


@pytest.mark.parametrize("text", ["+a +a", "-a -a", "+a +b +a"])
def test_entries_that_contradict_each_other_are_found(text: str) -> None:
    with pytest.raises(CorruptTable, match="twice"):
        cancel(changes(text))


@pytest.mark.parametrize("seed", range(20))
def test_merging_any_neighbours_any_number_of_times_folds_to_the_same_files(seed: int) -> None:
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
        groups[at : at + 2] = [list(cancel([*groups[at], *groups[at + 1]]))]

        left = fold(each for group in groups for each in group)
        assert {each.file.name[3] for each in left} == set(live)
