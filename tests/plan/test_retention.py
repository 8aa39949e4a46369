from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.plan.retention import Retention, end_of_changelogs, end_of_snapshots

if TYPE_CHECKING:
    from collections.abc import Sequence


def times(ids: Sequence[int]) -> list[int | None]:
    """Snapshot n was committed at n * 10."""
    return [10 * number for number in ids]


def keep(most: int = 100, least: int = 1, older: int = 10_000, deletes: int = 100) -> Retention:
    return Retention(retain_max=most, retain_min=least, older_than_ms=older, max_deletes=deletes)


def test_old_snapshots_expire_up_to_the_newest_that_stay() -> None:
    assert end_of_snapshots(1, 20, keep(least=5), None, times) == 16


def test_too_many_expire_whatever_their_age() -> None:
    assert end_of_snapshots(1, 20, keep(most=5, older=0), None, times) == 16


def test_snapshot_goes_when_the_one_after_it_is_old() -> None:
    assert end_of_snapshots(1, 20, keep(older=51), None, times) == 5
    assert end_of_snapshots(1, 20, keep(older=50), None, times) == 4


def test_one_run_has_a_limit_which_holds_for_too_many_too() -> None:
    assert end_of_snapshots(1, 20, keep(deletes=3), None, times) == 4
    assert end_of_snapshots(1, 20, keep(most=2, older=0, deletes=3), None, times) == 4


def test_consumer_holds_back_even_what_is_too_many() -> None:
    assert end_of_snapshots(1, 20, keep(most=2, older=0), 7, times) == 7


def test_earliest_is_never_passed_downwards() -> None:
    assert end_of_snapshots(5, 6, keep(least=10), None, times) == 5
    assert end_of_snapshots(5, 9, keep(), 2, times) == 5


def test_young_snapshot_between_old_ones_stops_the_walk() -> None:
    def jumping(ids: Sequence[int]) -> list[int | None]:
        return [10_001 if number == 4 else 10 * number for number in ids]

    assert end_of_snapshots(1, 20, keep(), None, jumping) == 3


def test_snapshot_that_is_gone_does_not_stop_the_walk() -> None:
    def gone(ids: Sequence[int]) -> list[int | None]:
        return [None if number == 4 else 10 * number for number in ids]

    assert end_of_snapshots(1, 20, keep(least=5), None, gone) == 16


def test_newest_changelog_stays() -> None:
    assert end_of_changelogs(1, 9, 20, keep(), times) == 9
    assert end_of_changelogs(1, 9, 20, keep(most=2, older=0), times) == 9


def test_changelog_goes_when_it_is_old_itself() -> None:
    assert end_of_changelogs(1, 9, 20, keep(older=51), times) == 6
