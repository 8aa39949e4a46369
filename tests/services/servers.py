"""Real servers that the tests of `tests/services` start: PostgreSQL, MariaDB, Hive Metastore.

Each is a process of its own in a fresh folder, on a free port of this machine, and ends with the
test session. A server that is not installed, or does not start, fails the tests: a suite that skips
what it is for proves nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.services.setup import HIVE, ICEBERG_REST, classes, jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

STARTS_WITHIN_SECONDS = 120
PASSWORD = "a-secret-of-the-tests"


@dataclass
class Server:
    """A process that listens on a port; `kill` and `start` play a crash."""

    name: str
    command: Sequence[str]
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        # A PostgreSQL that was killed leaves it, and takes a process that is not reaped for itself.
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        log = self.folder / f"{self.name}.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self.folder,
            )
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, f"{self.name} ended:\n{log.read_text()[-3000:]}"
            time.sleep(0.1)
        raise AssertionError(f"{self.name} does not listen:\n{log.read_text()[-3000:]}")

    def kill(self) -> None:
        """End the process and all that it started without a chance to clean up.

        Each session of PostgreSQL has a process group of its own, and would answer once more.
        """
        started = []
        if self.process is not None:
            with suppress(psutil.NoSuchProcess):
                started = psutil.Process(self.process.pid).children(recursive=True)
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._end(signal.SIGKILL)
        psutil.wait_procs(started, timeout=30)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
        self.process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(deed: Callable[[], object], what: str) -> None:
    """Wait until a deed raises nothing."""
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while True:
        try:
            deed()
        except Exception as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} does not answer") from error
            time.sleep(0.2)
        else:
            return


@contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def postgresql(*settings: str) -> Iterator[Server]:
    """PostgreSQL with the user `paimon`, whose password is PASSWORD, and its database `cat`."""
    binaries = _binaries("postgres", "/usr/lib/postgresql/*/bin")
    with fresh_folder("postgres") as (folder, own):
        (folder / "password").write_text(PASSWORD)
        shutil.chown(folder / "password", *own) if own else None
        as_user = ["runuser", "-u", own[0], "--"] if own else []
        _run(
            *as_user,
            f"{binaries}/initdb",
            *("-D", f"{folder}/data", "-U", "paimon", "--auth=scram-sha-256"),
            f"--pwfile={folder}/password",
        )
        port = free_port()
        server = Server(
            name="postgresql",
            port=port,
            folder=folder,
            command=[
                *as_user,
                f"{binaries}/postgres",
                *("-D", f"{folder}/data", "-p", str(port), "-c", "listen_addresses=127.0.0.1"),
                *("-c", "unix_socket_directories=", "-c", "fsync=off"),
                *settings,
            ],
        )
        with running(server):
            yield server


BINARY_LOG = (
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--character-set-server=utf8mb4",
    "--sync-binlog=0",
)
"""What a mirror needs of a server."""


@contextmanager
def mariadb(*settings: str) -> Iterator[Server]:
    """MariaDB with the user `paimon`, whose password is PASSWORD, and the database `cat`."""
    installer = _binary("mariadb-install-db")
    daemon = _binary("mariadbd", "/usr/sbin/mariadbd")
    with fresh_folder("mysql") as (folder, own):
        user = [f"--user={own[0]}"] if own else []
        # A server that starts deletes what others have in a directory for temporary files.
        places = ("--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}")
        _run(installer, *places, "--skip-test-db", *user)
        port = free_port()
        first = folder / "first.sql"
        first.write_text(
            "CREATE DATABASE IF NOT EXISTS cat CHARACTER SET latin1;\n"
            f"CREATE USER IF NOT EXISTS 'paimon'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'paimon'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        first.chmod(0o644)
        server = Server(
            name="mariadb",
            port=port,
            folder=folder,
            command=[
                daemon,
                *places,
                f"--socket={folder}/socket",
                f"--port={port}",
                f"--init-file={first}",
                *("--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=2"),
                *("--skip-name-resolve", "--innodb-buffer-pool-size=32M"),
                *settings,
                *user,
            ],
        )
        with running(server):
            yield server


@contextmanager
def hive_metastore() -> Iterator[Server]:
    """Hive Metastore 3.1.3 over Derby in memory; its warehouse is `FOLDER/warehouse`."""
    with fresh_folder() as (folder, _):
        port = free_port()
        conf = folder / "conf"
        conf.mkdir()
        (conf / "metastore-site.xml").write_text(_hive_site(folder, port))
        path = ":".join([str(conf), str(classes(HIVE)), *map(str, jars(HIVE))])
        server = Server(
            name="hive",
            port=port,
            folder=folder,
            command=[
                *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path),
                *("Launch", "-p", str(port)),
            ],
        )
        with running(server):
            yield server


@contextmanager
def iceberg_rest() -> Iterator[Server]:
    """Iceberg's own REST server, over a catalog in SQLite."""
    with fresh_folder() as (folder, _):
        port = free_port()
        path = ":".join([str(classes(ICEBERG_REST)), *map(str, jars(ICEBERG_REST))])
        server = Server(
            name="iceberg-rest",
            port=port,
            folder=folder,
            command=[
                *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path),
                *("IcebergRest", str(port), str(folder)),
            ],
        )
        with running(server):
            yield server


def _hive_site(folder: Path, port: int) -> str:
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/derby;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "javax.jdo.option.ConnectionUserName": "APP",
        "javax.jdo.option.ConnectionPassword": "mine",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "metastore.schema.verification": "false",
        "metastore.warehouse.dir": f"{folder}/warehouse",
        "metastore.thrift.uris": f"thrift://127.0.0.1:{port}",
        "metastore.event.db.notification.api.auth": "false",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": (
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        ),
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{properties}</configuration>"


@contextmanager
def fresh_folder(user: str | None = None) -> Iterator[tuple[Path, tuple[str, str] | None]]:
    """A fresh folder, and who owns it if the server must not run as this user."""
    own = (user, user) if user is not None and os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="lakecore-server-"))
    try:
        if own:
            shutil.chown(folder, *own)
        folder.chmod(0o755)
        yield folder, own
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(name: str, *places: str) -> str:
    for place in places:
        if Path(place).exists():
            return place
    found = shutil.which(name)
    assert found is not None, f"`{name}` is not installed: CONTRIBUTING.md lists the packages"
    return found


def _binaries(name: str, pattern: str) -> str:
    """The newest folder with a server's programs, which may not be on the path."""
    found = sorted(Path("/").glob(f"{pattern.lstrip('/')}/{name}"))
    return str(Path(found[-1] if found else _binary(name)).resolve().parent)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", cwd="/")
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
