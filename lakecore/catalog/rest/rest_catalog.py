"""A catalog on a server, which is called by Paimon's REST protocol.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server stores names, schemas and the newest snapshots; the client reads and writes the files of
tables. The server owns an *internal* table: it decides which snapshot is next
(`served_publication.py`). The snapshots of an *external* table are files, as in a filesystem
catalog, and dropping the table keeps its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lakecore.catalog.catalog import function_from_json
from lakecore.catalog.file_tables import asked_table, change_schema, data_table, near, shown
from lakecore.catalog.identifier import (
    MAIN_BRANCH,
    SYSTEM_DATABASE,
    Identifier,
    check_directory,
    check_name,
    parse_identifier,
)
from lakecore.catalog.new_table import first_schema
from lakecore.catalog.options import of_process
from lakecore.catalog.rest.authorization import authorization_of
from lakecore.catalog.rest.http_client import Refusal, RestClient, encoded
from lakecore.catalog.rest.rest_options import (
    merged_options,
    open_table_storage,
    parse_rest_options,
    texts_of,
)
from lakecore.catalog.rest.served_publication import (
    ServedAccess,
    ServedPublication,
    ServedReferences,
    ServedTable,
    database_path,
)
from lakecore.catalog.rest.wire import schema_to_json
from lakecore.catalog.system_database import global_table, global_tables, has_global_table
from lakecore.catalog.views import view_change_to_json, view_from_json, view_to_json
from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.services import check_reachable, timeouts_of
from lakecore.model.arguments import check_flags
from lakecore.plan.partitions import Partitions
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import ExclusiveCreate, Publication

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.catalog import Function, Functions
    from lakecore.catalog.new_table import SchemaLike
    from lakecore.catalog.rest.rest_options import RestOptions
    from lakecore.catalog.views import View, ViewChange, Views
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue


# --- served functions ----------------------------------------------------------------------------
# The functions of a REST catalog. Each method sends one request.
#
# https://paimon.apache.org/docs/master/concepts/rest/rest-api/


@dataclass(frozen=True, slots=True)
class ServedFunctions:
    """Asks the server for functions (`catalog/catalog.py`)."""

    client: RestClient
    root: str

    def names(self, database: str) -> tuple[str, ...]:
        try:
            found = list(self.client.pages(self._functions(database), "functions"))
        except Refusal as refusal:
            if refusal.code == 501:
                return ()  # a server that does not support functions
            raise refusal.as_error(database=database) from None
        return tuple(sorted(map(str, found)))

    def find(self, name: Identifier) -> Function | None:
        try:
            reply = self.client.get(f"{self._functions(name.database)}/{encoded(name.table)}")
        except Refusal as refusal:
            if refusal.code in (404, 501):
                return None
            raise refusal.as_error(function=name) from None
        return function_from_json(reply, name)

    def _functions(self, database: str) -> str:
        return f"{database_path(self.root, database)}/functions"


# --- served views --------------------------------------------------------------------------------
# The views of a REST catalog. Each method sends one request, unless it says otherwise.
#
# https://paimon.apache.org/docs/master/concepts/rest/overview/

_NOT_IMPLEMENTED = (404, 405, 501)
_DIALECT = "DIALECT"
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ServedViews:
    """Asks the server for views (`catalog/views.py`)."""

    client: RestClient
    root: str

    def names(self, database: str) -> tuple[str, ...]:
        try:
            found = list(self.client.pages(self._views(database), "views"))
        except Refusal as refusal:
            if refusal.code == 501:
                return ()  # a server that does not support views
            raise refusal.as_error(database=database) from None
        return tuple(sorted(map(str, found)))

    def find(self, name: Identifier) -> View | None:
        try:
            reply = self.client.get(self._address(name))
        except Refusal as refusal:
            if refusal.code in _NOT_IMPLEMENTED:
                return None
            raise refusal.as_error(view=name) from None
        return view_from_json(reply.get("schema"), name)

    def create(self, name: Identifier, view: View) -> bool:
        check_name("view", name.table)
        body = {"identifier": _object(name), "schema": view_to_json(view)}
        try:
            self.client.post(self._views(name.database), body, retries=False)
        except Refusal as refusal:
            if refusal.code == 409:
                return False
            raise _error(refusal, name) from None
        return True

    def replace(self, name: Identifier, view: View) -> bool:
        """Store a view. An existing view of that name is replaced.

        The protocol has no request for it: the old view is dropped, then the new one is created. If
        the server refuses the new view, the old one is created again.
        """
        check_name("view", name.table)
        seen = False
        for _ in range(_ATTEMPTS):
            before = self.find(name)
            try:
                if before is not None:
                    self.drop(name)
                if self.create(name, view):
                    return True
            except LakecoreError as error:
                if before is not None:
                    self._restore(name, before, error)
                raise
            # A concurrent `replace` may have dropped the view that made this creation fail.
            seen = seen or before is not None or self.find(name) is not None
        if not seen:
            return False  # a table has the name
        raise CommitConflict("other processes keep creating the view; try again", view=name)

    def _restore(self, name: Identifier, before: View, why: LakecoreError) -> None:
        """Create the old view again, unless a view of that name exists after all."""
        try:
            self.create(name, before)
        except LakecoreError as error:
            raise StorageError(
                "replacing the view failed between its two steps, drop and create, and so did "
                "creating the old view again; look whether the view exists, and create it if not",
                view=name,
                query_of_old_view=before.query,
                why_new_failed=why,
                why_old_failed=error,
            ) from why

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        body = {"changes": [view_change_to_json(each) for each in changes]}
        try:
            self.client.post(self._address(name), body, retries=False)
        except Refusal as refusal:
            if refusal.resource.upper() == _DIALECT and refusal.code in (404, 409):
                missing = refusal.code == 404
                raise (NotFound if missing else AlreadyExists)(
                    "the view does not have this dialect"
                    if missing
                    else "the view has this dialect",
                    view=name,
                    dialect=refusal.name,
                ) from None
            if refusal.code == 404:
                return False
            raise _error(refusal, name) from None
        return True

    def drop(self, name: Identifier) -> bool:
        try:
            self.client.delete(self._address(name))
        except Refusal as refusal:
            if refusal.code == 404:
                return False
            raise _error(refusal, name) from None
        return True

    def rename(self, source: Identifier, target: Identifier) -> None:
        check_name("view", target.table)
        body = {"source": _object(source), "destination": _object(target)}
        try:
            self.client.post(f"{self.root}/views/rename", body, retries=False)
        except Refusal as refusal:
            raise _error(refusal, target if refusal.code == 409 else source) from None

    def _views(self, database: str) -> str:
        return f"{database_path(self.root, database)}/views"

    def _address(self, name: Identifier) -> str:
        return f"{self._views(name.database)}/{encoded(name.table)}"


def _object(name: Identifier) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _error(refusal: Refusal, name: Identifier) -> Exception:
    if refusal.code == 501:
        return Unsupported("the server stores no views", view=name)
    return refusal.as_error(view=name)


# --- rest catalog --------------------------------------------------------------------------------


class RestCatalog:
    """The databases and tables of a server (`catalog.py`), without a cache."""

    def __init__(self, client: RestClient, options: RestOptions, ambient: Ambient = SYSTEM) -> None:
        self.client = client
        self.options = options
        self.ambient = ambient
        self.case_sensitive = True
        self.root = f"/v1/{encoded(options.prefix)}" if options.prefix else "/v1"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without connections: the process that unpickles it opens the catalog again."""
        return _reopened, (dict(self.options.given),)

    @property
    def warehouse(self) -> str:
        """The name of the warehouse, or the address of the server."""
        return self.options.warehouse or self.options.uri

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the user, merged with those of the server."""
        return self.options.texts

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        return tuple(sorted(map(str, self._list(f"{self.root}/databases", "databases"))))

    def database_exists(self, name: str) -> bool:
        if name == SYSTEM_DATABASE:
            return True
        check_directory("database", name)
        try:
            self.client.get(database_path(self.root, name))
        except Refusal as refusal:
            if refusal.code == 404:
                return False
            raise refusal.as_error(database=name) from None
        return True

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        check_flags(ignore_if_exists=ignore_if_exists)
        check_name("database", name)
        try:
            self.client.post(f"{self.root}/databases", {"name": name, "options": {}})
        except Refusal as refusal:
            if refusal.code == 409 and ignore_if_exists:
                return
            if refusal.code == 409:
                raise AlreadyExists("the database exists", database=name) from None
            raise refusal.as_error(database=name) from None

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
        if not self.database_exists(name):
            if ignore_if_not_exists:
                return
            raise self._no_database(name)
        tables, views = self.list_tables(name), self.views.names(name)
        if (tables or views) and not cascade:
            raise InvalidRequest(
                "the database is not empty; cascade=True removes what is in it",
                database=name,
                **{"tables" if tables else "views": shown(tables or views)},
            )
        # The protocol does not say whether the server drops the tables, so drop each one first.
        for table in tables:
            self._drop(Identifier(database=name, table=table))
        for view in views:
            self.views.drop(Identifier(database=name, table=view))
        try:
            self.client.delete(database_path(self.root, name))
        except Refusal as refusal:
            if refusal.code == 404 and ignore_if_not_exists:
                return
            raise refusal.as_error(database=name) from None

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        if database == SYSTEM_DATABASE:
            return global_tables(self)
        check_directory("database", database)
        try:
            return tuple(sorted(map(str, self._list(self._tables(database), "tables"))))
        except NotFound:
            raise self._no_database(database) from None

    def table_exists(self, identifier: str) -> bool:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return has_global_table(self, name)
        return self._served(name).describe() is not None

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
        name, given = asked_table(identifier, options, ignore_if_exists=ignore_if_exists)
        if not self.database_exists(name.database):
            raise self._no_database(name.database)
        if self._served(name).describe() is not None:
            if ignore_if_exists:
                return self._load(name)
            raise AlreadyExists("the table exists", table=name)
        first, rows = first_schema(
            schema,
            data,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options={**self.options.table_defaults, **given},
            comment=comment,
            now_ms=self.ambient.now_ms(),
            table=str(name),
        )
        # The server chooses the directory of the table, so the table exists before its rows are
        # checked. If one does not fit, the table is dropped again.
        if not self._create(name, first):
            if ignore_if_exists:
                return self._load(name)
            raise AlreadyExists("another process created the table at the same time", table=name)
        table = self._load(name)
        if data is not None:
            try:
                table.write(rows)
            except InvalidRequest:
                self.drop_table(identifier, ignore_if_not_exists=True)
                raise
        return table

    def _create(self, name: Identifier, schema: TableSchema) -> bool:
        """Create the table. False if it exists."""
        body = {
            "identifier": {"database": name.database, "object": name.table},
            "schema": schema_to_json(schema),
        }
        try:
            self.client.post(self._tables(name.database), body)
        except Refusal as refusal:
            if refusal.code == 409:
                return False
            raise refusal.as_error(table=name) from None
        return True

    def get_table(self, identifier: str) -> Table:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return cast("Table", global_table(self, name))
        table = self._load(name.data_table)
        if name.system is None:
            return table
        # NOTE: a `SystemTable` has only the reading verbs of a table; see `FilesystemCatalog`.
        return cast("Table", table.inspect.system_table(name.system))

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "alter", branch_allowed=True)
        try:
            table = self._load(name)
        except NotFound:
            if ignore_if_not_exists:
                return
            raise
        context = table.context
        if not change_schema(
            context.store,
            context.layout,
            context.publication,
            changes,
            opened=lambda: table,
            ambient=self.ambient,
            table=str(name),
        ):
            raise self._no_table(name)

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        old = data_table(source, "rename", branch_allowed=False)
        new = data_table(target, "rename", branch_allowed=False)
        check_name("table", new.table)
        if self._served(old).describe() is None:
            if ignore_if_not_exists:
                return
            raise self._no_table(old)
        if not self.database_exists(new.database):
            raise self._no_database(new.database)
        body = {
            "source": {"database": old.database, "object": old.table},
            "destination": {"database": new.database, "object": new.table},
        }
        try:
            self.client.post(f"{self.root}/tables/rename", body)
        except Refusal as refusal:
            if refusal.code == 409:
                raise AlreadyExists("the target of the rename exists", table=new) from None
            raise refusal.as_error(table=old) from None

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "drop", branch_allowed=False)
        if not self._drop(name) and not ignore_if_not_exists:
            raise self._no_table(name)

    def _drop(self, name: Identifier) -> bool:
        """Drop a table. False if there is none."""
        try:
            self.client.delete(self._served(name).address)
        except Refusal as refusal:
            if refusal.code == 404:
                return False
            raise refusal.as_error(table=name) from None
        return True

    # --- branches and tags ------------------------------------------------------------------------

    @property
    def views(self) -> Views:
        """The views of the server."""
        return ServedViews(self.client, self.root)

    @property
    def functions(self) -> Functions:
        """The functions of the server."""
        return ServedFunctions(self.client, self.root)

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        name = data_table(identifier, "list", branch_allowed=False)
        if self._served(name).describe() is None:
            raise self._no_table(name)
        return self._branches(name)

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        name = data_table(identifier, "list", branch_allowed=True)
        served = self._served(name)
        if served.describe() is None:
            raise self._no_table(name)
        return tuple(sorted(map(str, self._list(f"{served.address}/tags", "tags"))))

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        raise Unsupported("a server lists its tables by itself", catalog="rest", name=name)

    # --- parts ------------------------------------------------------------------------------------

    def _load(self, name: Identifier) -> Table:
        served = self._served(name)
        described = served.describe()
        if described is None:
            raise self._no_table(name)
        options = described.schema.parsed_options({}, table=str(name))
        main = served.on_branch(MAIN_BRANCH)
        hides = options.query_auth_enabled
        if not hides and name.branch != MAIN_BRANCH:
            # The option may have been set after the branch was made, but it protects its rows too.
            newest = main.describe()
            if newest is None:
                raise self._no_table(name)
            hides = newest.schema.parsed_options({}, table=str(name)).query_auth_enabled
        # The schema file of an external table, or of a branch, may lack the option.
        asks = {"query-auth.enabled": "true"} if hides else {}
        publication: Publication = ExclusiveCreate(ServedAccess(main))
        if not described.is_external:
            publication = ServedPublication(
                table=main,
                table_id=described.id,
                partitions=Partitions(described.schema, options),
                references=ServedReferences(main),
                ambient=self.ambient,
            )
        try:
            return load_table(
                open_table_storage(served, described.path, self.options, self.ambient),
                described.path,
                identifier=str(name),
                branch=name.branch,
                dynamic_options=asks | of_process(self.options.texts),
                ambient=self.ambient,
                publication=publication,
            )
        except NotFound as error:
            raise self._no_table(name) from error

    def _served(self, name: Identifier) -> ServedTable:
        return ServedTable(self.client, self.root, name.data_table)

    def _tables(self, database: str) -> str:
        return f"{database_path(self.root, database)}/tables"

    def _list(self, path: str, key: str) -> list[object]:
        try:
            return list(self.client.pages(path, key))
        except Refusal as refusal:
            raise refusal.as_error() from None

    def _branches(self, name: Identifier) -> tuple[str, ...]:
        main = self._served(name).on_branch(MAIN_BRANCH)
        found = main.ask("GET", "branches").get("branches") or ()
        return tuple(sorted(str(each) for each in found if each != MAIN_BRANCH))

    def _no_database(self, name: str) -> NotFound:
        return NotFound(
            "no such database", database=name, **near("databases", name, self.list_databases())
        )

    def _no_table(self, name: Identifier) -> NotFound:
        if not self.database_exists(name.database):
            return self._no_database(name.database)
        tables = self.list_tables(name.database)
        if name.branch != MAIN_BRANCH and name.table in tables:
            return NotFound(
                "no such branch", table=name, **near("branches", name.branch, self._branches(name))
            )
        return NotFound("no such table", table=name, **near("tables", name.table, tables))


def open_rest(given: Mapping[str, str], *, create: bool) -> RestCatalog:
    """Open the catalog. `create` has no effect: a client cannot create a warehouse.

    Raises Unsupported without the package for HTTP, StorageError if the server cannot be reached.
    """
    del create
    options = parse_rest_options(given)
    authorization = authorization_of(options)
    timeouts = timeouts_of(given)
    check_reachable(options.uri)
    client = RestClient(options.uri, authorization, options.headers, timeouts=timeouts)
    params = {"warehouse": options.warehouse} if options.warehouse else {}
    try:
        reply = client.get("/v1/config", params)
    except Refusal as refusal:
        raise refusal.as_error(uri=options.uri, warehouse=options.warehouse or None) from None
    finally:
        client.close()
    stated = merged_options(options, texts_of(reply, "defaults"), texts_of(reply, "overrides"))
    client = RestClient(options.uri, authorization, stated.headers, timeouts=timeouts)
    return RestCatalog(client, stated)


def _reopened(given: Mapping[str, str]) -> RestCatalog:
    return open_rest(given, create=False)
