"""Points in time, in every form that users may pass.

- A whole number, or a string of digits: milliseconds since 1970 in UTC.
- A string: a date, or a date and time, in ISO 8601.
- A `date`: its first moment.
- A `datetime`, a pandas `Timestamp`, a NumPy `datetime64`: its time, rounded down to milliseconds.

A time without a zone is local time in the zone of this machine, as in Paimon's `scan.timestamp`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

import numpy as np

from lakecore.errors import InvalidRequest

Time: TypeAlias = datetime | date | int | str
"""The types that users may pass. pandas times are datetimes; NumPy times are accepted, too."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"-?[0-9]+")
_DIGITS_OF_A_DATE = 8


def to_milliseconds(given: object) -> int:
    """A point in time as milliseconds since the epoch. Raises InvalidRequest for an invalid one."""
    number = whole_number(given)
    if number is not None:
        return number
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        if len(given) == _DIGITS_OF_A_DATE:
            raise InvalidRequest(
                "a timestamp of eight digits may be a date or milliseconds: write the date as "
                "2026-01-31, or give a number",
                timestamp=given,
            )
        return int(given)
    moment = _moment(given)
    # NOTE: `timestamp()` is a float, which is sometimes off by a millisecond.
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(
            "a timestamp must be between the years 1 and 9999 in UTC", timestamp=given
        ) from error


def wall_time(given: object) -> datetime | None:
    """The local time, if the value has no zone; None for a value with a zone or milliseconds.

    Raises InvalidRequest for a value that is not a point in time.
    """
    if given is None or isinstance(given, int):
        return None
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        return None
    moment = _moment(given)
    return moment if moment.tzinfo is None else None


def to_wall_clock(time_ms: int) -> int:
    """The local time of this machine at a point in time, stored as if it were UTC.

    Paimon stores the creation times of files like this.
    """
    seconds, milliseconds = divmod(time_ms, 1000)
    try:
        shown = datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=UTC)
    except (OverflowError, OSError, ValueError):  # outside the years 1 to 9999: ignore the zone
        return time_ms
    return (shown - _EPOCH) // timedelta(milliseconds=1) + milliseconds


def whole_number(given: object) -> int | None:
    """The value as an int, if it is a whole number of Python or NumPy.

    Returns None for any other value, also for a boolean.
    """
    if isinstance(given, bool | np.timedelta64) or not isinstance(given, int | np.integer):
        return None
    return int(given)


def is_time_text(text: str) -> bool:
    """Whether a string is a date, or a date and time, in ISO 8601."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not _DIGITS.fullmatch(text)


def _moment(given: object) -> datetime:
    if isinstance(given, np.datetime64):
        # A time outside the range of datetime becomes a number, and NaT becomes None.
        given = given.astype("datetime64[us]").item()
    match given:
        case str():
            try:
                return datetime.fromisoformat(given)
            except ValueError as error:
                raise InvalidRequest(
                    "not an ISO 8601 timestamp, such as 2026-01-31 10:00", timestamp=given
                ) from error
        case datetime():
            # Subclasses have arithmetic of their own: pandas' does not know the machine's zone.
            try:
                clock = time(
                    given.hour,
                    given.minute,
                    given.second,
                    given.microsecond,
                    given.tzinfo,
                    fold=given.fold,
                )
                return datetime.combine(date(given.year, given.month, given.day), clock)
            except (TypeError, ValueError) as error:  # pandas' NaT
                raise InvalidRequest(
                    "the timestamp is not a valid time", timestamp=given
                ) from error
        case date():
            return datetime.combine(given, time())
        case _:
            raise InvalidRequest(
                "a timestamp is a datetime, a date, an ISO 8601 text or milliseconds",
                timestamp=given,
            )
