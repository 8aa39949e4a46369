from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import StorageError
from lakecore.io import http

if TYPE_CHECKING:
    from urllib.request import Request


def test_user_and_password_of_a_url_become_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []

    def answers(request: Request, *, timeout: float) -> io.BytesIO:
        del timeout
        seen.append(request)
        return io.BytesIO(b"{}")

    monkeypatch.setattr(http, "build_opener", lambda *_: SimpleNamespace(open=answers))
    assert http.get_json("http://user:p%40ss@host:81/a?b=1") == {}

    assert seen[0].full_url == "http://host:81/a?b=1"
    assert seen[0].get_header("Authorization") == "Basic dXNlcjpwQHNz"
    http.get_json("http://host/a")
    assert seen[1].get_header("Authorization") is None


def test_a_wrong_port_is_a_plain_error_without_the_password() -> None:
    with pytest.raises(StorageError) as error:
        http.get_json("http://user:secret@host:9x/a")

    assert "secret" not in str(error.value)
