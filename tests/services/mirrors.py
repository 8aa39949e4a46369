"""Mirrors of a MariaDB: connections, the command for a pipeline, and its run to the end."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pyarrow as pa

from lakecore.cdc import resync
from lakecore.cdc.mysql.connection import MySqlSettings
from lakecore.cdc.mysql.source import MySqlSource
from lakecore.cdc.postgres import source
from lakecore.cli import main
from lakecore.io.ambient import SYSTEM
from tests.services import servers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server

EARLIEST = {"scan.startup.mode": "earliest-offset"}


def settings(server: Server) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "paimon",
        "password": servers.PASSWORD,
    }


def connect(server: Server) -> Any:
    made = import_module("pymysql").connect(**settings(server), charset="utf8mb4", autocommit=True)
    cursor = made.cursor()
    cursor.execute("SET sql_mode=''")
    return cursor


def run(cursor: Any, *statements: str) -> None:
    for each in statements:
        cursor.execute(each)


def conf(server: Server, database: str, **more: str) -> dict[str, str]:
    return {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": "paimon",
        "password": servers.PASSWORD,
        "database-name": database,
        **more,
    }


def source_of(server: Server, database: str, **more: str) -> MySqlSource:
    return MySqlSource(MySqlSettings.parse(conf(server, database, **more)), SYSTEM)


def read(server: Server, database: str, **more: str) -> list[Any]:
    """The batches of a source until it has caught up."""
    source = source_of(server, database, **more)
    found: list[Any] = []
    for step in source.steps(None):
        found += step.batches
        if step.caught_up:
            break
    source.close()
    return found


def whole(batches: list[Any]) -> pa.Table:
    """The rows of all batches: a slow machine cuts the log into more of them."""
    return pa.concat_tables([each.rows for each in batches])


def command(
    server: Server, warehouse: Path, action: str, database: str, *flags: str, **more: str
) -> list[str]:
    given = conf(server, database, **more)
    del given["password"]
    stated = [f"--mysql_conf={key}={value}" for key, value in given.items()]
    return [
        *("cdc", action, f"--warehouse={warehouse}", "--database=m", "--table_conf=bucket=1"),
        *(*stated, "--mysql_conf=password-env=CDC_PASSWORD", *flags),
    ]


def program(arguments: list[str]) -> list[str]:
    """The command line of `lakecore` with these arguments."""
    small = f"from lakecore.cdc import resync; resync.RANGE_ROWS = {range_rows()}"
    often = f"from lakecore.cdc.postgres import source; source._LOOK_MS = {look_ms()}"
    run = f"{small}; {often}; from lakecore.cli import main; main()"
    return [sys.executable, "-c", run, *arguments]


def range_rows() -> int:
    """The rows of a range of `resync`; a test may set another number."""
    return int(os.environ.get("LAKECORE_CDC_RANGE_ROWS", resync.RANGE_ROWS))


def look_ms() -> int:
    """How often a pipeline looks at the catalog of PostgreSQL; a test may set another number."""
    return int(os.environ.get("LAKECORE_CDC_LOOK_MS", source._LOOK_MS))  # noqa: SLF001


def environment() -> dict[str, str]:
    return {**os.environ, "CDC_PASSWORD": servers.PASSWORD}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def ran(arguments: list[str]) -> Ran:
    """Run `lakecore` with these arguments in this process: it need not import everything again."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    small = mock.patch.object(resync, "RANGE_ROWS", range_rows())
    secret = mock.patch.dict(os.environ, environment())
    with small, secret, redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Ran(code, out.getvalue(), err.getvalue())


def mirror(arguments: list[str], *, ends_with: int = 0) -> dict[str, Any]:
    """Run until the pipeline has caught up. Returns the output of the command.

    `ends_with`: the expected exit code; 3 if the run sets a table aside.
    """
    done = ran([*arguments, "--until=caught-up"])
    assert done.code == ends_with, done.err
    assert servers.PASSWORD not in done.out + done.err
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert found["caught_up"], "a signal ended the pipeline"
    return found


def refusal(arguments: list[str]) -> str:
    """The error of a pipeline that does not catch up."""
    done = ran([*arguments, "--until=caught-up"])
    assert done.code != 0, done.out
    return done.err


def postgres(server: Server, database: str = "postgres") -> Any:
    """A cursor of a new connection to PostgreSQL."""
    made = import_module("psycopg2").connect(
        host="127.0.0.1", port=server.port, user="paimon", password=servers.PASSWORD,
        dbname=database,
    )  # fmt: skip
    made.autocommit = True
    return made.cursor()


def postgres_command(
    server: Server, warehouse: Path, schemas: str, *flags: str, slot: str
) -> list[str]:
    """The command for a pipeline of some schemas."""
    conf = {
        "hostname": "127.0.0.1", "port": server.port, "username": "paimon",
        "password-env": "CDC_PASSWORD", "database-name": "postgres", "schema-name": schemas,
        "slot.name": slot,
    }  # fmt: skip
    return [
        *("cdc", "postgres_sync_database"),
        *(f"--warehouse={warehouse}", "--database=m", "--table_conf=bucket=1"),
        *(f"--postgres_conf={key}={value}" for key, value in conf.items()),
        *flags,
    ]


def drop_slot(server: Server, slot: str) -> None:
    """Drop a slot. It is in use for a moment after its reader has ended."""
    drop = f"SELECT pg_drop_replication_slot('{slot}')"
    servers.eventually(lambda: postgres(server).execute(drop), "the slot")
