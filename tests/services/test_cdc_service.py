"""A pipeline as a service on real servers: its endpoint, its status, its positions in the log."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.mirrors import (
    command,
    connect,
    drop_slot,
    environment,
    mirror,
    postgres,
    postgres_command,
    program,
    ran,
    refusal,
    run,
)
from tests.services.servers import BINARY_LOG, eventually, free_port, fresh_folder, mariadb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.servers import Server


@contextmanager
def running(arguments: list[str], **more: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The pipeline as a process, and the address of its endpoint."""
    port = free_port()
    given = [*arguments, f"--metrics-address=127.0.0.1:{port}", "--interval=0.2 s"]
    process = subprocess.Popen(program(given), env=environment() | more, stderr=subprocess.DEVNULL)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in {0, 3}


def got(address: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers=headers)  # noqa: S310  a local address
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def figures(address: str) -> dict[str, float]:
    """The metrics by name and labels, without the name of the pipeline."""
    found = {}
    for line in got(f"{address}/metrics")[1].splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            short = re.sub(r'pipeline="[^"]*",?', "", name.removeprefix("lakecore_cdc_"))
            found[short.removesuffix("{}")] = float(value)
    return found


def until(address: str, **wanted: float) -> dict[str, float]:
    """The metrics once they have these values."""

    def has_come() -> None:
        found.clear()
        found.update(figures(address))
        assert wanted.items() <= found.items(), found

    found: dict[str, float] = {}
    eventually(has_come, str(wanted))
    return found


def test_endpoint_shows_a_pipeline_of_mariadb(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    cursor = connect(mariadb_log)
    run(
        cursor,
        "CREATE DATABASE served",
        "CREATE TABLE served.t (id INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE served.bad (id INT PRIMARY KEY)",
        "INSERT INTO served.t VALUES (1, 'a'), (2, 'b')",
    )
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "served")
    with running(given) as (_, address):
        until(address, rows=2, caught_up=1)
        assert got(f"{address}/live") == (200, "alive\n")
        run(cursor, "UPDATE served.t SET v = 'c' WHERE id = 1", "DELETE FROM served.t WHERE id = 2")
        found = until(address, rows=5)
        assert found['table_rows{table="m.t",kind="+I"}'] == 3
        assert found['table_rows{table="m.t",kind="-D"}'] == 2
        assert 0 < found["rows_per_second"] <= 5
        assert 0 <= found["step_age_seconds"] < 60
        assert found["checkpoint_seconds"] > 0
        assert found["lag_seconds"] < 60
        run(cursor, "SET SESSION binlog_format = STATEMENT", "INSERT INTO served.bad VALUES (1)")
        until(address, quarantine_tables=1)
        status = json.loads(
            ran(["cdc", "status", f"--warehouse={tmp_path}", "--json"]).out.splitlines()[-1]
        )
        assert status["tables"] == {"m.t": {"+I": 3, "-D": 2}}
        assert status["lag_bytes"] < 1000

        assert got(f"{address}/metrics", Host="evil.example")[0] == 421
        assert got(f"{address}/other")[0] == 404
        mariadb_log.kill()
        try:
            found = until(address, source_reachable=0, caught_up=0)
            assert "lag_bytes" not in found
            assert found["lag_seconds"] >= found["source_unreachable_seconds"] > 0
            assert got(f"{address}/live")[0] == 200
            shown = ran(["cdc", "status", f"--warehouse={tmp_path}"]).out
            assert "not reachable" in shown
            assert "mysql_sync_database-m: the source is not reachable since 20" in shown
        finally:
            mariadb_log.start()
            eventually(lambda: connect(mariadb_log), "mariadb")
        until(address, source_reachable=1, caught_up=1, source_unreachable_seconds=0)


def test_log_of_postgres_has_a_size_and_a_token_is_asked_for(
    postgres_log: Server, tmp_path: Path
) -> None:
    cursor = postgres(postgres_log)
    for each in (
        "CREATE SCHEMA served",
        "CREATE TABLE served.t (id int PRIMARY KEY, v text)",
        "INSERT INTO served.t VALUES (1, 'a')",
    ):
        cursor.execute(each)
    given = postgres_command(postgres_log, tmp_path, "served", slot="served")
    token = "a-token-that-is-long"
    try:
        with running(given, LAKECORE_METRICS_TOKEN=token) as (_, address):
            eventually(lambda: got(address), "the endpoint")
            assert got(f"{address}/metrics")[0] == 401
            assert got(f"{address}/live")[0] == 200

            def has_come() -> None:
                text = got(f"{address}/metrics", Authorization=f"Bearer {token}")[1]
                assert re.search(r"lakecore_cdc_lag_bytes\{.*\} \d+", text), text
                assert re.search(r"lakecore_cdc_rows\{.*\} 1", text), text

            eventually(has_come, "the rows")
    finally:
        drop_slot(postgres_log, "served")


