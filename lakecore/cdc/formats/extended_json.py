"""Converts MongoDB's documents (extended JSON) to one string for each field, as Paimon does.

Only top-level fields count. An ObjectId becomes its hexadecimal digits, a date its milliseconds
since 1970, a timestamp its seconds, bytes become Base64, a UUID its text, a regular expression
`/pattern/options`. A document or an array is JSON with the same replacements inside. Null and
undefined are null.

See https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["document_texts", "java_double", "parsed_json"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UUID_KINDS = frozenset({"03", "3", "04", "4"})
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e7


def document_texts(text: str) -> dict[str, str | None]:
    """The top-level fields of a document as strings.

    Raises ValueError if the text is not a document.
    """
    document = parsed_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a document")  # noqa: TRY004  a message is wrong, not a type
    return {name: _text(_value(value)) for name, value in document.items()}


def parsed_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for an integer that Python does not parse."""
    return json.loads(text, parse_int=_whole)


def java_double(number: float) -> str:
    """A double as Java prints it."""
    if number != number:  # noqa: PLR0124  NaN alone differs from itself
        return "NaN"
    if number in {float("inf"), float("-inf")}:
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _PLAIN_LOW <= abs(number) < _PLAIN_HIGH:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    power = exponent + len(shown) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return java_double(value)
        case dict() | list():
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
        case _:
            return str(value)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    for name, convert in _SPECIAL.items():
        if name in value:
            return convert(value)
    return {name: _value(each) for name, each in value.items()}


def _whole(text: str | int) -> int:
    """The integer. No integer of MongoDB comes near Python's limit of digits."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("a number is not an integer of MongoDB") from None


def _date(value: dict[str, Any]) -> int:
    given = value["$date"]
    if isinstance(given, dict):
        return _whole(given["$numberLong"])
    if isinstance(given, str):
        moment = dt.datetime.fromisoformat(given)
        return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    return _whole(given)


def _binary(value: dict[str, Any]) -> str:
    given = value["$binary"]
    data, kind = (
        (given["base64"], given["subType"])
        if isinstance(given, dict)
        else (given, value.get("$type", "00"))
    )
    if str(kind) in _UUID_KINDS:
        return str(uuid.UUID(bytes=base64.b64decode(data)))
    return str(data)


def _regex(pattern: str, options: str) -> str:
    escaped = pattern.replace("/", "\\/") if pattern else "(?:)"
    return f"/{escaped}/{options}"


def _code(value: dict[str, Any]) -> object:
    if "$scope" in value:
        return {"$code": value["$code"], "$scope": _value(value["$scope"])}
    return value["$code"]


_SPECIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$oid": lambda value: value["$oid"],
    "$numberInt": lambda value: _whole(value["$numberInt"]),
    "$numberLong": lambda value: _whole(value["$numberLong"]),
    "$numberDouble": lambda value: float(value["$numberDouble"]),
    "$numberDecimal": lambda value: Decimal(value["$numberDecimal"]),
    "$date": _date,
    "$binary": _binary,
    "$uuid": lambda value: value["$uuid"],
    "$timestamp": lambda value: value["$timestamp"]["t"],
    "$regularExpression": lambda value: _regex(
        value["$regularExpression"]["pattern"], value["$regularExpression"]["options"]
    ),
    "$regex": lambda value: _regex(value["$regex"], value.get("$options", "")),
    "$symbol": lambda value: value["$symbol"],
    "$code": _code,
    "$undefined": lambda _value: None,
    "$minKey": lambda _value: "BsonMinKey",
    "$maxKey": lambda _value: "BsonMaxKey",
}
