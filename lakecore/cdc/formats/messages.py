"""Messages of a topic or a file, and the error that names a bad message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["BadMessage", "Messages"]

_SHOWN_MAX = 200
_PLACE = ("topic", "partition", "offset", "file", "byte")


class BadMessage(InvalidRequest):
    """Raised for a message that cannot be read. The facts of the error say where the message is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Messages in the order of their source. A value of None is a tombstone.

    `metadata` has one row for each message: its position (`topic`, `partition`, `offset`, or
    `file`, `byte`) and other facts about it.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    metadata: pa.Table | None = None

    def __post_init__(self) -> None:
        assert self.keys is None or len(self.keys) == len(self.values)
        assert self.metadata is None or self.metadata.num_rows == len(self.values)

    def key(self, index: int) -> bytes | None:
        """The key of a message; None if it has none."""
        return None if self.keys is None else self.keys[index]

    def bad(self, index: int, reason: str, **facts: object) -> BadMessage:
        """The error that says what is wrong with a message, and where the message is."""
        places: dict[str, object] = {"number": index}
        if self.metadata is not None:
            row = self.metadata.slice(index, 1).to_pylist()[0]
            places = {name: row[name] for name in _PLACE if name in row}
        value = self.values[index] or b""
        text = value[:_SHOWN_MAX].decode(errors="replace")
        return BadMessage(reason, **places, **facts, value=text)
