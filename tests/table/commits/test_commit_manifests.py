"""What a manifest list says of the files of a manifest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.table.commits.commit_manifests import ManifestWriter, merge_is_useful
from tests.tables import entry, files, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.model.manifest import ManifestFile

FILES = files("L0 a-b | L0 c-d | L0 e-f")


@pytest.mark.parametrize(
    ("firsts", "bounds"),
    [
        ((100, 0, 50), (0, 109)),
        ((5, 6, 7), (5, 16)),
        ((0, None, 50), (None, None)),
        ((None, None, None), (None, None)),
    ],
)
def test_row_ids_are_bounded_where_every_file_has_some(
    firsts: tuple[int | None, ...], bounds: tuple[int | None, int | None]
) -> None:
    table = new_table({"k": "STRING NOT NULL"}, keys=("k",), manifest__merge_min_count="2")
    entries = [
        entry(replace(file, first_row_id=first, row_count=10))
        for file, first in zip(FILES, firsts, strict=True)
    ]
    manifests = ManifestWriter(table.context)
    name, _ = manifests.write_delta(entries)
    (written,) = table.context.history.manifest_list(name)

    assert (written.row_id_min, written.row_id_max) == bounds

    # Merged, the same is read off columns.
    second, _ = manifests.write_delta([entry(replace(FILES[0], name="z", first_row_id=None))])
    lists = [*table.context.history.manifest_list(name)]
    lists += table.context.history.manifest_list(second)
    (merged,) = manifests.merged(lists)
    assert (merged.row_id_min, merged.row_id_max) == (None, None)


def test_row_ids_of_merged_manifests_are_bounded_too() -> None:
    table = new_table({"k": "STRING NOT NULL"}, keys=("k",), manifest__merge_min_count="2")
    manifests = ManifestWriter(table.context)
    lists: list[ManifestFile] = []
    for file, first in zip(FILES, (100, 0, 50), strict=True):
        name, _ = manifests.write_delta([entry(replace(file, first_row_id=first, row_count=10))])
        lists += table.context.history.manifest_list(name)
    (merged,) = manifests.merged(lists)

    assert (merged.row_id_min, merged.row_id_max) == (0, 109)


@pytest.mark.parametrize(("count_min", "useful"), [("2", True), ("3", True), ("4", False)])
def test_merge_is_useful_once_there_are_enough_small_manifests(
    count_min: str, *, useful: bool
) -> None:
    table = new_table(manifest__merge_min_count="30")
    for number in range(3):
        put(table, f"{number} a")
    with_options(table, manifest__merge_min_count=count_min)
    context = reopened(table).context
    latest = context.history.latest_snapshot()
    assert latest is not None

    assert merge_is_useful(context, context.history.manifests(latest)) is useful
