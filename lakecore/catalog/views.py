"""Views that a catalog stores: a query under a name, as Paimon's `ViewSchema`.

https://paimon.apache.org/docs/master/concepts/views/

A view has a query, and may have a variant of it for each SQL dialect. lakecore reads and writes the
dialect `lakecore`; if a view lacks it, lakecore reads the query itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.errors import AlreadyExists, CorruptTable, InvalidRequest, NotFound
from lakecore.model.data_types import field_to_json, parse_field
from lakecore.model.types import Field, fields_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lakecore.catalog.identifier import Identifier


# --- view changes --------------------------------------------------------------------------------
# Changes of a stored view, as Paimon's `ViewChange`: its options, its comment, its dialects.
#
# https://paimon.apache.org/docs/master/concepts/views/


@dataclass(frozen=True, slots=True)
class SetViewOption:
    """Sets an option."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveViewOption:
    """Removes an option, if the view has it."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateViewComment:
    """Sets the comment; None removes it."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class AddDialect:
    """Adds the query in a dialect that the view does not have."""

    dialect: str
    query: str


@dataclass(frozen=True, slots=True)
class UpdateDialect:
    """Replaces the query in a dialect that the view has."""

    dialect: str
    query: str


@dataclass(frozen=True, slots=True)
class DropDialect:
    """Removes the query in a dialect that the view has."""

    dialect: str


ViewChange = (
    SetViewOption | RemoveViewOption | UpdateViewComment | AddDialect | UpdateDialect | DropDialect
)

_ACTIONS: Mapping[str, type[ViewChange]] = {
    "setOption": SetViewOption,
    "removeOption": RemoveViewOption,
    "updateComment": UpdateViewComment,
    "addDialect": AddDialect,
    "updateDialect": UpdateDialect,
    "dropDialect": DropDialect,
}


def view_change_to_json(change: ViewChange) -> dict[str, object]:
    """One change as Paimon's JSON object."""
    action = next(name for name, kind in _ACTIONS.items() if kind is type(change))
    return {"action": action, **{each: getattr(change, each) for each in change.__slots__}}


def view_change_from_json(body: object) -> ViewChange:
    """One change of Paimon's JSON object. Raises InvalidRequest for anything else."""
    if not isinstance(body, dict):
        raise InvalidRequest("a change of a view is an object")
    action = body.get("action")
    kind = _ACTIONS.get(action) if isinstance(action, str) else None
    if kind is None:
        raise InvalidRequest("unknown change of a view", action=action, known=list(_ACTIONS))
    values = {each: body.get(each) for each in kind.__slots__}
    for name, value in values.items():
        removes = kind is UpdateViewComment and value is None
        if not removes and not isinstance(value, str):
            raise InvalidRequest("a field of a view change is a string", field=name, value=value)
    return cast("Callable[..., ViewChange]", kind)(**values)


# --- views ---------------------------------------------------------------------------------------

DIALECT = "lakecore"


class _NoText(InvalidRequest):
    """Raised for a string of a view that is not valid Unicode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view: its query, its columns, and the other stored properties.

    Raises InvalidRequest for an unpaired surrogate in a string, which cannot be stored.
    """

    query: str
    fields: tuple[Field, ...]
    dialects: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = (each.name for each in self.fields)
        texts = (self.query, self.comment or "", *columns)
        pairs = (*self.dialects.items(), *self.options.items())
        try:
            "".join((*texts, *(text for pair in pairs for text in pair))).encode()
        except UnicodeEncodeError as error:
            raise _NoText("a string of the view is not Unicode", why=error.reason) from error

    @property
    def own_query(self) -> str:
        return self.dialects.get(DIALECT, self.query)


def new_view(
    query: str, schema: pa.Schema, comment: str | None, options: Mapping[str, str]
) -> View:
    """A new view with the query in lakecore's dialect. `schema`: the columns of its rows."""
    fields = fields_from_arrow(list(schema))
    return View(
        query=query, fields=fields, dialects={DIALECT: query}, comment=comment, options=options
    )


