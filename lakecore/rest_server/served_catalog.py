"""Executes the requests of the protocol on a catalog.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/

Every table is served as an internal table: this server publishes its snapshots, one after another.
Each commit, schema change, rename and drop holds the lock of the table in this process. Therefore
no commit writes to the directory of a table that was dropped or renamed meanwhile. If all writers
use this server, even a store without conditional creation is safe.

INVARIANT: a name in a request is never a path: `identifier.py` checks that each name stays below
the warehouse.
"""

from __future__ import annotations

import json
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from lakecore.catalog.identifier import (
    MAIN_BRANCH,
    SYSTEM_DATABASE,
    Identifier,
    check_directory,
    parse_identifier,
)
from lakecore.catalog.names import function_to_json
from lakecore.catalog.rest.wire import (
    change_from_json,
    schema_from_json,
    schema_to_json,
    snapshot_from_json,
    snapshot_to_json,
)
from lakecore.errors import CorruptTable, NotFound, Unsupported
from lakecore.model.schema_change import (
    AddColumn,
    Change,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnPosition,
    UpdateComment,
)
from lakecore.rest_server.replies import (
    Json,
    Problem,
    Reply,
    Request,
    check_database,
    check_files,
    identifier_of,
    object_of,
    problems,
    text_of,
    told,
)
from lakecore.rest_server.table_parts import (
    all_views,
    on_parts,
    on_views,
    rename_view,
    tag_of,
    version_of,
)
from lakecore.table.publication import LostRace, Published, Refused, SnapshotProposal, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table


# --- changed columns -----------------------------------------------------------------------------
# Checks the columns of schema changes, to give clients the status code that they expect.


def check_columns(table: Table, changes: Sequence[Change]) -> None:
    """Raise Problem for a column that is missing (404) or exists already (409)."""
    names = set(table.schema.names)
    for change in changes:
        match change:
            case AddColumn(path=(name,)):
                _check_new(names, name)
                names.add(name)
            case RenameColumn(path=(old,), name=new):
                _check_known(names, old)
                _check_new(names, new)
                names = (names - {old}) | {new}
            case SetOption() | RemoveOption() | UpdateComment():
                pass
            case UpdateColumnPosition(name=name):
                _check_known(names, name)
            case _:
                _check_known(names, change.path[0])


def _check_new(names: set[str], name: str) -> None:
    if name in names:
        raise Problem(409, f"the column exists: {name}", "COLUMN", name)


def _check_known(names: set[str], name: str) -> None:
    if name not in names:
        raise Problem(404, f"no such column: {name}", "COLUMN", name)


# --- function parts ------------------------------------------------------------------------------
# Requests about the functions of a catalog. This server only lists and describes them.
#
# https://paimon.apache.org/docs/master/concepts/rest/rest-api/

_FUNCTION = "FUNCTION"
_PATTERN = "functionNamePattern"


def all_functions(catalog: Catalog, request: Request) -> Reply:
    """The functions of all databases."""
    databases = catalog.list_databases()
    return request.identifiers("functions", databases, partial(_names, catalog), "function")


def on_functions(catalog: Catalog, database: str, request: Request) -> Reply:
    """The reply to a request about functions of a database; `parts` begin with `functions`."""
    match (request.method, *request.parts):
        case ("GET", "functions"):
            return request.listing("functions", _names(catalog, database), _PATTERN)
        case ("GET", "function-details"):
            form = partial(_described, catalog, database)
            return request.listing("functionDetails", _names(catalog, database), _PATTERN, form)
        case ("GET", "functions", name):
            described = _described(catalog, database, name)
            if described is None:
                raise Problem(404, f"no such function: {name}", _FUNCTION, name)
            return Reply(200, described)
    raise request.no_endpoint()


def _names(catalog: Catalog, database: str) -> tuple[str, ...]:
    return () if catalog.functions is None else catalog.functions.names(database)


