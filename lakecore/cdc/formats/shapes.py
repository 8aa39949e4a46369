"""Shapes: conversions of JSON rows to columns, as strings or with types that a schema states."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lakecore.cdc.events import SourceSchema
from lakecore.cdc.types.mapping import STRING
from lakecore.errors import InvalidRequest
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from lakecore.cdc.types.texts import MessageColumn

# --- rows json -----------------------------------------------------------------------------------
# Reads many JSON objects as one table of strings, integers and booleans, without losing a digit.
#
# Arrow's JSON reader reads the objects in bulk, but parses strings that look like a time as a time,
# and numbers with a fraction as floats. Therefore:
#
# 1. Read with the column kinds known from earlier objects; let Arrow infer the others.
# 2. A column of strings, whole numbers or booleans is correct. For a column that Arrow parsed as
#    times, remember that it holds strings, and read again.
# 3. Columns of other numbers, of arrays and of objects are read again one by one, as the text of
#    the JSON. Numbers are printed as Java's BigDecimal prints them; arrays and objects have no
#    blanks.
# 4. If Arrow cannot read the objects together, because a column changes its kind, each value is
#    read alone.
#
# If the caller states the type of a column, its values have that type or are strings.

_BLOCK_MIN = 1 << 20
_NULLS = pa.array(["", "null"])
_PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)\.[0-9]{0,5}[1-9]$|^-?[1-9][0-9]*(\.[0-9]+)?$"
_PLAIN = (pa.string(), pa.int64(), pa.bool_())


class RowReader:
    """Reads the rows of one table; remembers the kinds of its columns.

    `types`: the Arrow types of columns that the caller knows. `quoted`: columns whose strings keep
    the leading quote, because a string and a number mean different things.
    """

    def __init__(
        self, types: Mapping[str, pa.DataType] | None = None, quoted: frozenset[str] = frozenset()
    ) -> None:
        self._stated = dict(types or {})
        self._kinds = dict(self._stated)
        self._quoted = quoted

    def read(self, raws: Sequence[bytes]) -> pa.Table:
        """One row per object, in order; null for a member that is null or absent.

        Columns are in the order of their first appearance, after the stated columns. Raises
        JsonError, with the number of the row, for text that is not a JSON object.
        """
        if not raws:
            return pa.table({})
        data = _lines(raws)
        try:
            return self._read(data, raws)
        except pa.ArrowInvalid:
            self._kinds = dict(self._stated)
            return self._read_singly(raws)

    def _read(self, data: bytes, raws: Sequence[bytes]) -> pa.Table:
        table = self._parse(data)
        learned = {
            field.name: pa.string() if pa.types.is_timestamp(field.type) else field.type
            for field in table.schema
            if field.name not in self._kinds
            and (field.type in _PLAIN or pa.types.is_timestamp(field.type))
        }
        times = [name for name in learned if table.schema.field(name).type != learned[name]]
        if times:
            known = self._kinds
            self._kinds = {**known, **{name: learned[name] for name in times}}
            order = table.schema.names
            table = self._parse(data)
            self._kinds = known
            table = table.select(order)
        self._kinds |= learned
        texts = [
            field.name
            for field in table.schema
            if field.name not in self._kinds and not pa.types.is_null(field.type)
        ]
        for name, values in zip(texts, member_texts(raws, texts) if texts else (), strict=True):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, _texts(values, name in self._quoted))
        for at, field in enumerate(table.schema):
            if pa.types.is_null(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
        for name in self._quoted & set(table.schema.names) - set(texts):
            at = table.schema.get_field_index(name)
            if pa.types.is_string(table.schema.field(at).type):
                marked = pc.binary_join_element_wise('"', table.column(at), "")
                table = table.set_column(at, name, marked)
        if table.num_rows != len(raws):
            raise pa.ArrowInvalid("not one object a line")
        table.validate(full=True)
        return table

    def _parse(self, data: bytes) -> pa.Table:
        return pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(len(data) + 1, _BLOCK_MIN)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(self._kinds.items())),
                unexpected_field_behavior="infer",
            ),
        )

    def _read_singly(self, raws: Sequence[bytes]) -> pa.Table:
        rows = objects(raws)
        names = dict.fromkeys(self._kinds)
        for row in rows:
            names.update(dict.fromkeys(row))
        texts = field_texts(raws, list(names), self._quoted, rows)
        return pa.table({name: pa.array(texts[name], pa.string()) for name in names})


def _texts(values: Sequence[bytes], keeps_quotes: bool) -> pa.Array:  # noqa: FBT001  of one column
    """JSON values as Paimon writes them. Plain numbers need no change."""
    texts = pa.array(values, pa.binary()).cast(pa.string())
    nulls = pc.is_in(texts, _NULLS)
    others = pc.invert(pc.or_(nulls, pc.match_substring_regex(texts, _PLAIN_NUMBER)))
    texts = pc.if_else(nulls, pa.scalar(None, pa.string()), texts)
    if not pc.any(others).as_py():
        return texts
    changed = [value_text(value, keeps_quotes=keeps_quotes) for value in _chosen(values, others)]
    return pc.replace_with_mask(texts, others, pa.array(changed, pa.string()))


def _chosen(values: Sequence[bytes], mask: pa.Array) -> list[bytes]:
    return [values[at] for at in pc.indices_nonzero(mask).to_pylist()]


def _lines(raws: Sequence[bytes]) -> bytes:
    """The objects, one on each line. A line break inside an object is replaced by a blank."""
    data = b"\n".join(raws)
    if data.count(b"\n") >= len(raws) or b"\r" in data:
        data = b"\n".join(bytes(raw).replace(b"\n", b" ").replace(b"\r", b" ") for raw in raws)
    return data


# --- shapes --------------------------------------------------------------------------------------

_WRONG_VALUES = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    RecursionError,
    TypeError,
    ValueError,
)


class TextShape:
    """Converts rows without types: each member becomes a STRING column, in order of appearance."""

    def __init__(self) -> None:
        self._reader = RowReader()

    def read(
        self, raws: Sequence[bytes], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        table = self._reader.read(raws)
        if raws and not table.num_columns:
            raise JsonError(0, "the row has no members")
        fields = tuple(
            Field(id=at, name=name, type=STRING) for at, name in enumerate(table.schema.names)
        )
        columns = [column.cast(pa.string()) for column in table.columns]
        schema = SourceSchema(fields=fields, primary_key=primary_key)
        return schema, pa.Table.from_arrays(columns, schema=_nullable(fields))


class TypedShape:
    """Converts rows with known columns. Members that are not columns are ignored.

    `exact`: the columns of a key, whose types keep different values of the source apart.
    """

    def __init__(
        self, columns: Sequence[MessageColumn], exact: frozenset[str] = frozenset()
    ) -> None:
        self._columns = tuple(columns)
        self._exact = exact
        self._fields = tuple(
            Field(id=at, name=each.name, type=each.type, description=each.comment)
            for at, each in enumerate(columns)
        )
        self._reader = RowReader(
            {each.name: each.hint for each in columns if each.hint is not None},
            frozenset(each.name for each in columns if each.quoted),
        )

    def read(
        self, raws: Sequence[bytes], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        given = self._reader.read(raws)
        names = set(given.schema.names)
        columns = []
        for column in self._columns:
            if column.name in names:
                values = given.column(column.name).combine_chunks()
            else:
                values = pa.nulls(len(raws), pa.string())
            columns.append(converted(column.convert, values, column.name))
        schema = SourceSchema(fields=self._fields, primary_key=primary_key, exact=self._exact)
        return schema, pa.Table.from_arrays(columns, schema=_nullable(self._fields))


def converted(convert: Callable[[Any, str], pa.Array], values: Any, column: str) -> pa.Array:
    """The values of a column in its type. Raises InvalidRequest for a value that does not fit."""
    try:
        return convert(values, column)
    except InvalidRequest:
        raise
    except _WRONG_VALUES as error:
        raise InvalidRequest(
            "a value does not fit the column's type", column=column, cause=error
        ) from error


def _nullable(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([each.with_nullable(True) for each in arrow_schema(fields)])


# --- json values ---------------------------------------------------------------------------------


class JsonError(ValueError):
    """Raised for a string that is not the expected JSON. `row`: its index in the list."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


