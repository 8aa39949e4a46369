"""Calls to a Hive Metastore by Thrift; failures are raised as errors of lakecore.

Only this module uses the generated client (`pymetastore`), which is imported when a catalog is
opened. Each call opens a new connection: generated clients are not thread-safe, and a connection
that was idle for long may be dead. `client-pool-size` limits the number of open connections.

Some calls differ between versions of the metastore. If the server does not know a call, an
equivalent call is tried.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, StorageError, optional
from lakecore.io.stores.services import SECONDS_MAX, Timeouts
from lakecore.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from pymetastore.hive_metastore.ThriftHiveMetastore import Client
    from pymetastore.hive_metastore.ttypes import Database, Partition, Table
    from thrift.transport.TTransport import TTransportBase

Hosts: TypeAlias = "tuple[tuple[str, int], ...]"

_imported = partial(optional, extra="hive", what="a Hive Metastore")
_CALLS = "pymetastore.hive_metastore.ThriftHiveMetastore"
_CONNECT_SECONDS = Timeouts().connect
_PORT = 9083
_UNKNOWN_METHOD = 1
_ALL = -1


class HiveClient:
    """The calls that a catalog makes. Raises errors of lakecore only."""

    def __init__(
        self, hosts: Hosts, most: int, timeout_ms: int, connect_seconds: float = _CONNECT_SECONDS
    ) -> None:
        self.hosts = hosts
        self._most = most
        self._timeout_ms = timeout_ms
        self._connect_ms = round(connect_seconds * 1000)
        self._slots = threading.BoundedSemaphore(most)
        _imported(_CALLS)

    def __repr__(self) -> str:
        return f"HiveClient({', '.join(f'{host}:{port}' for host, port in self.hosts)})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_slots": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._slots = threading.BoundedSemaphore(self._most)

    def check(self) -> None:
        """Raise StorageError if no server answers within `SECONDS_MAX`."""
        usual, self._timeout_ms = self._timeout_ms, round(SECONDS_MAX * 1000)
        try:
            self.database("default")
        finally:
            self._timeout_ms = usual

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        with self._connected() as client:
            return list(client.get_all_databases())

    def database(self, name: str) -> Database | None:
        try:
            with self._connected() as client:
                return client.get_database(name)
        except NotFound:
            return None

    def create_database(self, database: Database) -> None:
        """Create a database. Raises AlreadyExists."""
        with self._connected() as client:
            client.create_database(database)

    def drop_database(self, name: str) -> None:
        """Drop an empty database, but keep its files."""
        with self._connected() as client:
            client.drop_database(name, False, False)

    # --- tables -----------------------------------------------------------------------------------

    def table_names(self, database: str) -> list[str]:
        with self._connected() as client:
            return list(client.get_all_tables(database))

    def tables(self, database: str, names: Sequence[str]) -> list[Table]:
        request = types().GetTablesRequest(dbName=database, tblNames=list(names))
        with self._connected() as client:
            try:
                return list(client.get_table_objects_by_name_req(request).tables)
            except _thrift().TApplicationException as error:
                _require_unknown_method(error)
        with self._connected() as client:
            return list(client.get_table_objects_by_name(database, list(names)))

    def table(self, database: str, name: str) -> Table | None:
        """A table or view; None if it does not exist."""
        request = types().GetTableRequest(dbName=database, tblName=name)
        try:
            with self._connected() as client:
                try:
                    return client.get_table_req(request).table
                except _thrift().TApplicationException as error:
                    _require_unknown_method(error)
            with self._connected() as client:
                return client.get_table(database, name)
        except NotFound:
            return None

    def create_table(self, table: Table) -> None:
        """Create a table. Raises AlreadyExists."""
        with self._connected() as client:
            client.create_table(table)

    def alter_table(self, database: str, name: str, table: Table, settings: dict[str, str]) -> None:
        """Replace a table by another, whose name may differ."""
        context = types().EnvironmentContext(properties=settings)
        with self._connected() as client:
            client.alter_table_with_environment_context(database, name, table, context)

    def drop_table(self, database: str, name: str) -> bool:
        """Drop a table, but keep its files. False if it does not exist."""
        try:
            with self._connected() as client:
                client.drop_table(database, name, False)
        except NotFound:
            return False
        return True

    # --- partitions -------------------------------------------------------------------------------

    def partitions(self, database: str, table: str) -> list[Partition]:
        with self._connected() as client:
            return list(client.get_partitions(database, table, _ALL))

    def add_partitions(self, database: str, table: str, partitions: Sequence[Partition]) -> None:
        """Add the partitions that do not exist."""
        request = types().AddPartitionsRequest(
            dbName=database,
            tblName=table,
            parts=list(partitions),
            ifNotExists=True,
            needResult=False,
        )
        with self._connected() as client:
            client.add_partitions_req(request)

    def partition(self, database: str, table: str, values: Sequence[str]) -> Partition | None:
        """The partition with these values; None if there is none."""
        try:
            with self._connected() as client:
                return client.get_partition(database, table, list(values))
        except NotFound:
            return None

    def alter_partitions(self, database: str, table: str, partitions: Sequence[Partition]) -> None:
        """Replace the existing partitions that have the same values."""
        with self._connected() as client:
            client.alter_partitions(database, table, list(partitions))

    def alter_statistics(self, database: str, table: str, partition: Partition) -> None:
        """Replace a partition, and keep the statistics in its parameters.

        By default, Hive counts the files of the directory instead, including files that the table
        no longer has.
        """
        settings = types().EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
        with self._connected() as client:
            client.alter_partition_with_environment_context(database, table, partition, settings)

    def drop_partition(self, database: str, table: str, values: Sequence[str]) -> bool:
        """Drop a partition, but keep its files. False if it does not exist."""
        try:
            with self._connected() as client:
                client.drop_partition(database, table, list(values), False)
        except NotFound:
            return False
        return True

    # --- locks ------------------------------------------------------------------------------------

    def lock(self, database: str, table: str, user: str, host: str) -> tuple[int, bool]:
        """Request the exclusive lock of a table. Returns its id, and whether it is held already."""
        kinds = types()
        component = kinds.LockComponent(
            type=kinds.LockType.EXCLUSIVE,
            level=kinds.LockLevel.TABLE,
            dbname=database,
            tablename=table,
            operationType=None,
        )
        request = kinds.LockRequest(component=[component], user=user, hostname=host)
        with self._connected() as client:
            response = client.lock(request)
        return int(response.lockid), response.state == kinds.LockState.ACQUIRED

    def check_lock(self, lock: int) -> bool:
        """Whether a requested lock is held now."""
        kinds = types()
        with self._connected() as client:
            response = client.check_lock(kinds.CheckLockRequest(lockid=lock))
        return bool(response.state == kinds.LockState.ACQUIRED)

    def lock_requests(self, database: str, table: str) -> set[tuple[int, bool]]:
        """The requests for the lock of a table: the id of each, and whether it is held."""
        kinds = types()
        request = kinds.ShowLocksRequest(dbname=database, tablename=table, isExtended=False)
        with self._connected() as client:
            found = client.show_locks(request).locks or ()
        return {(int(each.lockid), each.state == kinds.LockState.ACQUIRED) for each in found}

    def unlock(self, lock: int) -> None:
        """Release a lock, or withdraw the request for it."""
        with self._connected() as client:
            client.unlock(types().UnlockRequest(lockid=lock))

    # --- connections ------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        """A connection to the first server that answers."""
        with self._slots, self._plain_errors():
            transport = self._open()
            try:
                protocol = _imported("thrift.protocol.TBinaryProtocol").TBinaryProtocol(transport)
                yield _imported(_CALLS).Client(protocol)
            finally:
                transport.close()

    def _open(self) -> TTransportBase:
        transports = _imported("thrift.transport.TTransport")
        *others, last = self.hosts
        for host, port in others:
            try:
                return self._open_at(host, port)
            except transports.TTransportException:
                continue
        return self._open_at(*last)

    def _open_at(self, host: str, port: int) -> TTransportBase:
        socket = _imported("thrift.transport.TSocket").TSocket(host, port)
        socket.setTimeout(self._connect_ms)
        transport = _imported("thrift.transport.TTransport").TBufferedTransport(socket)
        transport.open()
        socket.setTimeout(self._timeout_ms)
        return transport

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        kinds, thrift = types(), _thrift()
        try:
            yield
        except kinds.AlreadyExistsException as error:
            raise AlreadyExists("the metastore has that name", why=_why(error)) from error
        except (
            kinds.NoSuchObjectException,
            kinds.UnknownTableException,
            kinds.UnknownDBException,
        ) as error:
            raise NotFound("the metastore has no such name", why=_why(error)) from error
        except kinds.InvalidOperationException as error:
            raise InvalidRequest("the metastore refused a change", why=_why(error)) from error
        except (thrift.TException, OSError, EOFError) as error:
            raise StorageError(
                "the request to the Hive Metastore failed",
                server=repr(self),
                why=_why(error),
            ) from error


def parse_hosts(uri: str, option: str = "uri") -> Hosts:
    """The servers of a comma-separated list of `thrift://HOST:PORT`.

    Raises InvalidRequest for anything else.
    """
    hosts: list[tuple[str, int]] = []
    for each in filter(None, map(str.strip, uri.split(","))):
        parts = urlsplit(each)
        try:
            port = parts.port or _PORT
        except ValueError:
            port = 0
        if parts.scheme != "thrift" or not parts.hostname or not port or parts.path.strip("/"):
            raise InvalidRequest(
                "the URI of a Hive Metastore is thrift://HOST:PORT", option=option, value=each
            )
        hosts.append((parts.hostname, port))
    if not hosts:
        raise InvalidRequest(
            "a Hive Metastore has a URI", option=option, example=f"thrift://localhost:{_PORT}"
        )
    return tuple(hosts)


def types() -> ModuleType:
    """The module with the types of the metastore's protocol."""
    return _imported("pymetastore.hive_metastore.ttypes")


def _thrift() -> ModuleType:
    return _imported("thrift.Thrift")


def _require_unknown_method(error: Exception) -> None:
    if getattr(error, "type", None) != _UNKNOWN_METHOD:
        raise error


def _why(error: BaseException) -> str:
    """The message of the server's exception, in one line and without the class name."""
    stated = str(getattr(error, "message", None) or error)
    return masked(" ".join(stated.split()))[:500]
