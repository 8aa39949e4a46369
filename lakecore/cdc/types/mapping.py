"""The options of `--type_mapping`: how types of a source become types of a table.

Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.types import LENGTH_MAX, Array, Atomic, DataType, Root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TypeOption(StrEnum):
    """One option of `--type_mapping`."""

    TINYINT1_NOT_BOOL = "tinyint1-not-bool"
    TO_NULLABLE = "to-nullable"
    TO_STRING = "to-string"
    CHAR_TO_STRING = "char-to-string"
    LONGTEXT_TO_BYTES = "longtext-to-bytes"
    DECIMAL_NO_CHANGE = "decimal-no-change"
    BIGINT_UNSIGNED_TO_BIGINT = "bigint-unsigned-to-bigint"
    ALLOW_NON_STRING_TO_STRING = "allow-non-string-to-string"
    KEY_DATES_TO_STRING = "key-dates-to-string"
    BARE_NUMERIC_TO_DECIMAL = "bare-numeric-to-decimal"


OF_TYPES = frozenset(
    {
        TypeOption.TINYINT1_NOT_BOOL,
        TypeOption.CHAR_TO_STRING,
        TypeOption.LONGTEXT_TO_BYTES,
        TypeOption.BIGINT_UNSIGNED_TO_BIGINT,
    }
)
"""The options that change the type of a column; they have no effect if every column is text."""
_NAMES = frozenset(map(str, TypeOption))


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """The options that are set, and `key`: the columns of `--primary_keys`."""

    options: frozenset[TypeOption] = frozenset()
    key: tuple[str, ...] = ()

    def __contains__(self, option: TypeOption) -> bool:
        return option in self.options

    def exact(self, names: Iterable[str], primary_key: Iterable[str]) -> frozenset[str]:
        """Those of the columns of a table that are in the key of the target.

        A lossy mapping of such a column would make one row of several.
        """
        wanted = {name.lower() for name in self.key}
        stated = frozenset(name for name in names if name.lower() in wanted)
        return stated if wanted and len(stated) >= len(wanted) else frozenset(primary_key)

    @staticmethod
    def parse(names: str | Iterable[str], key: tuple[str, ...] = ()) -> TypeMapping:
        """The mapping for option names, given as a list or as one comma-separated string.

        Case is ignored, and `_` is read as `-`. Raises InvalidRequest for an unknown name.
        """
        given = names.split(",") if isinstance(names, str) else list(names)
        options: set[TypeOption] = set()
        for name in filter(None, (each.strip().lower().replace("_", "-") for each in given)):
            if name not in _NAMES:
                raise InvalidRequest(
                    "unknown type mapping option", option=name, known=list(TypeOption)
                )
            options.add(TypeOption(name))
        return TypeMapping(frozenset(options), key)


DEFAULT_MAPPING = TypeMapping()
TIME_DIGITS_MAX = 3
"""The fraction digits that Paimon stores of a TIME: it counts milliseconds."""
STRING = Atomic(root=Root.VARCHAR, length=LENGTH_MAX)
BYTES = Atomic(root=Root.VARBINARY, length=LENGTH_MAX)


def atomic(
    root: Root, *, length: int | None = None, precision: int | None = None, scale: int | None = None
) -> Atomic:
    """A nullable type without parts."""
    return Atomic(root=root, length=length, precision=precision, scale=scale)


def array_of(element: DataType) -> Array:
    """A nullable array of nullable elements."""
    return Array(element=element)


def type_notes(name: str, kind: DataType, usual: DataType, digits: int) -> Iterator[str]:
    """What a user must know about the type of a column: that it is unusual, or loses digits.

    `usual`: the type outside of a key. `digits`: the fraction digits of a TIME, otherwise 0.
    """
    if kind != usual:
        yield f"{name} is in the key: {kind} keeps its values apart, {usual} does not"
    elif isinstance(kind, Atomic) and kind.root is Root.TIME and digits > TIME_DIGITS_MAX:
        yield f"{name} loses digits: {kind} has milliseconds, --type_mapping to-string keeps all"
