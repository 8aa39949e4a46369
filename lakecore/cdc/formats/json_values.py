"""Parses JSON strings one at a time: envelopes, and values that bulk reading would change.

msgspec parses only the requested members, and can leave a value as JSON text (`raw`). msgspec is an
optional extra, so types of msgspec are created at their first use.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType


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