class Views(Protocol):
    """The views of a catalog. Names are `database.view`, and are shared with tables."""

    def names(self, database: str) -> tuple[str, ...]:
        """The names of the views of a database, sorted."""

    def find(self, name: Identifier) -> View | None:
        """The view of that name; None if there is none."""

    def create(self, name: Identifier, view: View) -> bool:
        """Store a view; False if a table or view has the name.

        Raises NotFound for a missing database.
        """

    def replace(self, name: Identifier, view: View) -> bool:
        """Store a view, and replace an existing view of that name.

        Returns False if a table has the name. Raises NotFound for a missing database.
        """

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        """Apply all changes, or none; False if there is no such view.

        Raises AlreadyExists or NotFound for a dialect, CommitConflict if other processes keep
        changing the view.
        """

    def drop(self, name: Identifier) -> bool:
        """Remove a view; False if there is none."""

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a view another name.

        Raises NotFound if there is no such view, AlreadyExists if the new name is taken.
        """


def changed_view(view: View, changes: Sequence[ViewChange], name: Identifier) -> View:
    """The view after all changes.

    Raises AlreadyExists if a dialect to add exists, NotFound if a dialect to update or drop is
    missing. Both errors have the fact `dialect`.
    """
    options, dialects, comment = dict(view.options), dict(view.dialects), view.comment
    for change in changes:
        match change:
            case SetViewOption(key, value):
                options[key] = value
            case RemoveViewOption(key):
                options.pop(key, None)
            case UpdateViewComment(text):
                comment = text
            case AddDialect(dialect, query):
                if dialect in dialects:
                    raise AlreadyExists("the view has this dialect", view=name, dialect=dialect)
                dialects[dialect] = query
            case UpdateDialect(dialect, query):
                _check_dialect(dialects, dialect, name)
                dialects[dialect] = query
            case DropDialect(dialect):
                _check_dialect(dialects, dialect, name)
                del dialects[dialect]
    return replace(view, options=options, dialects=dialects, comment=comment)


def view_to_json(view: View) -> dict[str, object]:
    """The view as Paimon's JSON object."""
    comment = {} if view.comment is None else {"comment": view.comment}
    return {
        "fields": [field_to_json(each) for each in view.fields],
        "query": view.query,
        "dialects": dict(view.dialects),
        **comment,
        "options": dict(view.options),
    }


def view_from_json(body: object, name: Identifier) -> View:
    """The view of Paimon's JSON object. Raises CorruptTable for anything else."""
    try:
        assert isinstance(body, dict), "a view is an object"
        fields = tuple(parse_field(each) for each in body["fields"])
        query, comment = body["query"], body.get("comment")
        dialects, options = body.get("dialects") or {}, body.get("options") or {}
        assert isinstance(query, str), "a query is a text"
        assert comment is None or isinstance(comment, str), "a comment is a text"
        texts = (*dialects.values(), *options.values())
        assert all(isinstance(text, str) for text in texts), "dialects and options are texts"
        return View(
            query=query,
            fields=fields,
            dialects=dict(dialects),
            comment=comment,
            options=dict(options),
        )
    except (AssertionError, AttributeError, KeyError, TypeError, _NoText) as error:
        raise CorruptTable("the stored view is malformed", view=name, why=error) from error


def encode_view(view: View) -> str:
    """The view as the string that a JDBC catalog stores: ASCII, which every character set has."""
    return json.dumps(view_to_json(view))


def decode_view(text: str, name: Identifier) -> View:
    """Parse a view from the string that a JDBC catalog stores."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTable("the stored view is no JSON", view=name, why=error) from error
    return view_from_json(body, name)


def _check_dialect(dialects: Mapping[str, str], dialect: str, name: Identifier) -> None:
    if dialect not in dialects:
        raise NotFound(
            "the view does not have this dialect",
            view=name,
            dialect=dialect,
            dialects=sorted(dialects),
        )
