"""Marks of partitions: success files, reports, and what is refused."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, NotFound, StorageError, Unsupported
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.handle import Table

DAYS = {"id": [1, 2, 3], "day": ["a", "a", "b"], "hour": [1, 2, 1]}


def table_of_days(action: str = "success-file") -> Table:
    table = new_table(
        {"id": "INT NOT NULL", "day": "STRING NOT NULL", "hour": "INT NOT NULL"},
        keys=("day", "hour", "id"),
        partitions=("day", "hour"),
        partition__mark_done_action=action,
    )
    table.write(DAYS)
    return table


def test_a_success_file_is_written_and_written_again() -> None:
    table = table_of_days()
    context = table.context

    assert table.mark_partition_done({"day": "a", "hour": "2"}) == ("day=a/hour=2",)
    place = f"{table.path}/day=a/hour=2/_SUCCESS"
    first = json.loads(context.store.read(place))
    assert table.mark_partition_done({"day": "a"}) == ("day=a/hour=1", "day=a/hour=2")
    second = json.loads(context.store.read(place))

    assert first["creationTime"] == first["modificationTime"] == second["creationTime"]
    assert second["modificationTime"] >= first["modificationTime"]
    assert not context.store.exists(f"{table.path}/day=b/hour=1/_SUCCESS")
    assert table.count() == 3


def test_what_is_wrong_is_said() -> None:
    table = table_of_days()

    with pytest.raises(NotFound, match="no partition matches"):
        table.mark_partition_done({"day": "z"})
    with pytest.raises(InvalidRequest, match="name the partitions"):
        table.mark_partition_done()
    with pytest.raises(InvalidRequest, match="not a partition key"):
        table.mark_partition_done({"id": 1})
    with pytest.raises(InvalidRequest, match="no partitions"):
        new_table().mark_partition_done({"id": 1})


@pytest.mark.parametrize("action", ["done-partition", "mark-event", "custom"])
def test_an_action_that_is_not_supported_is_named(action: str) -> None:
    table = table_of_days(f"success-file,{action}")

    with pytest.raises(Unsupported, match=action):
        table.mark_partition_done({"day": "a"})
    assert not table.context.store.exists(f"{table.path}/day=a/hour=1/_SUCCESS")


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, object]], dict[str, str]]]:
    taken: list[dict[str, object]] = []
    answer = {"result": "SUCCESS"}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is of http.server
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_arguments: object) -> None: ...

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/done", taken, answer
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_a_report_is_sent(
    server: tuple[str, list[dict[str, object]], dict[str, str]],
) -> None:
    url, taken, answer = server
    settings = {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": url,
        "partition.mark-done-action.http.params": "p=1",
        "lakecore.http-report-urls": url.removesuffix("/done"),
    }
    table = table_of_days().copy(settings)

    table.mark_partition_done({"day": "b"})
    assert taken == [
        {
            "params": "p=1",
            "table": table.identifier,
            "path": table.path,
            "partition": "day=b/hour=1",
        }
    ]
    answer["result"] = "FAILED"
    with pytest.raises(StorageError, match="did not take the report"):
        table.mark_partition_done({"day": "b"})


def test_a_server_that_is_not_there_is_named() -> None:
    table = table_of_days()
    report = {
        "partition.mark-done-action": "http-report",
        "lakecore.http-report-urls": "http://127.0.0.1:1,file:/",
    }

    with pytest.raises(InvalidRequest, match=r"http\.url"):
        table.copy(report).mark_partition_done({"day": "b"})
    for url, error in (("http://127.0.0.1:1/", StorageError), ("file:///etc", InvalidRequest)):
        to = {**report, "partition.mark-done-action.http.url": url}
        with pytest.raises(error):
            table.copy(to).mark_partition_done({"day": "b"})


def test_a_table_does_not_say_which_address_is_called(
    server: tuple[str, list[dict[str, object]], dict[str, str]],
) -> None:
    url, taken, _ = server
    report = {
        "partition.mark-done-action": "http-report",
        "partition.mark-done-action.http.url": url,
    }
    for allowed in ({}, {"lakecore.http-report-urls": "http://127.0.0.1:1/,http://127.0.0.1"}):
        with pytest.raises(InvalidRequest, match=r"lakecore\.http-report-urls"):
            table_of_days().copy(report | allowed).mark_partition_done({"day": "b"})
    assert taken == []
