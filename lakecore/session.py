"""What `connect` returns: a session, which is what users hold over any catalog.

A `Session` has one line a verb; the catalog does the work (`catalog/catalog.py`), and
`catalog/registry.py` chooses it by the option `metastore`. Nothing is cached: two sessions on one
warehouse see the same tables at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecore.catalog.filesystem import create_table_at
from lakecore.catalog.filled_table import create_filled
from lakecore.catalog.identifier import check_directory
from lakecore.catalog.options import WAREHOUSE, is_storage_option
from lakecore.catalog.registry import open_catalog
from lakecore.display import public_names
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound
from lakecore.forks import require_threads
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history import History
from lakecore.io.open import locate, open_store
from lakecore.io.services import flag
from lakecore.model.arguments import check_flags
from lakecore.options import OptionValue, option_texts
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import EXCLUSIVE_CREATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.new_table import SchemaLike
    from lakecore.io.store import Store
    from lakecore.model.schema_change import Change

__all__ = ["Session", "connect", "open_table"]

AUTO_CREATE = "auto-create"


def connect(
    warehouse: str | os.PathLike[str] | Mapping[str, OptionValue], *, create: bool = False
) -> Session:
    """A session on a warehouse: a path, a URI such as `s3://bucket/warehouse`, or catalog options.

    The options are Paimon's: `warehouse`, `metastore`, `table-default.*` for new tables, and those
    of the storage, such as `s3.endpoint`. Values are texts; numbers, True and False may be stated
    as they are. Raises NotFound if the warehouse is missing, unless `create` makes it.
    """
    require_threads()
    check_flags(create=create)
    stated = isinstance(warehouse, Mapping)
    given = option_texts(warehouse) if stated else {WAREHOUSE: _path(warehouse)}
    return Session(open_catalog(given, create=create))


def open_table(  # noqa: PLR0913  the public verb
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    schema: SchemaLike | None = None,
    data: object = None,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, OptionValue] | None = None,
    comment: str | None = None,
    branch: str | None = None,
    ambient: Ambient = SYSTEM,
) -> Table:
    """The table in a directory, without a catalog.

    Options hold for this object only, and may be those of the storage. `branch` goes before the
    option `branch`; without either it is "main". With `create`, or the
    option `auto-create`, a table that is not there is made from `schema`, keys and comment, and
    the options are stored with it; one that is there is opened as it is. Raises NotFound without
    either.

    With `data`, anything that `write` takes, the new table holds these rows, and has their columns
    unless there is a `schema`; those of the primary key are NOT NULL. Raises AlreadyExists, and
    writes nothing, if the table is there.
    """
    require_threads()
    check_flags(create=create)
    location = locate(_path(path))
    if branch is not None:
        check_directory("branch", branch)
    given = option_texts(options, table=location)
    store = open_store(location, given)
    own = {key: text for key, text in given.items() if not is_storage_option(key)}
    creates = flag(AUTO_CREATE, own.pop(AUTO_CREATE, "false")) or create
    if data is not None and not creates:
        raise InvalidRequest("data makes a new table: say create=True, or write it", path=location)
    if creates and _create_absent(
        store,
        location,
        schema,
        data,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=own,
        comment=comment,
        ambient=ambient,
    ):
        own = {}
    try:
        return load_table(store, location, dynamic_options=own, branch=branch, ambient=ambient)
    except NotFound as error:
        raise NotFound(
            "no table in this directory; open_table(..., create=True, schema=...) makes one",
            path=location,
            branch=branch or own.get("branch", MAIN_BRANCH),
        ) from error


def _path(given: object) -> str:
    """The text of a path or URI; InvalidRequest for another thing."""
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(path, str):
        raise InvalidRequest(
            "a warehouse or table is named by its path or URI", given=type(given).__name__
        )
    return path


def _create_absent(  # noqa: PLR0913  what a table is made of
    store: Store,
    path: str,
    schema: SchemaLike | None,
    data: object,
    *,
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
    ambient: Ambient,
) -> bool:
    """Create the table unless there is one: whether it was."""
    if not History(store, Layout(root=path)).schema_ids() and create_filled(
        store,
        path,
        schema,
        data,
        create_table_at,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=comment,
        ambient=ambient,
        publication=EXCLUSIVE_CREATE,
        table=path,
    ):
        return True
    if data is not None:
        raise AlreadyExists("the table is there: open it, and write the data", path=path)
    return False


class Session:
    """A session on a catalog: its databases and tables. Names are `database.table`.

    The verbs are the same whichever catalog keeps the names: a directory, a database or a server.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._bound = catalog

    @property
    def _catalog(self) -> Catalog:
        """The catalog. Raises Unsupported where a forked process could only hang."""
        require_threads()
        return self._bound

    @property
    def warehouse(self) -> str:
        """The path or URI of the warehouse."""
        return self._bound.warehouse

    def __repr__(self) -> str:
        return f"Session({self.warehouse!r})"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""
        return self._catalog.list_databases()

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name."""
        return self._catalog.database_exists(name)

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Make an empty database. Raises AlreadyExists if it is there."""
        self._catalog.create_database(name, ignore_if_exists=ignore_if_exists)

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade` its tables too, and whatever else lies in it.

        Raises InvalidRequest if it is not empty and `cascade` does not say so.
        """
        self._catalog.drop_database(
            name, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade
        )

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database, sorted."""
        return self._catalog.list_tables(database)

    def table_exists(self, identifier: str) -> bool:
        """Whether there is a table of that name; or a branch: `db.t$branch_b1`."""
        return self._catalog.table_exists(identifier)

    def create_table(  # noqa: PLR0913  the public verb
        self,
        identifier: str,
        schema: SchemaLike | None = None,
        *,
        data: object = None,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, OptionValue] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        """The new table; the one that is there already if `ignore_if_exists`, as it is.

        `schema` is a pyarrow or Polars schema, or column names with types such as
        `"BIGINT NOT NULL"`. Options are Paimon's, and those of the catalog under `table-default.`
        where they say nothing.

        With `data`, anything that `write` takes, the new table holds these rows, and has their
        columns unless there is a `schema`; those of the primary key are NOT NULL. If a row does not
        fit, there is no table. One that is there already gets no rows.

            catalog.create_table("shop.orders", data=pl.read_csv("orders.csv"), primary_keys=["id"])
        """
        return self._catalog.create_table(
            identifier,
            schema,
            data=data,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=options,
            comment=comment,
            ignore_if_exists=ignore_if_exists,
        )

    def get_table(self, identifier: str) -> Table:
        """The table of that name, `db.t`, or a branch of it, `db.t$branch_b1`.

        `db.t$files` is a system table: it has the reading verbs of a table, and refuses the others.
        Raises NotFound with the names that there are.
        """
        return self._catalog.get_table(identifier)

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Carry out `SchemaChange`s, all of them or none. Tables opened before keep their schema.

        Raises CommitConflict if others go on changing the schema at the same time.
        """
        self._catalog.alter_table(identifier, changes, ignore_if_not_exists=ignore_if_not_exists)

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give a table another name, or move it to another database of the warehouse.

        Raises Unsupported on an object store, unless `commit.single-writer` is set.
        """
        self._catalog.rename_table(source, target, ignore_if_not_exists=ignore_if_not_exists)

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches."""
        self._catalog.drop_table(identifier, ignore_if_not_exists=ignore_if_not_exists)
