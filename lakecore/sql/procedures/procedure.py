"""A procedure: its name, its arguments, its function, and its result columns.

Arguments are given by position, with `''` for omitted ones (Flink 1.18), or by name. Both forms may
be mixed; positional arguments come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakecore.sql.queries import Queries
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table

__all__ = ["Argument", "Call", "Kind", "Procedure", "flag", "number", "options_of", "text"]


class Kind(Enum):
    """The type of an argument."""

    TEXT = "STRING"
    NUMBER = "BIGINT"
    FLAG = "BOOLEAN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a procedure. `default` describes the value that applies if it is omitted."""

    name: str
    kind: Kind = Kind.TEXT
    required: bool = False
    default: str = ""


def text(name: str, default: str = "", *, required: bool = False) -> Argument:
    """An argument that is a string."""
    return Argument(name=name, required=required, default=default)


def number(name: str, default: str = "", *, required: bool = False) -> Argument:
    """An argument that is a whole number."""
    return Argument(name=name, kind=Kind.NUMBER, required=required, default=default)


def flag(name: str) -> Argument:
    """An argument that is true or false."""
    return Argument(name=name, kind=Kind.FLAG, default="false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the session, and the given arguments, converted to their types.

    `run` runs another statement in the session.
    """

    workspace: Workspace
    queries: Queries
    values: Mapping[str, object]
    run: Callable[[str], object]

    def text(self, name: str) -> str | None:
        """A string; None if it was not given."""
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """A whole number; None if it was not given."""
        value = self.values.get(name)
        assert value is None or isinstance(value, int), "arguments are in their types"
        return value

    def flag(self, name: str) -> bool:
        """Whether a flag is given and true."""
        return self.values.get(name) is True

    def table(self, name: str = "table", options: Mapping[str, str] | None = None) -> Table:
        """The table that an argument names."""
        return self.workspace.table(chain_of(self.text(name) or ""), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure. `run` returns the result rows; `forms` are lists of positional arguments."""

    name: str
    arguments: tuple[Argument, ...]
    run: Callable[[Call], list[tuple[object, ...]]]
    columns: tuple[str, ...] = ("result",)
    about: str = ""
    forms: tuple[tuple[str, ...], ...] = ()

    @property
    def usage(self) -> str:
        """The procedure and its arguments; optional ones are in brackets."""
        listed = ", ".join(
            f"{each.name} => {each.kind.value}"
            if each.required
            else f"[{each.name} => {each.kind.value}]"
            for each in self.arguments
        )
        return f"sys.{self.name}({listed})"

    def read(self, positional: Sequence[object], named: Mapping[str, object]) -> dict[str, object]:
        """The arguments by name, in their types. Raises InvalidRequest for invalid arguments."""
        known = {each.name: each for each in self.arguments}
        order = self._order(len(positional))
        given: dict[str, object] = dict(zip(order, positional, strict=True))
        for stated, value in named.items():
            name = _argument_name(stated, known)
            if name not in known:
                raise InvalidRequest(
                    "the procedure has no such argument",
                    procedure=self.name,
                    argument=name,
                    **did_you_mean(name, known),
                    usage=self.usage,
                )
            if name in given:
                raise InvalidRequest(
                    "an argument is given twice", procedure=self.name, argument=name
                )
            given[name] = value
        values = {
            name: _typed(self.name, known[name], value)
            for name, value in given.items()
            if value is not None and value != ""
        }
        missing = [name for name, each in known.items() if each.required and name not in values]
        if missing:
            raise InvalidRequest(
                "the procedure needs these arguments",
                procedure=self.name,
                missing=missing,
                usage=self.usage,
            )
        return values

    def _order(self, count: int) -> tuple[str, ...]:
        for form in self.forms:
            if len(form) == count:
                return form
        names = tuple(each.name for each in self.arguments)
        if count > len(names):
            raise InvalidRequest(
                "the procedure has fewer arguments",
                procedure=self.name,
                given=count,
                usage=self.usage,
            )
        return names[:count]


_OTHER_NAMES = {
    "snapshot": "snapshot_id",
    "tagname": "tag",
    "targettagname": "target_tag",
    "database_or_table": "identifier",
    "options": "table_options",
}
"""Names of arguments that only one of Paimon's engines has, in lower case."""


def _argument_name(stated: str, known: Collection[str]) -> str:
    """The argument of that name. Spark's spelling `consumerId` also means `consumer_id`."""
    if stated in known:
        return stated
    same = next((name for name in known if name.replace("_", "") == stated), stated)
    other = _OTHER_NAMES.get(stated, same)
    return other if same not in known and other in known else same


def _typed(procedure: str, argument: Argument, value: object) -> object:
    if argument.kind is Kind.TEXT:
        return str(value)
    if argument.kind is Kind.NUMBER and not isinstance(value, bool):
        found = str(value).strip()
        if found.lstrip("-").isdecimal():
            return int(found)
    if argument.kind is Kind.FLAG:
        word = str(value).lower()
        if word in {"true", "false"}:
            return word == "true"
    raise InvalidRequest(
        "an argument has another type",
        procedure=procedure,
        argument=argument.name,
        type=argument.kind.value,
        value=value,
    )


def chain_of(identifier: str) -> tuple[str, ...]:
    """The parts of a table's name in an argument. The first dot ends the database name."""
    bare = identifier.replace("`", "")
    return tuple(bare.split(".", 1)) if "." in bare else (bare,)


def options_of(given: str | None, what: str = "options") -> dict[str, str]:
    """`key1=value1,key2=value2` as a mapping."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, (given or "").split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidRequest(f"{what} are key=value, parted by commas", given=given)
        found[key.strip()] = value.strip()
    return found


def partitions_of(given: str | None) -> list[dict[str, str]] | None:
    """`dt=1,hh=2;dt=3` as a list of partitions; None if not given."""
    if given is None:
        return None
    return [options_of(each, "partitions") for each in given.split(";") if each.strip()]
