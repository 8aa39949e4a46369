"""The interface of all catalogs: their names may be in directories, in a database or on a server.

A `Session` and all code above it use only these methods. A catalog maps names to tables. It
provides each table that it loads with the store, the directory, the newest schema, and the
`Publication` that makes commits and schema changes visible (`table/publication.py`). A catalog that
takes locks, or whose server owns the snapshots, passes another `Publication`; all verbs are the
same.

Rules that `tests/catalog/test_behaviour.py` checks for every catalog:

- names are read by `identifier.py`; `db.t$branch_b1` is a branch and `db.t$files` a system table;
- the database `sys`, which is not listed, has the tables of `system_database.py`;
- a missing database, table or branch raises NotFound, with the names that exist;
- a name that already exists raises AlreadyExists; the flags `ignore_if_...` suppress these errors;
- of concurrent calls that create a table of one name, exactly one succeeds;
- a schema change is atomic, and concurrent changes are all kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakecore.errors import CorruptTable
from lakecore.model.data_types import field_to_json, parse_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.new_table import SchemaLike
    from lakecore.catalog.views import Views
    from lakecore.model.data_types import Json
    from lakecore.model.schema_change import Change
    from lakecore.model.types import Field
    from lakecore.options import OptionValue
    from lakecore.table.handle import Table


class Catalog(Protocol):
    """The databases and tables of one warehouse.

    Nothing that another process may change is cached.
    """

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse."""
        ...

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the catalog, as given by the user."""
        ...

    @property
    def case_sensitive(self) -> bool:
        """Whether names may have upper-case letters. If not, callers must use lower case."""
        ...

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""
        ...

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name."""
        ...

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Create an empty database."""
        ...

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade`, also its tables.

        Raises InvalidRequest if it is not empty and `cascade` is False.
        """
        ...

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database, sorted."""
        ...

    def table_exists(self, identifier: str) -> bool:
        """Whether there is a table, or a branch of one, of that name."""
        ...

    def create_table(  # noqa: PLR0913  the public verb
        self,
        identifier: str,
        schema: SchemaLike | None = None,
        *,
        data: object = None,
        primary_keys: Sequence[str] | None = None,
        partition_keys: Sequence[str] | None = None,
        options: Mapping[str, OptionValue] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        """Create a table and return it.

        With `ignore_if_exists`, an existing table is returned unchanged. The catalog options under
        `table-default.` are the defaults of `options`. With `data`, these rows are written to the
        table; without a schema, it has their columns.
        """
        ...

    def get_table(self, identifier: str) -> Table:
        """The table of that name; a name such as `t$files` returns a read-only system table."""
        ...

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Apply schema changes as one new schema: all of them, or none.

        A change of `deletion-vectors.enabled` first compacts the table in full, if stored rows need
        it.

        Raises CommitConflict if other processes keep changing the schema at the same time.
        """
        ...

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give a table another name, or move it to another database of the warehouse."""
        ...

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches."""
        ...

    # --- views and functions ----------------------------------------------------------------------

    @property
    def views(self) -> Views | None:
        """The views that the catalog stores; None if it stores none."""
        ...

    @property
    def functions(self) -> Functions | None:
        """The functions that the catalog stores; None if it stores none."""
        ...

    # --- branches and tags of a table -------------------------------------------------------------

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        """The names of the branches of a table, sorted. `main` is not listed."""
        ...

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        """The names of the tags of a table or branch, sorted."""
        ...

    # --- repair -----------------------------------------------------------------------------------

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        """Update the catalog's list of names from the files of the warehouse.

        `name` is a table or a database; by default, everything is repaired. Returns the repaired
        tables. Raises Unsupported if the catalog stores names only as the directories of tables.
        """
        ...


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
