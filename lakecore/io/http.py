"""HTTP requests with JSON, which send a report of a table, or read from another system."""

from __future__ import annotations

import json
from base64 import b64encode
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakecore.errors import InvalidRequest, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TIMEOUT_S = 60


class _NoRedirects(HTTPRedirectHandler):
    """Only the address that was given is called: a redirect is an error."""

    def redirect_request(self, *_arguments: object) -> None:
        return None


def is_allowed(url: str, beginnings: Iterable[str]) -> bool:
    """Whether a URL begins with one of these, up to its end or to a `/`."""
    return any(url == each or url.startswith(each.rstrip("/") + "/") for each in beginnings)


def post_json(url: str, body: Mapping[str, object]) -> Mapping[str, object]:
    """Send a JSON object, and return the JSON object of the response.

    Raises InvalidRequest for a URL that is not http or https; StorageError if the server cannot be
    reached, refuses the request, or returns anything but a JSON object.
    """
    return _answer(url, json.dumps(body).encode(), "the report was not taken")


def get_json(url: str) -> Mapping[str, object]:
    """The JSON object at a URL. Raises as `post_json`.

    A user and a password in the URL are sent by basic authentication.
    """
    return _answer(url, None, "the server does not answer")


def _answer(url: str, data: bytes | None, failure: str) -> Mapping[str, object]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"}:
        raise InvalidRequest("the URL must be of http or https", url=url)
    user, at, server = parts.netloc.rpartition("@")
    headers = {"Content-Type": "application/json"}
    if at:
        headers["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
    request = Request(  # noqa: S310  the scheme is checked
        urlunsplit(parts._replace(netloc=server)),
        data=data,
        headers=headers,
        method="GET" if data is None else "POST",
    )
    try:
        with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as response:
            answer = json.loads(response.read())
    except (HTTPException, OSError, ValueError, RecursionError) as error:
        raise StorageError(failure, url=url, cause=error) from error
    if not isinstance(answer, dict):
        raise StorageError("the answer is not a JSON object", url=url)
    return answer