@cache
def msgspec() -> ModuleType:
    """The module msgspec. Raises InvalidRequest, naming the extra, if not installed."""
    try:
        return import_module("msgspec")
    except ImportError as error:
        raise InvalidRequest(
            "formats of change data capture need msgspec: pip install 'lakecore[cdc]'"
        ) from error


def struct(name: str, members: Mapping[str, object], **aliases: str) -> type:
    """A class for JSON objects with optional members. An absent member is None, or empty raw bytes.

    `aliases` maps the name of a member to its name in JSON.
    """
    library: Any = msgspec()
    absent = library.Raw(b"")
    fields = [
        (member, kind, absent if kind is type(absent) else None) for member, kind in members.items()
    ]
    made: type = library.defstruct(name, fields, rename=aliases or None, gc=False)
    return made


def decoder_of(kind: Any) -> Callable[[bytes], Any]:
    """The function that parses a JSON string to an object of the class."""
    decode: Callable[[bytes], Any] = msgspec().json.Decoder(kind).decode
    return decode


def objects(raws: Sequence[bytes]) -> list[dict[str, bytes]]:
    """The members of each object, with their values as JSON text. Raises JsonError."""
    decode = object_decoder()
    rows: list[dict[str, bytes]] = []
    for number, raw in enumerate(raws):
        try:
            rows.append(decode(raw))
        except (RecursionError, ValueError) as error:
            raise JsonError(number, str(error)) from error
    return rows


