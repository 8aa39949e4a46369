from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.compare import moved_changes, net_changes

if TYPE_CHECKING:
    from tests.interop.columns import Json

OLD: list[Json] = [1, "old"]
MID: list[Json] = [1, "mid"]
NEW: list[Json] = [1, "new"]
TO_MID = [("-U", OLD), ("+U", MID)]


@pytest.mark.parametrize(
    ("told", "net"),
    [
        ([("+I", NEW)], [("+I", NEW)]),
        ([("+I", MID), ("-U", MID), ("+U", NEW)], [("+I", NEW)]),
        ([*TO_MID, ("-U", MID), ("+U", NEW)], [("-U", OLD), ("+U", NEW)]),
        ([("-D", OLD), ("+I", NEW)], [("-U", OLD), ("+U", NEW)]),
        ([*TO_MID, ("-D", MID)], [("-D", OLD)]),
    ],
)
def test_several_changes_of_a_key_are_one(
    told: list[tuple[str, list[Json]]], net: list[tuple[str, list[Json]]]
) -> None:
    assert net_changes({"1": told}) == {"1": net}


@pytest.mark.parametrize(
    "told",
    [
        [("+I", NEW), ("-D", NEW)],
        [*TO_MID, ("-U", MID), ("+U", OLD)],
        [("-U", OLD), ("+U", OLD)],
    ],
)
def test_a_key_that_ends_as_it_began_has_no_change(told: list[tuple[str, list[Json]]]) -> None:
    assert net_changes({"1": told}) == {}


def test_a_key_that_comes_back_to_its_partition_may_change_its_bucket() -> None:
    in_its_bucket = moved_changes([("-U", OLD), ("+U", NEW)])

    assert in_its_bucket == moved_changes([("+I", NEW), ("-D", OLD)])
    assert in_its_bucket != moved_changes([("-U", MID), ("+U", NEW)])
    assert moved_changes([("-U", OLD)]) != moved_changes([("-D", OLD)])
