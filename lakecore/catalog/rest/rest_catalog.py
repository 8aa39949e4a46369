"""A catalog on a server, which is called by Paimon's REST protocol.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server stores names, schemas and the newest snapshots; the client reads and writes the files of
tables. The server owns an *internal* table: it decides which snapshot is next
(`served_publication.py`). The snapshots of an *external* table are files, as in a filesystem
catalog, and dropping the table keeps its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.file_tables import check_empty, no_database
from lakecore.catalog.identifier import MAIN_BRANCH, Identifier, check_name
from lakecore.catalog.names import Function, Functions, Names, Place, function_from_json
from lakecore.catalog.rest.http_client import Refusal, RestClient, encoded
from lakecore.catalog.rest.rest_options import (
    RestOptions,
    authorization_of,
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
from lakecore.catalog.views import (
    View,
    ViewChange,
    Views,
    view_change_to_json,
    view_from_json,
    view_to_json,
)
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
from lakecore.plan.partitions import Partitions
from lakecore.table.publication import ExclusiveCreate, Publication

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.schema import TableSchema


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
        path = self._functions(database)
        return self.client.names(path, "functions", absent=(501,), database=database)

    def find(self, name: Identifier) -> Function | None:
        path = f"{self._functions(name.database)}/{encoded(name.table)}"
        reply = self.client.answer("GET", path, absent=(404, 501), function=name)
        return None if reply is None else function_from_json(reply, name)

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
        path = self._views(database)
        return self.client.names(path, "views", absent=(501,), database=database)

    def find(self, name: Identifier) -> View | None:
        path = self._address(name)
        reply = self.client.answer("GET", path, absent=_NOT_IMPLEMENTED, view=name)
        return None if reply is None else view_from_json(reply.get("schema"), name)

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

        The protocol has no request to replace a view: the old view is dropped, then the new view is
        created. If the server refuses the new view, the old view is created again.
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
        """Create the old view again, unless a view of that name exists."""
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
            if refusal.resource == "DATABASE":
                raise NotFound("no such database", database=target.database) from None
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


# --- served names --------------------------------------------------------------------------------


class ServedNames:
    """The databases and tables of a server (`names.py`), without a cache."""

    case_sensitive = True

    def __init__(self, client: RestClient, options: RestOptions, ambient: Ambient = SYSTEM) -> None:
        self.client = client
        self.options = options
        self.option_texts = options.texts  # of the user, merged with the server's
        self.table_defaults = options.table_defaults
        self.ambient = ambient
        self.root = f"/v1/{encoded(options.prefix)}" if options.prefix else "/v1"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without connections: unpickling opens the catalog again."""
        return _reopened, (dict(self.options.given),)

    @property
    def warehouse(self) -> str:
        """The name of the warehouse, or the address of the server."""
        return self.options.warehouse or self.options.uri

    @property
    def views(self) -> Views:
        return ServedViews(self.client, self.root)

    @property
    def functions(self) -> Functions:
        return ServedFunctions(self.client, self.root)

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return self.client.names(f"{self.root}/databases", "databases")

    def has_database(self, name: str) -> bool:
        path = database_path(self.root, name)
        return self.client.answer("GET", path, absent=(404,), database=name) is not None

    def add_database(self, name: str) -> bool:
        path, body = f"{self.root}/databases", {"name": name, "options": {}}
        return self.client.answer("POST", path, body, absent=(409,), database=name) is not None

    def drop_database(self, name: str, *, cascade: bool) -> bool:
        if not self.has_database(name):
            return False
        tables, views = self.near(name), self.views.names(name)
        check_empty(name, {"tables": tables, "views": views}, cascade=cascade)
        # The protocol does not say whether the server drops the tables, so drop each one first.
        for table in tables:
            self.drop(Identifier(database=name, table=table))
        for view in views:
            self.views.drop(Identifier(database=name, table=view))
        path = database_path(self.root, name)
        return self.client.answer("DELETE", path, absent=(404,), database=name) is not None

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...] | None:
        try:
            return self.near(database)
        except NotFound:
            return None

    def near(self, database: str) -> tuple[str, ...]:
        return self.client.names(self._tables(database), "tables")

    def others(self, database: str) -> tuple[str, ...]:
        del database
        return ()

    def has_table(self, name: Identifier) -> bool:
        return self._served(name).describe() is not None

    def is_taken(self, name: Identifier) -> bool:
        return self.has_table(name)

    def find(self, name: Identifier) -> Place | None:
        served = self._served(name)
        described = served.describe()
        if described is None:
            return None
        options = described.schema.parsed_options({}, table=str(name))
        main = served.on_branch(MAIN_BRANCH)
        hides = options.query_auth_enabled
        if not hides and name.branch != MAIN_BRANCH:
            # The option may be newer than the branch, but also protects the rows of the branch.
            newest = main.describe()
            if newest is None:
                return None
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
        return Place(
            store=open_table_storage(served, described.path, self.options, self.ambient),
            path=described.path,
            publication=publication,
            options=asks,
        )

    def create(self, name: Identifier, schema: TableSchema, rows: object) -> bool:
        # The server chooses the directory of the table, so the table exists before its rows are
        # checked. If a row does not fit, the table is dropped again.
        body = {"identifier": _object(name), "schema": schema_to_json(schema)}
        path = self._tables(name.database)
        if self.client.answer("POST", path, body, absent=(409,), table=name) is None:
            return False
        if rows is not None:
            try:
                Catalog(self).get_table(str(name)).write(rows)
            except InvalidRequest:
                self.drop(name)
                raise
        return True

    def rename(self, old: Identifier, new: Identifier) -> bool:
        if not self.has_table(old):
            return False
        if not self.has_database(new.database):
            raise no_database(self, new.database)
        path = f"{self.root}/tables/rename"
        body = {"source": _object(old), "destination": _object(new)}
        if self.client.answer("POST", path, body, absent=(409,), table=old) is None:
            raise AlreadyExists("the target of the rename exists", table=new)
        return True

    def drop(self, name: Identifier) -> bool:
        path = self._served(name).address
        return self.client.answer("DELETE", path, absent=(404,), table=name) is not None

    def branches(self, name: Identifier) -> tuple[str, ...]:
        main = self._served(name).on_branch(MAIN_BRANCH)
        found = main.ask("GET", "branches").get("branches") or ()
        return tuple(sorted(str(each) for each in found if each != MAIN_BRANCH))

    def tags(self, name: Identifier) -> tuple[str, ...]:
        return self.client.names(f"{self._served(name).address}/tags", "tags")

    def repair(self, name: str | None) -> tuple[str, ...]:
        raise Unsupported("a server lists its tables by itself", catalog="rest", name=name)

    # --- requests ---------------------------------------------------------------------------------

    def _served(self, name: Identifier) -> ServedTable:
        return ServedTable(self.client, self.root, name.data_table)

    def _tables(self, database: str) -> str:
        return f"{database_path(self.root, database)}/tables"


def open_rest(given: Mapping[str, str], *, create: bool) -> Catalog:
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
    return Catalog(ServedNames(client, stated))


def _reopened(given: Mapping[str, str]) -> Names:
    return open_rest(given, create=False).names
