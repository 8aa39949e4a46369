from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.jdbc.database import Address, parse_address
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from pathlib import Path


def test_sqlite_file_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse_address("jdbc:sqlite:a/cat.db", {}).database == f"{tmp_path}/a/cat.db"
    assert parse_address("jdbc:sqlite:/b/cat.db", {}).database == "/b/cat.db"
    assert parse_address("JDBC:SQLITE:file:/b/cat.db", {}).database == "/b/cat.db"


def test_server_is_read_as_java_reads_it() -> None:
    address = parse_address(
        "jdbc:mysql://db.example:3307/cat?useSSL=false&permitMysqlScheme=true&connectTimeout=1500",
        {"user": "me", "password": "hush"},
    )

    assert address == Address(
        dialect="mysql",
        text="jdbc:mysql://db.example:3307/cat",
        host="db.example",
        port=3307,
        database="cat",
        user="me",
        password="hush",
        arguments={"connect_timeout": 2},
    )
    assert parse_address("jdbc:mariadb://h/c", {}).dialect == "mysql"


def test_options_go_before_the_query_of_the_uri() -> None:
    address = parse_address(
        "jdbc:postgresql://h/c?user=them&password=theirs&currentSchema=lake", {"user": "me"}
    )

    assert (address.user, address.password) == ("me", "theirs")
    assert address.arguments == {"options": "-csearch_path=lake"}


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("sqlite:/x.db", "begins with jdbc:"),
        ("jdbc:sqlite", "begins with jdbc:"),
        ("jdbc:sqlite:/x.db?cache=shared", "has no settings"),
        ("jdbc:mysql://h", "a host and a database"),
        ("jdbc:mysql:///c", "a host and a database"),
        ("jdbc:mysql://h:port/c", "port is not a number"),
        ("jdbc:mysql://me:hush@h/c", "jdbc.user and jdbc.password"),
        ("jdbc:postgresql://h/c?tcpKeepAlives=1", "option=jdbc.tcpKeepAlives"),
        ("jdbc:postgresql://h/c?connectTimeout=soon", "expected=a whole number"),
        ("jdbc:mysql://h/c?useSSL=perhaps", "expected=one of false, true"),
    ],
)
def test_uri_that_means_nothing_is_refused(uri: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        parse_address(uri, {})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("uri", ["jdbc:oracle:thin:@h/c", "jdbc:sqlite::memory:"])
def test_database_that_cannot_keep_a_catalog_is_unsupported(uri: str) -> None:
    with pytest.raises(Unsupported):
        parse_address(uri, {})


def test_password_is_never_shown() -> None:
    address = parse_address("jdbc:mysql://h/c?password=hush1", {"password": "hush2"})

    assert "hush" not in repr(address)
