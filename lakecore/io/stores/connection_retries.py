"""How often and how long the clients of S3, Azure and Google Cloud Storage try a request.

By default, a request takes one to seven minutes to report that its server is down or silent: each
client repeats it in its own way, and s3fs multiplies its attempts with those of botocore. Here:

- a request that could not connect is repeated twice (Azure: once), after a few seconds at most;
- a request without an answer (`timeouts.py`) is repeated once;
- a request that failed otherwise, for example because the server is busy, is repeated up to
  4 times on S3, with waits of up to 8 s, and as often as by default elsewhere. Azure's client then
  waits 1 s, 4 s and 10 s.

All waits have random jitter. A commit repeats its requests itself: its client sends each once.

The settings are attributes of the clients' own retry policies, because the constructors in fsspec's
packages have no arguments for them.
"""

from __future__ import annotations

import importlib
from types import MethodType
from typing import TYPE_CHECKING

from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.storage_errors import http_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.io.stores.timeouts import Timeouts

__all__ = ["give_up_early", "with_timeouts"]

_ATTEMPTS = 3
_ATTEMPTS_UNANSWERED = 2
_ATTEMPTS_BUSY = 5
_WAIT_SECONDS = 0.5
_RETRIES_GCS = 6  # as in the client
_SECONDS_AZURE = 1
_BUSY = frozenset({429, 500, 502, 503, 504})


def with_timeouts(
    arguments: Mapping[str, object], package: str, timeouts: Timeouts, *, for_commits: bool = False
) -> dict[str, object]:
    """The arguments of a client, with its timeouts. botocore repeats no request: s3fs does."""
    match package:
        case "s3fs":
            given = arguments.get("config_kwargs", {})
            assert isinstance(given, dict), "botocore's config is a mapping"
            waits = {"connect_timeout": timeouts.connect, "read_timeout": timeouts.answer}
            once = {"retries": {"total_max_attempts": 1}}
            # fsspec shares clients with equal arguments: the one for commits needs others.
            agent = {"user_agent_extra": "lakecore-commits"} if for_commits else {}
            return {**arguments, "config_kwargs": {**waits, **once, **agent, **given}}
        case "gcsfs":
            waits = {"sock_connect": timeouts.connect, "sock_read": timeouts.answer}
            limits = importlib.import_module("aiohttp").ClientTimeout(total=None, **waits)
            return {**arguments, "requests_timeout": limits}
        case "adlfs":
            waits = {"connection_timeout": timeouts.connect, "read_timeout": timeouts.answer}
            return {**arguments, **waits}
    return {**arguments}


def give_up_early(
    client: object, package: str, timeouts: Timeouts, *, for_commits: bool = False
) -> None:
    """Limit how often a new client repeats a request, and how long it waits for an answer."""
    match package:
        case "s3fs":
            # s3fs repeats a request without an answer, and the read of a body that was cut short.
            vars(client)["retries"] = 1 if for_commits else _ATTEMPTS_UNANSWERED
            if not for_commits:
                _limit_s3(client)
        case "adlfs":
            _limit_azure(client, timeouts)
        case "gcsfs":
            _limit_gcs(client)


def _limit_s3(client: object) -> None:
    errors = importlib.import_module("botocore.exceptions")
    cannot_connect = (errors.EndpointConnectionError, errors.ConnectTimeoutError)

    async def call(self: object, *arguments: object, **named: object) -> object:
        for attempt in range(_ATTEMPTS_BUSY):
            try:
                return await vars(type(self))["_call_s3"](self, *arguments, **named)
            except (errors.HTTPClientError, TimeoutError) as error:
                # s3fs has repeated it, and would repeat an error of this class again.
                raise ConnectionError(f"no answer: {error}") from error
            except (errors.BotoCoreError, OSError) as error:
                unconnected = isinstance(error, cannot_connect)
                attempts = _ATTEMPTS if unconnected else _ATTEMPTS_BUSY
                if attempt + 1 >= attempts or not (unconnected or http_status(error) in _BUSY):
                    raise
            await _wait(attempt)
        raise AssertionError("the last attempt returns or raises")

    vars(client)["_call_s3"] = MethodType(call, client)


def _limit_azure(client: object, timeouts: Timeouts) -> None:
    pipeline = getattr(getattr(client, "service_client", None), "_pipeline", None)
    limits = getattr(getattr(pipeline, "_transport", None), "connection_config", None)
    if limits is not None:
        limits.timeout, limits.read_timeout = timeouts.connect, timeouts.answer
    policies = getattr(pipeline, "_impl_policies", None)
    for policy in policies if isinstance(policies, list) else []:
        if hasattr(policy, "connect_retries"):
            policy.connect_retries = policy.read_retries = 1
            policy.initial_backoff = _SECONDS_AZURE
            policy.random_jitter_range = _SECONDS_AZURE


def _limit_gcs(client: object) -> None:
    library = importlib.import_module("aiohttp")
    repeated = importlib.import_module("gcsfs.retry").retry_request
    send = vars(type(client))["_request"].__wrapped__  # without repetitions

    async def request(self: object, *arguments: object, **named: object) -> object:
        for attempt in range(_ATTEMPTS):
            try:
                return await send(self, *arguments, **named)
            except (library.ClientConnectorError, library.ServerTimeoutError) as error:
                silent = isinstance(error, library.SocketTimeoutError)
                if attempt + 1 >= (_ATTEMPTS_UNANSWERED if silent else _ATTEMPTS):
                    # For an error of this class, the client does not repeat the request.
                    raise ConnectionError(str(error)) from error
            await _wait(attempt)
        raise AssertionError("the last attempt returns or raises")

    vars(client)["_request"] = MethodType(repeated(retries=_RETRIES_GCS)(request), client)


async def _wait(attempt: int) -> None:
    await SYSTEM.sleep_async(_WAIT_SECONDS * 2**attempt * (0.5 + SYSTEM.random()))