@cache
def object_decoder() -> Callable[[bytes], dict[str, bytes]]:
    """The function that parses an object to its members, with their values as JSON text."""
    raw: Any = msgspec().Raw
    return decoder_of(dict[str, raw])


def overlaid(base: bytes, changes: bytes) -> bytes:
    """The object with members replaced by members of `changes`, even by nulls."""
    merged = objects([base, changes])
    encoded: bytes = msgspec().json.encode({**merged[0], **merged[1]})
    return encoded


def field_texts(
    raws: Sequence[bytes],
    names: Sequence[str],
    quoted: frozenset[str] = frozenset(),
    rows: Sequence[Mapping[str, bytes]] | None = None,
) -> dict[str, list[str | None]]:
    """The values of some members of each object as strings, by name.

    In the columns `quoted`, a JSON string keeps its leading quote, to distinguish it from a number.
    """
    found = objects(raws) if rows is None else rows
    texts: dict[str, list[str | None]] = {}
    for name in names:
        keeps = name in quoted
        column: list[str | None] = []
        for number, row in enumerate(found):
            try:
                column.append(value_text(bytes(row.get(name, b"null")), keeps_quotes=keeps))
            except ValueError as error:
                raise JsonError(number, str(error)) from error
        texts[name] = column
    return texts


def value_text(raw: bytes, *, keeps_quotes: bool = False) -> str | None:
    """A JSON value as Paimon writes it: a string without quotes, else JSON.

    With `keeps_quotes`, a JSON string keeps its leading quote.
    """
    first = raw[:1]
    if raw == b"null":
        return None
    if first == b'"':
        text: str = msgspec().json.decode(raw, type=str)
        return f'"{text}' if keeps_quotes else text
    if first in b"{[":
        return compact(raw)
    return raw.decode() if first in b"tf" else number_text(raw.decode())


def number_text(text: str) -> str:
    """A JSON number as Java prints it: integers unchanged, others in the form of BigDecimal."""
    if text.lstrip("-").isdigit():
        return "0" if text == "-0" else text
    number = Decimal(text)
    return str(number or number.copy_abs())


def member_texts(raws: Sequence[bytes], names: Sequence[str]) -> list[list[bytes]]:
    """The JSON of some members of each object, by name; empty if absent.

    Other members are skipped, which is much faster than `objects`. Raises JsonError.
    """
    members = {f"m{at}": name for at, name in enumerate(names)}
    raw: Any = msgspec().Raw
    decode = decoder_of(struct("Members", dict.fromkeys(members, raw), **members))
    found: list[Any] = []
    for number, text in enumerate(raws):
        try:
            found.append(decode(text))
        except (RecursionError, ValueError) as error:
            raise JsonError(number, str(error)) from error
    return [list(map(bytes, map(attrgetter(member), found))) for member in members]


def compact(raw: bytes) -> str:
    """JSON text without blanks between its tokens."""
    text: bytes = msgspec().json.format(raw, indent=-1)
    return text.decode()
