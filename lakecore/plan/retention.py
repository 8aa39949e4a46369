"""Which snapshots or changelogs may expire: a pure decision over ids and times.

https://paimon.apache.org/docs/master/maintenance/manage-snapshots/

1. Ids below `latest - retain_max + 1` exceed the maximum number and expire regardless of their age.
2. The newest `retain_min` stay, and so does everything from the next snapshot of a consumer on.
3. One run expires at most `max_deletes`.
4. Within these limits, ids expire from the oldest on, up to the first that is too young.

Tags expire by other rules: `table/maintenance/tags.py`.

INVARIANT: what expires is a range from the earliest id on, so ids never get gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.options.choices import TagCreation, TagFormatter, TagPeriod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.options import TableOptions

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
    earliest: int, newest: int, latest: int, keep: Retention, times_of: TimesOf
) -> int:
    """The first long-lived changelog that is kept; `earliest` if none expires.

    `earliest` and `newest` are ids of changelogs, `latest` is the newest snapshot. The newest
    changelog always stays.
    """
    first = max(latest - keep.retain_max + 1, earliest)
    end = min(latest - keep.retain_min + 1, earliest + keep.max_deletes, newest)
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


# --- tag periods ---------------------------------------------------------------------------------
# The names and times of automatic tags.
#
# An automatic tag has the name of the period that ended: `2024-01-01` is the tag of that day. Times
# are wall clocks in milliseconds, counted as if the clock showed UTC. The rules are Paimon's
# (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

NO_WATERMARK = -(2**63)
_HOUR_MS = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS = {"%Y": "([0-9]{4})", "%m": "([0-9]{2})", "%d": "([0-9]{2})", "%H": "([0-9]{2})"}
_PARTS["%M"] = "([0-9]{2})"

_DAYS = {
    TagFormatter.WITH_DASHES: "%Y-%m-%d",
    TagFormatter.WITHOUT_DASHES: "%Y%m%d",
    TagFormatter.WITHOUT_DASHES_AND_SPACES: "%Y%m%d",
}
_HOURS = {
    TagFormatter.WITH_DASHES: "%Y-%m-%d %H",
    TagFormatter.WITHOUT_DASHES: "%Y%m%d %H",
    TagFormatter.WITHOUT_DASHES_AND_SPACES: "%Y%m%d%H",
}
_MINUTES = "%Y%m%d%H%M"


@dataclass(frozen=True, slots=True)
class TagPeriods:
    """Periods of one length, and how their tags are named."""

    length_ms: int
    pattern: str

    def name(self, start_ms: int) -> str:
        """The name of the tag of the period that begins at this time."""
        then = _EPOCH + timedelta(milliseconds=start_ms)
        # NOTE: `strftime` does not pad years below 1000.
        return then.strftime(self.pattern.replace("%Y", f"{then.year:04}"))

    def start_ms(self, name: str) -> int | None:
        """The start of the period that a tag names.

        None if the name is not that of an automatic tag.
        """
        if self.pattern in _DAYS.values():
            name = name.partition(" ")[0]
        found = re.fullmatch(re.sub("%.", lambda part: _PARTS[part[0]], self.pattern), name)
        if found is None:
            return None
        try:
            then = datetime(*map(int, found.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]
        except ValueError:
            return None
        return (then - _EPOCH) // timedelta(milliseconds=1)

    def ended_ms(self, time_ms: int) -> int:
        """The start of the last period that has ended at this time."""
        return time_ms // self.length_ms * self.length_ms - self.length_ms

    def is_automatic(self, name: str) -> bool:
        """Whether a tag of that name counts as an automatic one."""
        return self.start_ms(name) is not None


DAYS = TagPeriods(24 * _HOUR_MS, _DAYS[TagFormatter.WITH_DASHES])
"""Days, as `2024-01-31`."""


def wall_ms(time_ms: int, zone: tzinfo | None) -> int | None:
    """The wall clock time of a zone at a point in time; None outside the years 2 to 9999.

    Without a zone, that of this process.
    """
    seconds, rest = divmod(time_ms, 1000)
    try:
        shown = datetime.fromtimestamp(seconds, zone).replace(tzinfo=UTC)
    except (OverflowError, ValueError, OSError):
        return None
    if shown.year == 1:  # the previous period may begin before year 1
        return None
    return (shown - _EPOCH) // timedelta(milliseconds=1) + rest


def tag_periods(options: TableOptions) -> TagPeriods | None:
    """The periods of a table's automatic tags; None if tags are not created by period."""
    if options.tag_automatic_creation in {TagCreation.NONE, TagCreation.BATCH}:
        return None
    return _stated_periods(options)


def coming_tag(options: TableOptions, now_ms: int, watermark: int | None) -> str | None:
    """The tag of the current period, which a Hive catalog lists before the tag exists.

    None unless `metastore.tag-to-partition.preview` asks for it, or if the time is unknown.
    """
    match options.metastore_tag_to_partition_preview:
        case TagCreation.PROCESS_TIME:
            time_ms = wall_ms(now_ms, options.sink_process_time_zone)
        case TagCreation.WATERMARK if watermark is not None and watermark != NO_WATERMARK:
            time_ms = wall_ms(watermark, options.sink_watermark_time_zone)
        case _:
            return None
    if time_ms is None:
        return None
    periods = _stated_periods(options)
    return periods.name(periods.ended_ms(time_ms) + periods.length_ms)


def _stated_periods(options: TableOptions) -> TagPeriods:
    if options.tag_creation_period_duration_ms is not None:
        return TagPeriods(options.tag_creation_period_duration_ms, _MINUTES)
    match options.tag_creation_period:
        case TagPeriod.DAILY:
            return TagPeriods(24 * _HOUR_MS, _DAYS[options.tag_period_formatter])
        case TagPeriod.HOURLY:
            return TagPeriods(_HOUR_MS, _HOURS[options.tag_period_formatter])
        case TagPeriod.TWO_HOURS:
            return TagPeriods(2 * _HOUR_MS, _HOURS[TagFormatter.WITH_DASHES])
