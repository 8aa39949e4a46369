"""The interface to the names of a catalog, kept in directories, a metastore or a server.

A `Catalog` (`catalog.py`) holds the rules of all catalogs; `Names` has the calls that differ.
Nothing that another process may change is cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakecore.errors import CorruptTable
from lakecore.model.data_types import Json, field_to_json, parse_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.views import Views
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.table.publication import Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a table is, and how its snapshots and schemas become visible."""

    store: Store
    path: str
    publication: Publication
    options: Mapping[str, str] = field(default_factory=dict)
    """Dynamic options that the catalog gives the table."""
    is_listed: bool = False
    """Whether the table has an entry, with or without files."""


class Names(Protocol):
    """The databases and tables of one warehouse, as primitive calls.

    The caller has checked the names of databases and tables (`identifier.py`): none is `sys`.
    """

    ambient: Ambient

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse."""

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the catalog, as given by the user."""

    @property
    def table_defaults(self) -> Mapping[str, str]:
        """The default options of new tables."""

    @property
    def case_sensitive(self) -> bool:
        """Whether names may have upper-case letters."""

    @property
    def views(self) -> Views | None:
        """The views that the catalog stores; None if it stores none."""

    @property
    def functions(self) -> Functions | None:
        """The functions that the catalog stores; None if it stores none."""

    def databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""

    def has_database(self, name: str) -> bool:
        """Whether there is a database of that name."""

    def add_database(self, name: str) -> bool:
        """Create an empty database; False if it exists."""

    def drop_database(self, name: str, *, cascade: bool) -> bool:
        """Remove a database; with `cascade`, also its tables. False if there is no such database.

        Raises InvalidRequest if the database is not empty and `cascade` is False.
        """

    def tables(self, database: str) -> tuple[str, ...] | None:
        """The names of the tables of a database, sorted; None if there is no such database."""

    def near(self, database: str) -> tuple[str, ...]:
        """Names for an error about a missing table: those of tables, and perhaps of others."""

    def others(self, database: str) -> tuple[str, ...]:
        """The names in a database that belong to something other than a Paimon table."""

    def has_table(self, name: Identifier) -> bool:
        """Whether there is a table, or a branch of one, of that name."""

    def is_taken(self, name: Identifier) -> bool:
        """Whether any table or view has that name.

        Raises InvalidRequest for a name that no table can have.
        """

    def find(self, name: Identifier) -> Place | None:
        """The place of a table or branch, which need not have files; None if there is no entry."""

    def create(self, name: Identifier, schema: TableSchema, rows: object) -> bool:
        """Create a table with these rows (None: without rows).

        Exactly one of several concurrent callers gets True; the others get False once the table
        exists.
        """

    def rename(self, old: Identifier, new: Identifier) -> bool:
        """Give a table another name; False if there is no table of the old name."""

    def drop(self, name: Identifier) -> bool:
        """Remove a table with its files; False if there is none."""

    def branches(self, name: Identifier) -> tuple[str, ...]:
        """The names of the branches of a table, sorted. `main` is not listed."""

    def tags(self, name: Identifier) -> tuple[str, ...]:
        """The names of the tags of a table or branch, sorted."""

    def repair(self, name: str | None) -> tuple[str, ...]:
        """Update the list of names from the files of the warehouse. Returns the repaired tables."""


# --- functions -----------------------------------------------------------------------------------
# Functions that a catalog stores, as Paimon's `Function`. lakecore lists but never runs them.
#
# https://paimon.apache.org/docs/master/concepts/functions/
#
# A function has a definition for each engine: Java code in files, a lambda, or SQL text of that
# engine.


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

    def find(self, name: Identifier) -> Function | None:
        """The function of that name; None if there is none."""


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
