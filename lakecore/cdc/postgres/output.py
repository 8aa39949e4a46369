"""Parses messages of the plugin pgoutput, version 1.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Begin", "Change", "End", "Relation", "parse"]

_EPOCH_MS = 946_684_800_000
"""PostgreSQL counts times from the year 2000."""
_IGNORED = frozenset(b"OYTM")


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table for the next changes: each column with its type and modifier."""

    id: int
    schema: str
    table: str
    columns: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row of a table: its values before and after the change, as strings.

    An inserted row has no values before (None), and a deleted row none after.
    """

    relation: int
    before: tuple[str | None, ...] | None
    after: tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction: its number, and when it was committed."""

    transaction: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, and the position where the next one begins."""

    lsn: int


def parse(data: bytes) -> Relation | Change | Begin | End | None:
    """The parsed message; None for a message that changes no row."""
    kind = data[0]
    if kind in _IGNORED:
        return None
    match chr(kind):
        case "B":
            _, time, transaction = unpack_from(">QqI", data, 1)
            return Begin(transaction, time // 1000 + _EPOCH_MS)
        case "C":
            _, _, end, _ = unpack_from(">BQQq", data, 1)
            return End(end)
        case "R":
            return _relation(data)
        case "I":
            return Change(_id(data), None, _tuple(data, 6)[0])
        case "D":
            return Change(_id(data), _tuple(data, 6)[0], None)
        case "U":
            before, at = None, 5
            if data[at] in b"KO":
                before, at = _tuple(data, 6)
            after, _ = _tuple(data, at + 1, before)
            return Change(_id(data), before, after)
        case other:
            raise Unsupported("a message of pgoutput that is not known", kind=other)


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:5], "big")


def _relation(data: bytes) -> Relation:
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    count = int.from_bytes(data[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        name, at = _text(data, at + 1)
        oid, modifier = unpack_from(">Ii", data, at)
        at += 8
        columns.append((name, oid, modifier))
    return Relation(_id(data), schema, table, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _tuple(
    data: bytes, at: int, before: Sequence[str | None] | None = None
) -> tuple[tuple[str | None, ...], int]:
    """The values of a row. The server omits unchanged large values: they come from the old row."""
    count = int.from_bytes(data[at : at + 2], "big")
    at += 2
    values: list[str | None] = []
    for number in range(count):
        kind = data[at : at + 1]
        at += 1
        if kind == b"n":
            values.append(None)
        elif kind == b"t":
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            values.append(data[at + 4 : end].decode())
            at = end
        elif kind == b"u" and before is not None:
            values.append(before[number])
        else:
            raise InvalidRequest(
                "a change does not state a large value that stayed the same: set the replica "
                "identity of the table to FULL, and read it again"
            )
    return tuple(values), at
