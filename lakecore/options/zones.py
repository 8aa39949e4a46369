"""Time zones as Java's `ZoneId.of` reads them: `Asia/Shanghai`, `UTC`, `+08:00`, `GMT+8`."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_ALLOWED = "a time zone such as Europe/Berlin, UTC or +08:00"
_HOURS_MAX = 18


def parse_zone(text: str) -> tzinfo:
    """The time zone. Raises ValueError for a text that names none."""
    name = text.strip()
    if name in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    found = _OFFSET.fullmatch(name)
    if found is not None:
        sign, *parts = found.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > timedelta(hours=_HOURS_MAX) or max(minutes, seconds) > 59:
            raise ValueError(_ALLOWED)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(_ALLOWED) from error
