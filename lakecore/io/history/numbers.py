"""The numbers in the names of files: `snapshot-3`, `schema-0`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.format.layout import parse_numbered

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_number", "numbers"]


def numbers(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """The numbers of the names with this prefix, ascending."""
    found = (parse_numbered(name, prefix) for name in names)
    return tuple(sorted(number for number in found if number is not None))


def check_number(number: int, expected: int, path: str) -> None:
    """Raise CorruptTable if the number in a file differs from the number in its name."""
    if number != expected:
        raise CorruptTable("the file is that of another number", path=path, id=number)
