"""One HTTP request, by which a table reports to another system."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from lakecore.errors import InvalidRequest, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["post_json"]

_TIMEOUT_S = 60


def post_json(url: str, body: Mapping[str, object]) -> Mapping[str, object]:
    """Send a JSON object, and return the JSON object of the response.

    Raises InvalidRequest for a URL that is not http or https; StorageError if the server cannot be
    reached, refuses the request, or returns anything but a JSON object.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise InvalidRequest("the URL of a report is of http or https", url=url)
    request = Request(  # noqa: S310  the scheme is checked
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310  as above
            answer = json.loads(response.read())
    except (URLError, OSError, ValueError) as error:
        raise StorageError("the report was not taken", url=url, cause=error) from error
    if not isinstance(answer, dict):
        raise StorageError("the report was answered by something else than an object", url=url)
    return answer
