"""How long lakecore waits for the servers of storages and catalogs: the one policy for all of them.

- A connection is made within `lakecore.connect-timeout`, or it has failed.
- A server that has accepted a request and is silent for `lakecore.answer-timeout` has failed. The
  time counts from the last byte, so it does not limit the size of a request or of a reply.

Reads and writes of files repeat a request without an answer once; `services.py` says
how often other failures are repeated. A catalog's server may work for long before its first byte,
for example when it drops a table: its default is longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANSWER_OPTION", "CONNECT_OPTION", "TIMEOUT_OPTIONS", "Timeouts", "timeouts_of"]

CONNECT_OPTION = "lakecore.connect-timeout"
ANSWER_OPTION = "lakecore.answer-timeout"
TIMEOUT_OPTIONS = (CONNECT_OPTION, ANSWER_OPTION)
_CONNECT_MS = 5_000
_ANSWER_MS = 15_000
_CATALOG_MS = 180_000


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to connect, and to wait for the next byte of a storage or of a catalog."""

    connect: float = _CONNECT_MS / 1000
    answer: float = _ANSWER_MS / 1000
    catalog_answer: float = _CATALOG_MS / 1000


def timeouts_of(options: Mapping[str, str]) -> Timeouts:
    """The timeouts that options state; raises InvalidRequest for a bad one."""
    connect = _seconds(options, CONNECT_OPTION, _CONNECT_MS)
    answer = _seconds(options, ANSWER_OPTION, _ANSWER_MS)
    return Timeouts(connect, answer, _seconds(options, ANSWER_OPTION, _CATALOG_MS))


def _seconds(options: Mapping[str, str], option: str, default_ms: int) -> float:
    text = options.get(option)
    if text is None:
        return default_ms / 1000
    try:
        found = DURATION.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "an option is not a duration", option=option, value=text, expected=str(error)
        ) from error
    if found <= 0:
        raise InvalidRequest("a timeout is more than 0", option=option, value=text)
    return found / 1000
