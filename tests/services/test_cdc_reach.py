"""A server that cannot be reached, or refuses: the error says why, and what to do."""

from __future__ import annotations

import socket
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from lakecore.cdc.mysql.connection import MySqlSettings, plain_mysql_errors
from lakecore.cdc.mysql.connection import connect as connect_mysql
from lakecore.cdc.postgres.connection import PostgresSettings, plain_postgres_errors
from lakecore.cdc.postgres.connection import connect as connect_postgres
from lakecore.errors import InvalidRequest, LakecoreError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.services

SECRET = "a-password-of-the-test"


def mysql(host: str = "127.0.0.1", port: int = 1) -> MySqlSettings:
    return MySqlSettings(
        hostname=host, port=port, username="u", password=SECRET, databases="d", timeout_seconds=1
    )


def postgres(host: str = "127.0.0.1", port: int = 1) -> PostgresSettings:
    return PostgresSettings(
        hostname=host, port=port, username="u", password=SECRET, database="d", schemas="s",
        tables="t", slot="x", publication="y", timeout_seconds=2,
    )  # fmt: skip


def via_mysql(host: str, port: int) -> None:
    connect_mysql(mysql(host, port))


def via_postgres(host: str, port: int) -> None:
    connect_postgres(postgres(host, port))


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("connect", [via_mysql, via_postgres])
@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "nothing listens at the address. Start the server, or correct hostname"),
        ("no-such-host.invalid", "the host name is not known. Correct hostname"),
    ],
)
def test_address_without_a_server(
    connect: Callable[[str, int], None], host: str, reason: str
) -> None:
    with pytest.raises(StorageError) as failed:
        connect(host, 1)
    assert str(failed.value).startswith(f"the pipeline cannot connect: {reason}")
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("connect", [via_mysql, via_postgres])
def test_a_server_that_says_nothing(connect: Callable[[str, int], None], silent: int) -> None:
    with pytest.raises(
        StorageError, match=r"does not answer in time\. Check hostname, port and fi"
    ):
        connect("127.0.0.1", silent)


@pytest.mark.parametrize(
    ("code", "text", "kind", "reason"),
    [
        (1045, "Access denied for user 'u'@'h'", InvalidRequest, "refuses the login. Correct user"),
        (1130, "Host 'h' is not allowed to connect", InvalidRequest, "user may come from this ho"),
        (1044, "Access denied for user to database", InvalidRequest, "has no such database"),
        (1049, "Unknown database 'd'", InvalidRequest, "has no such database, or hides it"),
        (1227, "need the REPLICATION SLAVE", InvalidRequest, "lacks a privilege. GRANT SELECT"),
        (1040, "Too many connections", StorageError, "no free connection. End other sessions"),
        (2013, "Lost connection to MySQL server", StorageError, "the connection was lost"),
        (1053, "Server shutdown in progress", StorageError, "starts or shuts down"),
        (2003, "(CERTIFICATE_VERIFY_FAILED)", StorageError, "certificate of the server is not ac"),
        (9999, "odd", StorageError, "the server reports a failure. The cause says which"),
    ],
)
def test_errors_of_mysql(code: int, text: str, kind: type[LakecoreError], reason: str) -> None:
    error = import_module("pymysql").err.OperationalError
    with pytest.raises(kind, match=reason), plain_mysql_errors(mysql(), "what"):
        raise error(code, text)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ('FATAL:  password authentication failed for user "u"', InvalidRequest, "Correct username"),
        ('FATAL:  database "d" does not exist', InvalidRequest, "no such database. Correct data"),
        ('FATAL:  role "u" does not exist', InvalidRequest, "no such user. Correct username"),
        ('FATAL:  no pg_hba.conf entry for host "h"', InvalidRequest, "Add one, and reload it"),
        ("permission denied for schema s", InvalidRequest, "lacks a privilege"),
        ("FATAL:  sorry, too many clients already", StorageError, "no free connection"),
        ("FATAL:  the database system is starting up", StorageError, "starts or shuts down"),
        ("server closed the connection unexpectedly", StorageError, "the connection was lost"),
    ],
)
def test_errors_of_postgres(text: str, kind: type[LakecoreError], reason: str) -> None:
    error = import_module("psycopg2").OperationalError
    with pytest.raises(kind, match=reason), plain_postgres_errors(postgres(), "what"):
        raise error(text)