def test_a_checkpoint_over_many_tables_of_postgres_is_small(
    postgres_log: Server, tmp_path: Path
) -> None:
    cursor = postgres(postgres_log)
    cursor.execute("CREATE SCHEMA many")
    listed = ", ".join(f"a_column_{number} int" for number in range(30))
    for number in range(70):
        cursor.execute(f"CREATE TABLE many.t{number} (id int PRIMARY KEY, {listed})")
    given = postgres_command(postgres_log, tmp_path, "many", slot="many")
    try:
        mirror(given)
        cursor.execute("INSERT INTO many.t1 (id) VALUES (1)")
        mirror(given)
        (state,) = (tmp_path / ".cdc").iterdir()
        sizes = {each.name.partition("-")[0]: each.stat().st_size for each in state.iterdir()}
        assert sizes["tables"] > 50_000
        assert sizes["checkpoint"] < 6_000
        cursor.execute("ALTER TABLE many.t1 ADD COLUMN w int")
        cursor.execute("INSERT INTO many.t1 (id, w) VALUES (2, 3)")
        mirror(given)
        assert [each.stat().st_size < 8_000 for each in state.glob("checkpoint-*")] == [True]
    finally:
        drop_slot(postgres_log, "many")


def test_certificate_of_mariadb_is_checked(tmp_path: Path) -> None:
    with fresh_folder() as (folder, _):
        _make_certificates(folder)
        files = (f"--ssl-{name}={folder}/server.{end}" for name, end in _ENDS.items())
        with mariadb(*BINARY_LOG, *files, f"--ssl-ca={folder}/own.pem") as server:
            eventually(lambda: connect(server), "mariadb")
            run(connect(server), "CREATE DATABASE safe", "CREATE TABLE safe.t (id INT PRIMARY KEY)")
            own, foreign = (
                command(
                    server, tmp_path / name, "mysql_sync_database", "safe", "--patience=1 s",
                    **{"ssl.ca": f"{folder}/{name}.pem"},
                )
                for name in ("own", "foreign")
            )  # fmt: skip
            mirror(own)
            assert "CERTIFICATE_VERIFY_FAILED" in refusal(foreign)


_ENDS = {"cert": "pem", "key": "key"}


def _make_certificates(folder: Path) -> None:
    """Two authorities, `own` and `foreign`, and a server whose certificate `own` has signed."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    for name in ("own", "foreign"):
        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    subject = ("-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    openssl("req", "-newkey", "rsa:2048", "-nodes", *subject)
    signed = ("-CAkey", "own.key", "-CAcreateserial", "-days", "2", "-out", "server.pem")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "own.pem", *signed)
    for each in folder.iterdir():
        each.chmod(0o644)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("0.0.0.0:0", "LAKECORE_METRICS_TOKEN"),
        ("127.0.0.1", "the address is HOST:PORT"),
        ("127.0.0.1:70000", "the address is HOST:PORT"),
    ],
)
def test_address_of_the_endpoint_is_checked(
    mariadb_log: Server, tmp_path: Path, address: str, message: str
) -> None:
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "no_such")
    done = ran([*given, f"--metrics-address={address}"])
    assert done.code == 1
    assert message in done.err


def test_a_server_that_dies_while_rows_are_read_leaves_only_lines_of_json(tmp_path: Path) -> None:
    with mariadb(*BINARY_LOG) as server:
        eventually(lambda: connect(server), "mariadb")
        run(
            connect(server),
            "CREATE DATABASE dies",
            "CREATE TABLE dies.t (k VARCHAR(20) PRIMARY KEY, v VARCHAR(2000))",
            "INSERT INTO dies.t SELECT seq, REPEAT('x', 2000) FROM dies.seq_1_to_30000",
        )
        given = command(server, tmp_path, "mysql_sync_database", "dies", "--log-format=json")
        process = subprocess.Popen(
            program([*given, "--patience=2 s", "--until=caught-up"]),
            env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            eventually(lambda: _reads(connect(server)), "the snapshot")
            server.kill()
            _, logged = process.communicate(timeout=60)
        finally:
            process.kill()
    lines = [json.loads(line) for line in logged.splitlines()]
    assert process.returncode == 1
    assert lines[-1]["level"] == "ERROR"
    assert "nothing listens at the address. Start the server" in lines[-1]["message"]
    assert "the connection was lost" in lines[0]["cause"]


def _reads(cursor: Any) -> None:
    cursor.execute("SHOW PROCESSLIST")
    assert any("FROM `dies`" in str(row) for row in cursor.fetchall())
