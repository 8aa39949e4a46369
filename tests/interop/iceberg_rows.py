"""Rows in a form that every reader of Iceberg can give, and that JSON can hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """A value: times as ISO text, decimals as text, bytes as hex, maps as sorted pairs."""
    match value:
        case datetime():
            zone = value.tzinfo is not None
            shown = value.astimezone(UTC).replace(tzinfo=None) if zone else value
            return shown.isoformat(timespec="microseconds") + ("Z" if zone else "")
        case time():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float():
            return repr(value)  # also -0.0 and NaN
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case list() | tuple():
            if value and all(
                isinstance(each, dict) and {*each} == {"key", "value"} for each in value
            ):
                value = [(each["key"], each["value"]) for each in value]
            parts = [plain(each) for each in value]
            pairs = value and all(isinstance(each, tuple) and len(each) == 2 for each in value)
            return sorted(parts, key=json.dumps) if pairs else parts
    return value


def plain_rows(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as sorted JSON texts."""
    return sorted(json.dumps(plain(row), sort_keys=True) for row in rows)
