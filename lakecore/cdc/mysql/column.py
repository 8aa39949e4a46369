"""A MySQL column as the server defines it, and as the binary log describes it.

The log states the storage of a column: type code, precision, length in bytes, signedness. The log
states neither comments nor the display width 1 that makes a TINYINT a BOOLEAN. A definition of
`information_schema` is used if its column has the same storage. Otherwise the table was changed
after the rows were logged, and the definition follows from the log alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from lakecore.cdc.events import SourceSchema, SourceTable
from lakecore.cdc.types.mapping import (
    BYTES,
    TIME_DIGITS_MAX,
    TypeMapping,
    TypeOption,
    atomic,
    type_notes,
)
from lakecore.cdc.types.mysql import MySqlType, mysql_key_type, mysql_type, parse_mysql_type
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import DataType, Field, Root, with_nullable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Code(IntEnum):
    """The type codes of the binary log."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


BY_SERVER = "by the server"
_INTEGERS = {
    Code.TINY: "tinyint",
    Code.SHORT: "smallint",
    Code.INT24: "mediumint",
    Code.LONG: "int",
    Code.LONGLONG: "bigint",
}
_TEXTS = {1: "tinytext", 2: "text", 3: "mediumtext", 4: "longtext"}
_BLOBS = {1: "tinyblob", 2: "blob", 3: "mediumblob", 4: "longblob"}
PRINTED = {"UUID": 16, "INET4": 4, "INET6": 16}
"""MariaDB's types that are logged as BINARY of this length, without zeros at the end."""
_DEFAULT_LENGTHS = {
    **dict.fromkeys(("CHAR", "BINARY"), 1),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC", "FIXED"), 10),
}
"""The default lengths of types."""
_SAME = {"JSON": "LONGTEXT", "INTEGER": "INT", "NUMERIC": "DECIMAL", "REAL": "DOUBLE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A column as `information_schema.columns` defines it: `type` is its `column_type`.

    `may_be_flag`: the column may be a TINYINT(1) or another TINYINT: only the log describes the
    column, and the log does not distinguish the two.
    """

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    may_be_flag: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedColumn:
    """A column as the log's table map describes it.

    - `size`: of a string column, the bytes that store a value's length; of an ENUM, SET or BIT
      column, the bytes that store a value;
    - `precision`, `scale`: of a decimal; `precision` is the number of fraction digits of a time;
    - `length_bytes`: the largest length of a string, in bytes;
    - `encoding`: Python's name of the character set; None for bytes; `BY_SERVER` if only the server
      decodes it exactly;
    - `charset`: the server's name of the character set.
    """

    name: str
    code: Code
    unsigned: bool = False
    nullable: bool = True
    size: int = 0
    precision: int = 0
    scale: int = 0
    length_bytes: int = 0
    encoding: str | None = None
    charset: str = ""
    bytes_per_character: int = 1
    values: tuple[str, ...] = ()

    @property
    def definition(self) -> Definition:
        """The definition that follows from the log alone."""
        may_be_flag = self.code is Code.TINY and not self.unsigned
        return Definition(
            name=self.name, type=self._type(), nullable=self.nullable, may_be_flag=may_be_flag
        )

    def _type(self) -> str:
        characters = self.length_bytes // max(self.bytes_per_character, 1)
        fraction = f"({self.precision})" if self.precision else ""
        match self.code:
            case Code.TINY | Code.SHORT | Code.INT24 | Code.LONG | Code.LONGLONG:
                text = _INTEGERS[self.code]
                return f"{text} unsigned" if self.unsigned else text
            case Code.FLOAT | Code.DOUBLE | Code.DATE | Code.YEAR | Code.JSON | Code.GEOMETRY:
                return self.code.name.lower()
            case Code.TIMESTAMP2 | Code.DATETIME2 | Code.TIME2:
                return self.code.name[:-1].lower() + fraction
            case Code.NEWDECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Code.BIT:
                return f"bit({self.precision})"
            case Code.ENUM | Code.SET:
                values = ",".join("'" + each.replace("'", "''") + "'" for each in self.values)
                return f"{self.code.name.lower()}({values})"
            case Code.BLOB:
                return (_BLOBS if self.encoding is None else _TEXTS)[self.size]
            case Code.VARCHAR | Code.VAR_STRING:
                name = "varbinary" if self.encoding is None else "varchar"
                return f"{name}({characters})"
            case Code.STRING:
                return f"{'binary' if self.encoding is None else 'char'}({characters})"


def stated_type(text: str, mapping: TypeMapping, *, nullable: bool) -> DataType | None:
    """The type that a statement gives a column of a target; None if not certain."""
    try:
        parsed = parse_mysql_type(text)
        if TypeOption.TO_STRING in mapping:
            return None
        if (size := _DEFAULT_LENGTHS.get(parsed.name)) is not None and "(" not in text:
            parsed = replace(parsed, length=size, scale=0)
        kind = mysql_type(parsed, mapping)
    except (InvalidRequest, Unsupported):
        return None
    if parsed.name == "TIME":
        kind = atomic(Root.TIME, precision=min(parsed.length or 0, TIME_DIGITS_MAX))
    return with_nullable(kind, nullable=nullable)


def definitions_of(
    logged: Sequence[LoggedColumn], defined: Mapping[str, Definition]
) -> tuple[Definition, ...]:
    """The definition of each logged column.

    The server's definition if its column has the same storage; otherwise the log's.
    """
    found = []
    for column in logged:
        own = column.definition
        there = defined.get(column.name)
        found.append(there if there is not None and _is_same(own.type, there.type) else own)
    return tuple(found)


def printed_columns(
    logged: Sequence[LoggedColumn], definitions: Sequence[Definition]
) -> tuple[LoggedColumn, ...]:
    """The logged columns; columns of `PRINTED` types have the type as their character set."""
    names = [parse_mysql_type(each.type).name for each in definitions]
    return tuple(
        replace(column, charset=name) if name in PRINTED else column
        for column, name in zip(logged, names, strict=True)
    )


def source_schema(
    table: SourceTable,
    columns: Sequence[Definition],
    primary_key: Sequence[str],
    comment: str | None,
    mapping: TypeMapping,
) -> SourceSchema:
    """The source schema of the mirrored columns among `columns`, in Paimon's types."""
    fields: list[Field] = []
    notes: list[str] = []
    exact = mapping.exact((each.name for each in columns), primary_key)
    for column in columns:
        in_key = column.name in exact
        key = column.name in primary_key
        if mapping.excludes(table, column.name, exact=in_key or key):
            continue
        parsed = parse_mysql_type(column.type)
        usual = partial(_usual_type, parsed, mapping)
        of = partial(mysql_key_type, parsed, mapping) if in_key else usual
        kind, is_own = mapping.column_type(table, column.name, of, exact=in_key)
        if in_key or not is_own:
            notes += type_notes(column.name, kind, usual(), parsed.length or 0)
        nullable = column.nullable or "to-nullable" in mapping.options
        fields.append(
            Field(
                id=len(fields),
                name=column.name,
                type=with_nullable(kind, nullable=nullable and not key),
                description=column.comment or None,
            )
        )
    return SourceSchema(
        fields=tuple(fields),
        primary_key=tuple(primary_key),
        states_key=True,
        comment=comment or None,
        may_be_flags=frozenset(each.name for each in columns if each.may_be_flag)
        & {each.name for each in fields} - exact,
        exact=exact,
        notes=tuple(notes),
    )


def _usual_type(parsed: MySqlType, mapping: TypeMapping) -> DataType:
    """The type of a column outside of a key."""
    is_bytes = parsed.is_geometry and TypeOption.TO_STRING not in mapping
    return BYTES if is_bytes else mysql_type(parsed, mapping)


def _is_same(logged: str, defined: str) -> bool:
    """Whether two column definitions have the same storage format."""
    first, second = parse_mysql_type(logged), parse_mysql_type(defined)
    names = [_SAME.get(each.name, each.name) for each in (first, second)]
    if names[1] in PRINTED:
        return names[0] == "BINARY" and first.length == PRINTED[names[1]]
    if names[0] == "GEOMETRY":
        return second.is_geometry
    if names[0] != names[1] or first.unsigned != second.unsigned:
        return False
    if first.values or second.values:
        return first.values == second.values
    if names[0] in {"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "YEAR"}:
        return True
    return (first.length or 0, first.scale or 0) == (second.length or 0, second.scale or 0)
