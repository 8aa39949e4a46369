"""Texts that the server reads: each once, in groups that it takes, and none that is no text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lakecore.cdc.mysql import log_batches
from lakecore.cdc.mysql.connection import MySqlSettings
from lakecore.cdc.mysql.log_batches import ServerTexts
from lakecore.errors import InvalidRequest

CONF = {"hostname": "h", "username": "u", "password": "p", "database-name": "d"}


class Server:
    """A connection whose server reads UTF-8, and answers null to other bytes."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def cursor(self) -> Server:
        return self

    def close(self) -> None:
        pass

    def execute(self, text: str) -> None:
        self.asked.append([bytes.fromhex(each) for each in re.findall("x'([0-9a-f]*)'", text)])

    def fetchone(self) -> tuple[str | None, ...]:
        return tuple(None if b"\xff" in each else each.decode() for each in self.asked[-1])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(log_batches, "connect", lambda _: made)
    return made


def texts() -> Any:
    return ServerTexts(MySqlSettings.parse(CONF)).texts


def test_each_text_is_asked_for_once(server: Server) -> None:
    read = texts()

    assert read("sjis", [b"a", None, b"", b"a"]) == ["a", None, "", "a"]
    assert read("sjis", [b"a", b"b"]) == ["a", "b"]
    assert [sorted(each) for each in server.asked] == [[b"", b"a"], [b"b"]]


def test_large_texts_are_asked_for_in_small_groups(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_batches, "_ASKED_BYTES", 1000)
    monkeypatch.setattr(log_batches, "_KNOWN_BYTES", 1000)
    values = [b"%d" % each * 400 for each in range(5)] + [b"x" * 3000]
    read = texts()
    for _ in range(2):
        assert read("sjis", values) == [each.decode() for each in values]

    assert max(len(each) for each in server.asked) == 2
    assert all(len(each) == 1 or sum(map(len, each)) <= 1000 for each in server.asked)
    assert sum(map(len, server.asked)) == 12  # too large to be remembered


@pytest.mark.usefixtures("server")
def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"no text of its character set.*charset=sjis"):
        texts()("sjis", [b"a", b"\xff"])
