"""JDBC catalogs when servers die, locks go stale, and messages are read for secrets."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.jdbc import metastore as sql
from lakecore.catalog.registry import open_catalog
from lakecore.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound, StorageError
from lakecore.io.ambient import SYSTEM
from lakecore.table.publication import ExclusiveCreate
from tests.services import servers
from tests.services.jdbc import JdbcServer, mysql_server, postgresql_server
from tests.services.servers import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
ROW = [{"id": 1, "v": "a"}]


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def mortal(request: pytest.FixtureRequest) -> Iterator[JdbcServer]:
    """A server of this module's own, which may be killed."""
    start, found = {
        "postgresql": (servers.postgresql, postgresql_server),
        "mariadb": (servers.mariadb, mysql_server),
    }[request.param]
    with start() as server:
        yield found(server)


@pytest.fixture
def options(mortal: JdbcServer, tmp_path: Path) -> dict[str, str]:
    return {
        **mortal.options,
        "warehouse": str(tmp_path / "w"),
        "catalog-key": SYSTEM.new_uuid()[:8],
        "lock.enabled": "true",
        "lock-check-max-sleep": "100 ms",
    }


@pytest.fixture
def session(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    session.create_database("d")
    session.create_table("d.t", COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    return session


def revive(mortal: JdbcServer) -> None:
    assert mortal.server is not None
    mortal.server.start()
    mortal.await_answer()


def test_server_that_dies_before_a_commit_lets_nothing_through(
    mortal: JdbcServer, session: lc.Session
) -> None:
    table = session.get_table("d.t")
    assert mortal.server is not None
    mortal.server.kill()
    try:
        with pytest.raises(StorageError):
            table.write(ROW)
        with pytest.raises(StorageError):
            session.list_tables("d")
    finally:
        revive(mortal)

    assert session.get_table("d.t").to_arrow().num_rows == 0
    session.get_table("d.t").write(ROW)
    assert session.get_table("d.t").to_arrow().num_rows == 1


def test_server_that_dies_while_the_lock_is_held_does_not_undo_the_commit(
    mortal: JdbcServer,
    session: lc.Session,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = session.get_table("d.t")
    server = mortal.server
    assert server is not None
    publish = ExclusiveCreate.publish_snapshot

    def kill_then_publish(*arguments: Any) -> Any:
        server.kill()
        return publish(*arguments)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(ExclusiveCreate, "publish_snapshot", kill_then_publish)
            table.write(ROW)
    finally:
        revive(mortal)

    assert session.get_table("d.t").to_arrow().num_rows == 1
    # The lock is still there, and keeps others out until it is stale.
    hurried = lc.connect({**options, "lock-acquire-timeout": "300 ms"})
    with pytest.raises(CommitConflict, match="other processes hold the lock"):
        hurried.get_table("d.t").write(ROW)
    mortal.database().change((f"UPDATE {sql.LOCKS} SET expire_time_seconds = -1", {}))
    hurried.get_table("d.t").write(ROW)


def test_name_that_differs_in_case_is_free_or_refused(
    mortal: JdbcServer, session: lc.Session
) -> None:
    if mortal.database().dialect == "mysql":
        with pytest.raises(AlreadyExists, match="ignores case"):
            session.create_table("d.T", COLUMNS)
    else:
        session.create_table("d.T", COLUMNS)
        session.drop_table("d.T")
    with pytest.raises(NotFound):
        session.drop_table("d.T")
    assert session.list_tables("d") == ("t",)
    session.get_table("d.t").write(ROW)


def test_option_that_the_database_would_cut_is_refused(session: lc.Session) -> None:
    change = lc.SchemaChange.set_option("partition.timestamp-formatter", "y" * 1001)
    with pytest.raises(InvalidRequest, match="characters=1001 most=1000"):
        session.alter_table("d.t", [change])
    assert session.get_table("d.t").schema.id == 0


def test_no_message_shows_the_password(
    options: dict[str, str],
    session: lc.Session,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    catalog = open_catalog(options, create=False)
    shown = [repr(session), repr(catalog), repr(vars(catalog)), repr(session.get_table("d.t"))]
    shown.append(repr(session.get_table("d.t").context))
    shown.append(str(session.get_table("sys.catalog_options").to_arrow().to_pylist()))
    query = f"{options['uri']}{'&' if '?' in options['uri'] else '?'}password={PASSWORD}"
    for wrong in (
        {"jdbc.user": "nobody"},
        {"jdbc.unknown": "x"},
        {"uri": query, "jdbc.user": "nobody"},
        {"uri": query.replace("//", "///")},
        {"uri": query + "&nothing=1"},
        {"uri": options["uri"].replace("//", f"//paimon:{PASSWORD}@")},
        {"uri": options["uri"].replace("127.0.0.1", "127.0.0.2")},
    ):
        with pytest.raises(lc.LakecoreError) as caught:
            lc.connect({**options, **wrong}).list_databases()
        error: BaseException | None = caught.value
        while error is not None:
            shown += [str(error), repr(error)]
            error = error.__cause__ or error.__context__
    out = capsys.readouterr()

    assert PASSWORD not in "\n".join([*shown, caplog.text, out.out, out.err])


def test_slow_clock_of_a_holder_does_not_free_the_lock_of_another(
    mortal: JdbcServer, options: dict[str, str], session: lc.Session
) -> None:
    catalog = open_catalog(options, create=False)
    locks = catalog.names.metastore.locks  # type: ignore[attr-defined]
    now = [0]
    slow = replace(locks, ambient=replace(SYSTEM, now_ms=lambda: now[0]))
    with slow.hold("d", "t"):
        now[0] = locks.timeout_ms + 1
    held = mortal.database().rows(f"SELECT lock_id FROM {sql.LOCKS}", {})

    assert (f"{options['catalog-key']}.d.t",) in held
    mortal.database().change((f"DELETE FROM {sql.LOCKS}", {}))
    session.get_table("d.t").write(ROW)
