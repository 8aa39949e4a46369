"""Converts values in PostgreSQL's text format to the Arrow type of the target column.

The session uses ISO format and UTC. Paimon has no infinite dates or times, none before the year 1,
and no NaN in a DECIMAL: these values are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.postgres.connection import PostgresColumn

__all__ = ["array_items", "parsed"]


def parsed(column: PostgresColumn, values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    """The values of one column.

    Raises InvalidRequest, naming the column, if a value does not fit.
    """
    try:
        if pa.types.is_list(target):
            lists = [None if each is None else array_items(each) for each in values]
            flat = [item for each in lists if each is not None for item in each]
            items = _parsed(column.type.removeprefix("_"), flat, target.value_type)
            offsets = [0]
            for each in lists:
                offsets.append(offsets[-1] + (0 if each is None else len(each)))
            mask = pa.array([each is None for each in lists], pa.bool_())
            return pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), items, type=target, mask=mask
            )
        return _parsed(column.type, values, target)
    except (pa.ArrowInvalid, ValueError) as error:
        if isinstance(error, InvalidRequest):
            raise
        raise InvalidRequest(
            "a value of the source does not fit its column; `--type_mapping to-string` takes "
            "every value as text",
            column=column.name,
            type=column.type,
            cause=error,
        ) from error


def _parsed(kind: str, values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    texts = pa.array(values, pa.string())
    if kind == "bpchar":
        texts = pc.utf8_rtrim(texts, " ")
    if pa.types.is_string(target):
        return texts
    match kind:
        case "bool":
            return pc.equal(pc.utf8_slice_codeunits(texts, 0, 1), "t")
        case "bytea":
            return pa.array(
                [None if each is None else bytes.fromhex(each[2:]) for each in values], target
            )
        case "bit" | "varbit":
            return _bits(values, target)
        case "timestamptz":
            plain = pc.replace_substring_regex(texts, r"\+00$", "")
            return plain.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")).cast(target)
        case "timestamp":
            return texts.cast(pa.timestamp("us")).cast(target)
        case "time":
            return _times(texts, target)
        case "float4":
            return texts.cast(pa.float64()).cast(target, safe=False)
        case _:
            return texts.cast(target)


def _bits(values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(target):
        return pa.array([None if each is None else each == "1" for each in values], target)
    return pa.array(
        [
            None if each is None else int(each or "0", 2).to_bytes((len(each) + 7) // 8, "big")
            for each in values
        ],
        target,
    )


def _times(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Times of day. As in Paimon, digits after the milliseconds are cut."""
    since_1970 = pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us"))
    millis = pc.divide(since_1970.cast(pa.int64()), 1000)
    return millis.cast(pa.int32()).cast(pa.time32("ms")).cast(target)


def array_items(text: str) -> list[str | None]:
    """The items of a one-dimensional array's text. Raises InvalidRequest for more dimensions."""
    if not text.startswith("{"):
        raise InvalidRequest("an array with bounds of its own is not supported", value=text)
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise InvalidRequest("an array of several dimensions is not supported", value=text)
        if text[at] == '"':
            item = ""
            at += 1
            while text[at] != '"':
                if text[at] == "\\":
                    at += 1
                item += text[at]
                at += 1
            at += 1
            items.append(item)
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            item = text[at:stop]
            items.append(None if item == "NULL" else item)
            at = stop
        at += 1
    return items
