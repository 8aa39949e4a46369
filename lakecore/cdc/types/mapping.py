"""The options of `--type_mapping`: how types of a source become types of a table.

Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.types import (
    LENGTH_MAX,
    Array,
    Atomic,
    DataType,
    Root,
    parse_type,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
"""The options that change the type of a column, without effect if every column is STRING."""
_NAMES = frozenset(map(str, TypeOption))


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """The options that are set, and `key`: the columns of `--primary_keys`.

    - `types`: own types by column, as the end of `database.table.column` in lower case;
    - `excluded`: columns, named likewise, that are not mirrored.
    """

    options: frozenset[TypeOption] = frozenset()
    key: tuple[str, ...] = ()
    types: tuple[tuple[str, DataType], ...] = ()
    excluded: tuple[str, ...] = ()
    _used: set[str] = field(default_factory=set, repr=False, compare=False)

    def __contains__(self, option: TypeOption) -> bool:
        return option in self.options

    def exact(self, names: Iterable[str], primary_key: Iterable[str]) -> frozenset[str]:
        """The columns of a table that are in the key of the target.

        A lossy mapping of such a column would make one row of several.
        """
        wanted = {name.lower() for name in self.key}
        stated = frozenset(name for name in names if name.lower() in wanted)
        return stated if wanted and len(stated) >= len(wanted) else frozenset(primary_key)

    def column_type(
        self, table: object, column: str, of: Callable[[], DataType], *, exact: bool
    ) -> tuple[DataType, bool]:
        """The type of a column: its own (True), or else what `of` returns (False).

        `exact`: whether the column is in a key. Raises InvalidRequest if the own type might make
        one key of several.
        """
        kinds = [kind for name, kind in self.types if self._names(name, table, column)]
        if not kinds:
            return of(), False
        kind = kinds[0]
        if exact and kind != STRING and kind != of():
            raise InvalidRequest(
                "a column of a key has the type STRING, or the one that it has without "
                "--column_type: other types might make one key of several",
                column=column,
                type=kind,
                expected=of(),
            )
        return kind, True

    def as_texts(self, names: Iterable[str]) -> TypeMapping:
        """The mapping by which these columns are STRING."""
        added = tuple((name.lower(), STRING) for name in names)
        self._used.update(name for name, _ in added)
        return replace(self, types=tuple(dict.fromkeys((*self.types, *added))))

    def excludes(self, table: object, column: str, *, exact: bool) -> bool:
        """Whether a column is not mirrored. Raises InvalidRequest for a column of a key."""
        found = [name for name in self.excluded if self._names(name, table, column)]
        if found and exact:
            raise InvalidRequest("a column of a key cannot be excluded", column=column)
        return bool(found)

    def check_used(self) -> None:
        """Raise InvalidRequest if a stated name is not the name of any requested column."""
        for flag, names in (
            ("--exclude-column", self.excluded),
            ("--column-type", [name for name, _ in self.types]),
        ):
            if unused := sorted({*names} - self._used):
                raise InvalidRequest("no table has such a column", flag=flag, columns=unused)

    def _names(self, name: str, table: object, column: str) -> bool:
        found = f".{table}.{column}".lower().endswith(f".{name}")
        if found:
            self._used.add(name)
        return found

    @staticmethod
    def parse(
        names: str | Iterable[str],
        key: tuple[str, ...] = (),
        types: Iterable[str] = (),
        excluded: Iterable[str] = (),
    ) -> TypeMapping:
        """The mapping for option names, given as a list or as one comma-separated string.

        Case is ignored, and `_` is read as `-`. `types`: strings of the form `table.column=TYPE`.
        Raises InvalidRequest for an unknown name or type.
        """
        given = names.split(",") if isinstance(names, str) else list(names)
        options: set[TypeOption] = set()
        for name in filter(None, (each.strip().lower().replace("_", "-") for each in given)):
            if name not in _NAMES:
                raise InvalidRequest(
                    "unknown type mapping option", option=name, known=list(TypeOption)
                )
            options.add(TypeOption(name))
        own = [text.partition("=") for text in types]
        return TypeMapping(
            frozenset(options),
            key,
            tuple((_column(name), with_nullable(parse_type(kind), True)) for name, _, kind in own),
            tuple(map(_column, excluded)),
        )


def _column(name: str) -> str:
    """The name of a column with its table, in lower case. Raises InvalidRequest for other text."""
    found = name.strip().lower()
    if not all(found.split(".")) or "." not in found:
        raise InvalidRequest("name a column as database.table.column", column=name)
    return found


DEFAULT_MAPPING = TypeMapping()
TIME_DIGITS_MAX = 3
"""The fraction digits of a TIME: Paimon stores milliseconds."""
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
    """Notes for a user if the type of a column is unusual, or loses digits.

    `usual`: the type outside of a key. `digits`: the fraction digits of a TIME, otherwise 0.
    """
    if kind != usual:
        yield f"{name} is in the key: {kind} keeps its values apart, {usual} does not"
    elif isinstance(kind, Atomic) and kind.root is Root.TIME and digits > TIME_DIGITS_MAX:
        yield f"{name} loses digits: {kind} has milliseconds, --type_mapping to-string keeps all"
