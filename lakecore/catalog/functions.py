"""Functions that a catalog stores, as Paimon's `Function`. lakecore lists but never runs them.

https://paimon.apache.org/docs/master/concepts/functions/

A function has a definition for each engine: Java code in files, a lambda, or SQL text of that
engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakecore.errors import CorruptTable
from lakecore.model.type_text import field_to_json, parse_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.identifier import Identifier
    from lakecore.model.type_text import Json
    from lakecore.model.types import Field

__all__ = ["Function", "Functions", "function_from_json", "function_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function: its arguments, its results, and its definition for each engine.

    Arguments or results that the function does not state are None. A definition is Paimon's JSON
    object: its `type` is `file`, `lambda` or `sql`; the other fields depend on the type.
    """

    inputs: tuple[Field, ...] | None = None
    returns: tuple[Field, ...] | None = None
    deterministic: bool = False
    definitions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


class Functions(Protocol):
    """The functions of a catalog. Names are `database.function`."""

    def names(self, database: str) -> tuple[str, ...]:
        """The names of the functions of a database, sorted."""
        ...

    def find(self, name: Identifier) -> Function | None:
        """The function of that name; None if there is none."""
        ...


def function_from_json(body: object, name: Identifier) -> Function:
    """Parse a function from Paimon's JSON object.

    Raises CorruptTable if the object is malformed.
    """
    try:
        assert isinstance(body, dict), "a function is an object"
        definitions, comment = body.get("definitions") or {}, body.get("comment")
        assert all(isinstance(each, dict) for each in definitions.values()), "definitions"
        assert comment is None or isinstance(comment, str), "a comment is a text"
        return Function(
            inputs=_fields(body.get("inputParams")),
            returns=_fields(body.get("returnParams")),
            deterministic=body.get("deterministic") is True,
            definitions=dict(definitions),
            comment=comment,
            options={str(key): str(text) for key, text in (body.get("options") or {}).items()},
        )
    except (AssertionError, AttributeError, KeyError, TypeError) as error:
        raise CorruptTable("the stored function is malformed", function=name, why=error) from error


def function_to_json(function: Function) -> dict[str, object]:
    """The function as Paimon's JSON object, without its name."""

    def listed(fields: tuple[Field, ...] | None) -> list[Json] | None:
        return None if fields is None else [field_to_json(each) for each in fields]

    return {
        "inputParams": listed(function.inputs),
        "returnParams": listed(function.returns),
        "deterministic": function.deterministic,
        "definitions": {key: dict(each) for key, each in function.definitions.items()},
        "comment": function.comment,
        "options": dict(function.options),
    }


def _fields(listed: list[Json] | None) -> tuple[Field, ...] | None:
    return None if listed is None else tuple(parse_field(each) for each in listed)
