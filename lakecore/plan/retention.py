"""Which snapshots or changelogs may expire: a pure decision over ids and times.

https://paimon.apache.org/docs/master/maintenance/manage-snapshots/

1. Ids below `latest - retain_max + 1` exceed the maximum number and expire regardless of their age.
2. The newest `retain_min` stay, and so does everything from the next snapshot of a consumer on.
3. One run expires at most `max_deletes`.
4. Within these limits, ids expire from the oldest on, up to the first that is too young.

Tags expire by other rules: `table/maintenance/expire_tags.py`.

INVARIANT: what expires is a range from the earliest id on, so ids never get gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    TimesOf = Callable[[Sequence[int]], Sequence[int | None]]
    """The commit time of each id, None for an id that does not exist."""

_FIRST_LOOK, _LOOK_MAX = 2, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept. `older_than_ms` is a point in time: newer snapshots are kept."""

    retain_max: int
    retain_min: int
    older_than_ms: int
    max_deletes: int

    def __post_init__(self) -> None:
        for name, least in (("retain_max", 1), ("retain_min", 1), ("max_deletes", 0)):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidRequest(
                    f"{name} is a whole number of at least {least}", **{name: value}
                )
        if self.retain_max < self.retain_min:
            raise InvalidRequest(
                "the most to keep is less than the least: give retain_min (or the option "
                "snapshot.num-retained.min), too",
                retain_max=self.retain_max,
                retain_min=self.retain_min,
            )


def end_of_snapshots(
    earliest: int, latest: int, keep: Retention, consumed: int | None, times_of: TimesOf
) -> int:
    """The first snapshot that is kept; `earliest` if none expires.

    A snapshot counts as too young if the next one is too young, because it was the latest one until
    the next one was committed. `consumed` is the next snapshot of the slowest consumer.
    """
    first = max(latest - keep.retain_max + 1, earliest)
    end = min(latest - keep.retain_min + 1, earliest + keep.max_deletes)
    if consumed is not None:
        end = min(end, consumed)
    for at, time_ms in _times(range(first + 1, end + 1), times_of):
        if time_ms is not None and keep.older_than_ms <= time_ms:
            return max(at - 1, earliest)
    return max(end, earliest)


def end_of_changelogs(
    earliest: int,
    newest: int,
    latest: int,
    keep: Retention,
    consumed: int | None,
    times_of: TimesOf,
) -> int:
    """The first long-lived changelog that is kept; `earliest` if none expires.

    `earliest` and `newest` are ids of changelogs, `latest` is the newest snapshot. The newest
    changelog always stays.
    """
    first = max(latest - keep.retain_max + 1, earliest)
    end = min(latest - keep.retain_min + 1, earliest + keep.max_deletes, newest)
    if consumed is not None:
        end = min(end, consumed)
    if end <= earliest:
        return earliest
    for at, time_ms in _times(range(first, end + 1), times_of):
        if time_ms is not None and keep.older_than_ms <= time_ms:
            return max(at, earliest)
    return end


def _times(ids: range, times_of: TimesOf) -> Iterator[tuple[int, int | None]]:
    """Each id with its time.

    Times are read in growing steps: often the first id is too young already.
    """
    done, at_once = 0, _FIRST_LOOK
    while done < len(ids):
        some = ids[done : done + at_once]
        yield from zip(some, times_of(some), strict=True)
        done, at_once = done + at_once, min(4 * at_once, _LOOK_MAX)
