"""All tables whose names match are compacted, once or until stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.compact_database import (
    DatabaseCompaction,
    TableEvent,
    compact_database,
    watch_database,
)
from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.table.verbs.compaction_job import Setback, StepDone

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.session import Session


def made(session: Session, name: str, *, commits: int = 6, **options: str) -> None:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    table = session.create_table(
        name,
        {"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", **stated},
    )
    for number in range(commits):
        table.write([{"id": 1, "v": number}, {"id": number, "v": number}])


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = lc.connect(tmp_path / "w", create=True)
    for database in ("shop", "sales", "other"):
        session.create_database(database)
    for name in ("shop.orders", "shop.tmp_1", "sales.orders", "other.t"):
        made(session, name)
    return session


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, ["other.t", "sales.orders", "shop.orders", "shop.tmp_1"]),
        ({"including_databases": "shop|sales"}, ["sales.orders", "shop.orders", "shop.tmp_1"]),
        ({"including_databases": "s"}, []),
        ({"including_tables": "orders"}, ["sales.orders", "shop.orders"]),
        ({"including_tables": r"shop\..*"}, ["shop.orders", "shop.tmp_1"]),
        ({"including_tables": r"shop\..*", "excluding_tables": "tmp_.*"}, ["shop.orders"]),
        ({"excluding_tables": r"shop\.orders|t"}, ["sales.orders", "shop.tmp_1"]),
    ],
    ids=str,
)
def test_whole_names_match(session: Session, arguments: dict[str, Any], found: list[str]) -> None:
    assert sorted(DatabaseCompaction(**arguments).matching(session)) == found


@pytest.mark.parametrize("mode", ["divided", "combined"])
def test_each_table_is_compacted(session: Session, mode: str) -> None:
    results = session.compact_database("shop|sales", mode=mode)

    assert {name: each.files_before for name, each in results.items()} == dict.fromkeys(
        ("sales.orders", "shop.orders", "shop.tmp_1"), 6
    )
    assert session.get_table("shop.orders").inspect.files().height == 1
    assert session.get_table("other.t").inspect.files().height == 6
    again = session.compact_database("shop", mode=mode, full=True)
    assert [each.snapshot_ids for each in again.values()] == [(), ()]


def test_options_are_those_of_every_table(session: Session) -> None:
    few = {"num-sorted-run.compaction-trigger": "9"}
    assert not any(
        each.snapshot_ids for each in session.compact_database(table_options=few).values()
    )
    with pytest.raises(InvalidRequest, match="unknown table option"):
        session.compact_database(table_options={"no.such.option": "1"})


def test_failed_table_does_not_hold_up_the_others(session: Session) -> None:
    table = session.get_table("shop.orders")
    entry = table.inspect.files()["file_path"][0]
    table.context.store.delete(entry)

    with pytest.raises(CorruptTable) as raised:
        session.compact_database(full=True)
    assert (raised.value.facts["tables_failed"], raised.value.facts["tables_compacted"]) == (1, 3)
    assert session.get_table("other.t").inspect.files().height == 1


def test_combined_job_takes_tables_that_are_made_meanwhile(session: Session) -> None:
    opened: list[str] = []

    def open_table(name: str) -> lc.Table:
        if not opened:
            made(session, "other.new")
            session.drop_table("shop.tmp_1")
        opened.append(name)
        return session.get_table(name)

    found = compact_database(session, open_table, DatabaseCompaction(mode="combined"))
    assert sorted(found) == ["other.new", "other.t", "sales.orders", "shop.orders"]


def test_wrong_patterns_and_modes_are_refused(session: Session) -> None:
    for name in ("including_databases", "including_tables", "excluding_tables"):
        with pytest.raises(InvalidRequest, match=f"regular expression.*{name}"):
            session.compact_database(**{name: "("})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="unknown mode"):
        session.compact_database(mode="all")
    with pytest.raises(InvalidRequest, match="max_bytes"):
        session.compact_database(max_bytes=0)


class Rounds:
    """Ends the job after some waits of its main loop, and runs an action at each wait."""

    def __init__(self, *deeds: Any) -> None:
        self._deeds = list(deeds)
        self._ended = threading.Event()
        self._main = threading.current_thread()

    def is_set(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float) -> bool:
        if threading.current_thread() is not self._main:
            return self._ended.wait(min(timeout, 0.01))
        if self._deeds:
            self._deeds.pop(0)()
        else:
            self._ended.set()
        return self._ended.is_set()


@pytest.mark.parametrize("mode", ["divided", "combined"])
def test_watch_finds_new_tables_and_new_rows(session: Session, mode: str) -> None:
    told: list[TableEvent] = []
    done = threading.Event()

    def committed(name: str) -> bool:
        return any(each.table == name and isinstance(each.event, StepDone) for each in told)

    def report(event: TableEvent) -> None:
        told.append(event)
        if committed("shop.new"):
            done.set()

    def wait_for_new() -> None:
        if mode == "divided":
            assert done.wait(60)

    waits = Rounds(lambda: made(session, "shop.new"), lambda: None, wait_for_new, lambda: None)
    request = DatabaseCompaction(including_databases="shop", mode=mode)
    commits = watch_database(
        session, session.get_table, request, interval_seconds=0.01, stop=waits, report=report
    )

    assert commits == sum(isinstance(each.event, StepDone) for each in told) >= 3
    assert {each.table for each in told} == {"shop.orders", "shop.tmp_1", "shop.new"}
    assert [each.table for each in told if each.event is None].count("shop.new") == 1
    assert session.get_table("shop.new").inspect.files().height == 1


@pytest.mark.parametrize("mode", ["divided", "combined"])
def test_watch_survives_a_table_that_fails_or_is_dropped(session: Session, mode: str) -> None:
    table = session.get_table("shop.orders")
    table.context.store.delete(table.inspect.files()["file_path"][0])
    told: list[TableEvent] = []
    failed = threading.Event()

    def report(event: TableEvent) -> None:
        told.append(event)
        if isinstance(event.event, Setback):
            failed.set()

    waits = Rounds(lambda: failed.wait(60), lambda: session.drop_table("shop.tmp_1"), lambda: None)
    request = DatabaseCompaction(including_databases="shop", mode=mode, full=True)
    watch_database(
        session, session.get_table, request, interval_seconds=0.01, stop=waits, report=report
    )

    assert any(
        isinstance(each.event, Setback) and isinstance(each.event.error, CorruptTable)
        for each in told
    )
    with pytest.raises(NotFound):
        session.get_table("shop.tmp_1")


def test_gentle_job_takes_level_0_after_some_rounds(session: Session) -> None:
    made(
        session,
        "other.gentle",
        commits=1,
        changelog_producer="lookup",
        lookup_compact="gentle",
        lookup_compact__max_interval="6",
    )
    told: list[TableEvent] = []
    at: list[int] = []
    rounds = [lambda: at.append(len(told))] * 7
    request = DatabaseCompaction(including_tables="gentle", mode="combined")
    commits = watch_database(
        session,
        session.get_table,
        request,
        interval_seconds=1,
        stop=Rounds(*rounds),
        report=told.append,
    )

    assert commits == 1
    assert at == [1, 1, 1, 1, 1, 2, 2]  # the first event is that of the new table


@pytest.mark.parametrize("mode", ["divided", "combined"])
def test_watch_ends_when_nobody_can_be_told(session: Session, mode: str) -> None:
    def report(event: TableEvent) -> None:
        del event
        raise BrokenPipeError("closed")

    waits = Rounds(*[lambda: None] * 10_000)
    with pytest.raises(BrokenPipeError):
        watch_database(
            session,
            session.get_table,
            DatabaseCompaction(mode=mode),
            interval_seconds=0.01,
            stop=waits,
            report=report,
        )
