"""Unpacks rows of the binary log to columns of raw values.

A row image holds the null bits of its columns and then their values, one after the other. The table
map states the size of every value except strings. One call of a `struct.Struct` unpacks all values
between two strings. Which calls a row needs depends only on its null bits, so a plan is made once
for each pattern of nulls. Unpacked values are numbers and bytes; `binary_values.py` turns whole
columns of them into Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

from lakecore.cdc.mysql.column import Code, LoggedColumn
from lakecore.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Cut = tuple[Callable[[bytes, int], tuple[object, ...]] | None, int, int]

__all__ = ["RowImages", "decimal_size"]

_NUMBERS = {
    Code.TINY: "bB",
    Code.SHORT: "hH",
    Code.LONG: "iI",
    Code.LONGLONG: "qQ",
    Code.FLOAT: "ff",
    Code.DOUBLE: "dd",
    Code.YEAR: "BB",
}
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_size(precision: int, scale: int) -> int:
    """The bytes of a stored decimal: groups of nine digits take four bytes."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


@dataclass(slots=True)
class RowImages:
    """Unpacks the rows of one table, as one table map describes it."""

    columns: Sequence[LoggedColumn]
    _plans: dict[bytes, tuple[Cut, ...]] = field(default_factory=dict)

    def cut(self, data: bytes, start: int, end: int) -> list[tuple[object, ...]]:
        """The rows between two offsets, each as a tuple of raw values (None for null)."""
        size = (len(self.columns) + 7) // 8
        plans = self._plans
        rows: list[tuple[object, ...]] = []
        at = start
        while at < end:
            nulls = data[at : at + size]
            at += size
            plan = plans.get(nulls)
            if plan is None:
                plan = plans[nulls] = self._plan(nulls)
            row: list[object] = []
            for unpack, fixed, prefix in plan:
                if unpack is not None:
                    row += unpack(data, at)
                    at += fixed
                if prefix == 1:
                    stop = at + 1 + data[at]
                    row.append(data[at + 1 : stop])
                    at = stop
                elif prefix > 0:
                    stop = at + prefix + int.from_bytes(data[at : at + prefix], "little")
                    row.append(data[at + prefix : stop])
                    at = stop
                elif prefix < 0:
                    row += (None,) * -prefix
            rows.append(tuple(row))
        if at != end:
            raise CorruptTable("a row of the binary log ends behind its event", bytes=at - end)
        return rows

    def _plan(self, nulls: bytes) -> tuple[Cut, ...]:
        """The plan for a pattern of nulls.

        Each step reads fixed-size values, then a string or some nulls.

        The third part of a step is the number of length bytes of the string, or minus the number of
        nulls.
        """
        plan: list[Cut] = []
        codes: list[str] = []

        def close(last: int) -> None:
            packed = Struct("<" + "".join(codes))
            plan.append((packed.unpack_from if codes else None, packed.size, last))
            codes.clear()

        for number, column in enumerate(self.columns):
            if nulls[number // 8] >> (number % 8) & 1:
                if plan and not codes and plan[-1][2] < 0:
                    plan[-1] = (*plan[-1][:2], plan[-1][2] - 1)
                else:
                    close(-1)
                continue
            code, prefix = _storage(column)
            if prefix:
                close(prefix)
            else:
                codes.append(code)
        if codes:
            close(0)
        return tuple(plan)


def _storage(column: LoggedColumn) -> tuple[str, int]:
    """The `struct` code of a fixed-size value, or the number of length bytes of a string."""
    match column.code:
        case Code.VARCHAR | Code.VAR_STRING | Code.STRING:
            return "", 2 if column.length_bytes > 255 else 1
        case Code.BLOB | Code.JSON | Code.GEOMETRY:
            return "", column.size
        case Code.INT24 | Code.DATE:
            return "3s", 0
        case Code.TIMESTAMP2:
            return f"{4 + (column.precision + 1) // 2}s", 0
        case Code.DATETIME2:
            return f"{5 + (column.precision + 1) // 2}s", 0
        case Code.TIME2:
            return f"{3 + (column.precision + 1) // 2}s", 0
        case Code.NEWDECIMAL:
            return f"{decimal_size(column.precision, column.scale)}s", 0
        case Code.BIT:
            return f"{column.size}s", 0
        case Code.ENUM | Code.SET:
            return _UNSIGNED.get(column.size, f"{column.size}s"), 0
    return _NUMBERS[column.code][column.unsigned], 0
