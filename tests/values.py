"""Values as the golden files write them: text for what JSON lacks."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakecore.model.types import (
    BINARIES,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
)

_EPOCH = dt.datetime(1970, 1, 1)


def column(values: list[Any], data_type: DataType) -> pa.Array:
    """The Arrow array of golden values."""
    return pa.array([python_value(value, data_type) for value in values], arrow_type(data_type))


def python_value(value: Any, data_type: DataType) -> Any:
    """What Arrow takes for a golden value; times and timestamps as numbers of the Arrow unit."""
    match data_type:
        case _ if value is None:
            return None
        case Array():
            return [python_value(item, data_type.element) for item in value]
        case Map():
            return [
                (python_value(key, data_type.key), python_value(item, data_type.value))
                for key, item in value
            ]
        case Multiset():
            return [(python_value(key, data_type.element), count) for key, count in value]
        case Row(fields=fields):
            return {
                field.name: python_value(item, field.type)
                for field, item in zip(fields, value, strict=True)
            }
        case Atomic(root=Root.DECIMAL):
            return Decimal(value)
        case Atomic(root=Root.DATE):
            return dt.date.fromisoformat(value)
        case Atomic(root=Root.TIME):
            clock, _, fraction = value.partition(".")
            hours, minutes, seconds = map(int, clock.split(":"))
            return ((hours * 60 + minutes) * 60 + seconds) * 1000 + int(fraction[:3].ljust(3, "0"))
        case Atomic(root=root) if root in TIMESTAMPS:
            bare, _, fraction = value.rstrip("Z").partition(".")
            seconds = (dt.datetime.fromisoformat(bare) - _EPOCH) // dt.timedelta(seconds=1)
            nanos = seconds * 10**9 + int(fraction.ljust(9, "0"))
            return nanos // {"ms": 10**6, "us": 10**3, "ns": 1}[arrow_type(data_type).unit]
        case Atomic(root=root) if root in BINARIES:
            return bytes.fromhex(value)
        case Atomic(root=Root.FLOAT | Root.DOUBLE):
            return float(value)
        case _:
            return value
