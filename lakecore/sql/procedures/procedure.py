"""A procedure: one function, whose name and parameters are those of the procedure.

`@procedure() def rename_tag(table: Table, tag: str, target_tag: str)` has three required arguments.

Arguments are given by position, with `''` for omitted ones (Flink 1.18), or by name. Both forms may
be mixed; positional arguments come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, did_you_mean
from lakecore.sql.run_rows import partition_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakecore.sql.queries import Queries
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table

Rows: TypeAlias = "list[tuple[object, ...]]"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the session, and the given arguments, converted to their types.

    `run` runs another statement in the session.
    """

    workspace: Workspace
    queries: Queries
    values: Mapping[str, object]
    run: Callable[[str], object]

    def open(self, name: str, options: str | None = None) -> Table:
        """The table of that name, with options in a text such as `key1=value1,key2=value2`."""
        return self.workspace.table(chain_of(name), options_of(options) or None)

    def partitions(self, table: Table, given: str | None) -> list[dict[str, object]] | None:
        """The partitions in a text such as `dt=1,hh=2;dt=3`, in the types of the table's keys."""
        if given is None:
            return None
        wanted = (options_of(each, "partitions") for each in given.split(";") if each.strip())
        return [partition_values(self.queries, table.schema, each) for each in wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure. `run` returns the result rows; `forms` are lists of positional arguments."""

    name: str
    arguments: tuple[Argument, ...]
    run: Callable[[Call], Rows]
    columns: tuple[str, ...]
    about: str
    forms: tuple[tuple[str, ...], ...]

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


_KINDS = {
    "Table": (Kind.TEXT, True),
    "str": (Kind.TEXT, True),
    "str | None": (Kind.TEXT, False),
    "int": (Kind.NUMBER, True),
    "int | None": (Kind.NUMBER, False),
    "bool": (Kind.FLAG, False),
}
"""By the type of a parameter: the type of the argument, and whether it is required."""


def procedure(
    *,
    columns: tuple[str, ...] = ("result",),
    forms: tuple[tuple[str, ...], ...] = (),
    **defaults: str,
) -> Callable[[Callable[..., Rows | None]], Procedure]:
    """Declare a function as a procedure; its docstring begins with what it does.

    `defaults` describe the values of omitted arguments. A parameter of the type `Call` gets the
    call, one of the type `Table` the open table. Without result rows the answer is `Success`.
    """

    def declare(work: Callable[..., Rows | None]) -> Procedure:
        types = {name: str(each.annotation) for name, each in signature(work).parameters.items()}
        arguments = [
            Argument(
                name=name,
                kind=_KINDS[kind][0],
                required=_KINDS[kind][1],
                default=defaults.get(name, "false" if kind == "bool" else ""),
            )
            for name, kind in types.items()
            if kind != "Call"
        ]

        def run(call: Call) -> Rows:
            given: dict[str, object] = {}
            for name, kind in types.items():
                value = call.values.get(name)
                match kind:
                    case "Call":
                        given[name] = call
                    case "Table":
                        given[name] = call.open(str(value))
                    case _:
                        given[name] = value is True if kind == "bool" else value
            rows = work(**given)
            return [("Success",)] if rows is None else rows

        return Procedure(
            name=work.__name__,
            arguments=tuple(arguments),
            run=run,
            columns=columns,
            about=_about(work),
            forms=forms,
        )

    return declare


def _about(work: Callable[..., object]) -> str:
    """The first line of the docstring, as part of a sentence."""
    line = (work.__doc__ or "").partition("\n")[0].removesuffix(".")
    return line if line[:2].isupper() else line[:1].lower() + line[1:]


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
    """The parts of a table's name in an argument. The first dot ends the database name.

    A path, which has a slash, is one part.
    """
    bare = identifier.replace("`", "")
    return (bare,) if "/" in bare.partition("$")[0] else tuple(bare.split(".", 1))


def options_of(given: str | None, what: str = "options") -> dict[str, str]:
    """`key1=value1,key2=value2` as a mapping."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, (given or "").split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidRequest(f"{what} are key=value, parted by commas", given=given)
        found[key.strip()] = value.strip()
    return found