def _described(catalog: Catalog, database: str, name: str) -> Json | None:
    """A function in the form of the protocol; None if there is none of that name."""
    check_directory("function", name)
    identifier = Identifier(database=database, table=name)
    found = None if catalog.functions is None else catalog.functions.find(identifier)
    if found is None:
        return None
    stated = dict.fromkeys(("owner", "createdBy", "updatedBy"))
    times = dict.fromkeys(("createdAt", "updatedAt"), 0)
    named = {"uuid": str(identifier), "name": name}
    return {**named, **function_to_json(found), **stated, **times}


# --- served catalog ------------------------------------------------------------------------------

_TABLE = "TABLE"
PREFIX = "paimon"
"""The prefix in every path: Java's client needs a prefix."""


class ServedCatalog:
    """Executes requests on a catalog. Safe for use by several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._guard = Lock()

    def over(self, catalog: Catalog) -> ServedCatalog:
        """The same for another view of the catalog, with the same locks."""
        served = ServedCatalog(catalog)
        served._locks, served._guard = self._locks, self._guard
        return served

    def handle(
        self, method: str, parts: tuple[str, ...], query: Mapping[str, str], body: Json
    ) -> Reply:
        """The reply to a request; `parts` are the decoded parts of its path, without the prefix.

        Raises Problem, or an error of lakecore.
        """
        request = Request(method=method, path=parts, query=query, body=body)
        match (method, *parts):
            case ("GET", "config"):
                return Reply(200, {"defaults": {"prefix": PREFIX}, "overrides": {}})
            case (_, "databases", *_):
                return self._databases(request.below())
            case ("GET", "tables"):
                catalog = self._catalog
                databases = catalog.list_databases()
                return request.identifiers("tables", databases, catalog.list_tables, "table")
            case ("GET", "tables", "id", table_id):
                return self._table_of_id(table_id)
            case ("POST", "tables", "rename"):
                return self._rename(body)
            case ("GET", "views"):
                return all_views(self._catalog, request)
            case ("POST", "views", "rename"):
                return rename_view(self._catalog, body)
            case ("GET", "functions"):
                return all_functions(self._catalog, request)
        raise request.no_endpoint()

    # --- databases --------------------------------------------------------------------------------

    def _databases(self, request: Request) -> Reply:
        match (request.method, *request.parts):
            case ("GET",):
                names = self._catalog.list_databases()
                return request.listing("databases", names, "databaseNamePattern")
            case ("POST",):
                return self._create_database(request.body)
            case (_, database, *_):
                check_database(database)
                if database == SYSTEM_DATABASE or not self._catalog.database_exists(database):
                    raise Problem(404, f"no such database: {database}", "DATABASE", database)
                return self._on_database(database, request.below())
        raise request.no_endpoint()

    def _on_database(self, database: str, request: Request) -> Reply:
        match (request.method, *request.parts):
            case ("GET",):
                return Reply(200, _database(database))
            case ("DELETE",):
                self._catalog.drop_database(database, cascade=True)
                return Reply(200)
            case ("GET", "tables" | "table-details" as form):
                return self._list_tables(database, form, request)
            case ("POST", "tables"):
                return self._create_table(database, request.body)
            case (_, "tables", name, *_):
                return self._on_table(database, name, request.below(2))
            case (_, "views" | "view-details", *_):
                return on_views(self._catalog, database, request)
            case (_, "functions" | "function-details", *_):
                return on_functions(self._catalog, database, request)
        raise request.no_endpoint()

    def _list_tables(self, database: str, form: str, request: Request) -> Reply:
        if request.query.get("tableType"):
            raise Problem(501, "this server does not filter tables by their type", _TABLE)
        found = self._catalog.list_tables(database)
        if form == "tables":
            return request.listing("tables", found, "tableNamePattern")

        def described(name: str) -> Json | None:
            try:
                return self._described(self._table(database, name))
            except Problem as problem:
                # Another client may have dropped the table since.
                if problem.code != 404:
                    raise
            return None

        return request.listing("tableDetails", found, "tableNamePattern", described)

    def _create_database(self, body: Json) -> Reply:
        name = text_of(body, "name")
        if body.get("options"):
            raise Problem(501, "this server keeps no options of databases", "DATABASE", name)
        with problems("DATABASE", name):
            self._catalog.create_database(name)
        return Reply(200)

    # --- tables -----------------------------------------------------------------------------------

    def _table_of_id(self, table_id: str) -> Reply:
        for database in self._catalog.list_databases():
            for name in self._catalog.list_tables(database):
                described = self._described(self._table(database, name))
                if described["id"] == table_id:
                    return Reply(200, described)
        raise Problem(404, "no table has this id", _TABLE, table_id)

    def _create_table(self, database: str, body: Json) -> Reply:
        name = text_of(object_of(body, "identifier"), "object")
        schema = schema_from_json(object_of(body, "schema"), 0, 0)
        with problems(_TABLE, name):
            self._catalog.create_table(
                str(identifier_of(database, name)),
                {field.name: field for field in schema.fields},
                primary_keys=schema.primary_keys,
                partition_keys=schema.partition_keys,
                options=schema.options,
                comment=schema.comment,
            )
        return Reply(200)

    def _rename(self, body: Json) -> Reply:
        source, target = object_of(body, "source"), object_of(body, "destination")
        old, new = text_of(source, "object"), text_of(target, "object")
        database = text_of(source, "database")
        renamed = str(identifier_of(text_of(target, "database"), new))
        with problems(_TABLE, old, new), self._lock(self._table(database, old)):
            self._catalog.rename_table(str(identifier_of(database, old)), renamed)
        return Reply(200)

    def _table(self, database: str, name: str) -> Table:
        identifier = str(identifier_of(database, name))
        try:
            return self._catalog.get_table(identifier)
        except (NotFound, Unsupported) as error:
            # After a 404, clients look for a view. An unsupported but existing table is no 404.
            if isinstance(error, Unsupported) and self._catalog.table_exists(identifier):
                raise
            raise Problem(404, told(error), _TABLE, name) from error

    def _on_table(self, database: str, name: str, request: Request) -> Reply:
        table = self._table(database, name)
        identifier = str(identifier_of(database, name))
        match (request.method, *request.parts):
            case ("GET",):
                return Reply(200, self._described(table))
            case ("DELETE",):
                with self._lock(table):
                    self._catalog.drop_table(identifier, ignore_if_not_exists=True)
                return Reply(200)
            case ("POST",):
                return self._alter(table, identifier, request.body)
            case ("POST", "commit"):
                return self._commit(table, name, request.body)
            case ("POST", "rollback"):
                return self._rollback(table, request.body)
            case ("GET", "snapshot"):
                return _latest(table.context, name)
        return on_parts(table, request)

    def _described(self, table: Table) -> Json:
        """A table in the form of the protocol."""
        context, schema = table.context, table.schema
        name = parse_identifier(context.identifier)
        return {
            "id": _table_id(context),
            "name": name.table,
            "path": context.layout.root,
            "isExternal": False,
            "schemaId": schema.id,
            "schema": schema_to_json(schema),
            "owner": None,
            "createdAt": _created_ms(context),
            "createdBy": None,
            "updatedAt": schema.time_ms,
            "updatedBy": None,
        }

    def _alter(self, table: Table, identifier: str, body: Json) -> Reply:
        listed = body.get("changes")
        if not isinstance(listed, list):
            raise Problem(400, "changes is a list")
        changes = [change_from_json(each) for each in listed]
        with self._lock(table):
            check_columns(table, changes)
            self._catalog.alter_table(identifier, changes)
        return Reply(200)

    # --- snapshots --------------------------------------------------------------------------------

    def _commit(self, table: Table, name: str, body: Json) -> Reply:
        context = table.context
        stated = body.get("tableId")
        if stated is not None and stated != _table_id(context):
            raise Problem(404, "another table was made under this name", _TABLE, name)
        source = object_of(body, "snapshot")
        try:
            snapshot = snapshot_from_json(source, f"{name}/commit")
        except CorruptTable as error:
            raise Problem(400, f"the snapshot is malformed: {told(error)}") from error
        check_files(snapshot)
        with self._lock(table):
            if not context.history.still_holds(context.schema):
                raise Problem(404, "the table was dropped or renamed", _TABLE, name)
            base = context.history.latest_snapshot()
            if base is not None and snapshot.uuid is not None and base.uuid == snapshot.uuid:
                return Reply(200, {"success": True})
            base_uuid = body.get("baseSnapshotUuid")
            follows = snapshot.id == (1 if base is None else base.id + 1)
            moved = base is not None and base_uuid is not None and base_uuid != base.uuid
            if not follows or moved:
                return Reply(200, {"success": False})
            try:
                delta = context.history.entries(context.history.delta_manifests(snapshot))
            except (CorruptTable, NotFound) as error:
                message = f"the snapshot names files that cannot be read: {told(error)}"
                raise Problem(400, message, _TABLE, name) from error
            # NOTE: the fields are stored as the client sent them, including unknown fields.
            sent = {key: value for key, value in source.items() if value is not None}
            outcome = context.publication.publish_snapshot(
                context.store,
                context.layout,
                SnapshotProposal(
                    snapshot=snapshot,
                    data=json.dumps(sent, indent=2).encode(),
                    base=base,
                    delta=delta,
                ),
            )
        match outcome:
            case Published():
                context.publication.write_hints(context.history, snapshot)
                return Reply(200, {"success": True})
            case LostRace():
                return Reply(200, {"success": False})
            case Refused(error=reason):
                raise reason
            case Unknown(error=reason):
                raise reason

    def _rollback(self, table: Table, body: Json) -> Reply:
        instant = object_of(body, "instant")
        kind = instant.get("type")
        with self._lock(table):
            if kind == "snapshot":
                number = instant.get("snapshotId")
                version_of(table.context, str(number))
                table.rollback_to(snapshot_id=number)
            elif kind == "tag":
                tag_of(table, text_of(instant, "tagName"))
                table.rollback_to(tag=text_of(instant, "tagName"))
            else:
                raise Problem(400, "an instant is of type snapshot or tag")
        return Reply(200)

    def _lock(self, table: Table) -> Lock:
        """The lock of a table: the same object for all requests that run at the same time."""
        with self._guard:
            return self._locks.setdefault(table.context.layout.root, Lock())


def _table_id(context: TableContext) -> str:
    """An id that changes if the table is dropped and created again, as in Java's file catalog."""
    name = parse_identifier(context.identifier)
    return f"{name.database}.{name.table}.{_created_ms(context)}"


def _created_ms(context: TableContext) -> int:
    """When the table was created, in milliseconds since 1970."""
    main = context.publication.history(context.store, context.layout.on_branch(MAIN_BRANCH))
    ids = main.schema_ids()
    if not ids:
        name = parse_identifier(context.identifier).table
        raise Problem(404, f"the table was dropped: {name}", _TABLE, name)
    return main.schema(ids[0]).time_ms


def _database(name: str) -> Json:
    """A database in the form of the protocol."""
    stated = ("location", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy")
    return {"id": name, "name": name, "options": {}, **dict.fromkeys(stated)}


def _latest(context: TableContext, name: str) -> Reply:
    """The newest snapshot, and the sizes of its files."""
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        raise Problem(404, "the table has no snapshot", "SNAPSHOT", name)
    _, facts = context.history.live_facts(snapshot)
    described = {
        "snapshot": snapshot_to_json(snapshot),
        "recordCount": facts["row_count"].sum(),
        "fileSizeInBytes": facts["size_bytes"].sum(),
        "fileCount": facts.height,
        "lastFileCreationTime": facts["creation_time_ms"].max() or 0,
    }
    return Reply(200, {"snapshot": described})
