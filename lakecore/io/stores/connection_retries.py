"""How often the clients of Azure and Google Cloud Storage repeat requests that could not connect.

By default, one request takes a minute or two to report that its server is down: between attempts,
Azure's client waits 18 s, 24 s and 42 s, and Google's 30 s in total. Here, a request that could not
connect is repeated once (Azure) or twice (Google), after a few seconds at most. A request that
failed otherwise, for example because the server is busy, is repeated as often as by default;
Azure's client then waits 1 s, 4 s and 10 s. All waits have random jitter.

The settings are attributes of the clients' own retry policies, because the constructors in fsspec's
packages have no arguments for them.
"""

from __future__ import annotations

import importlib
from types import MethodType

from lakecore.io.ambient import SYSTEM

__all__ = ["give_up_early"]

_ATTEMPTS_GCS = 3
_WAIT_GCS_SECONDS = 0.5
_RETRIES_GCS = 6  # as in the client
_SECONDS_AZURE = 1


def give_up_early(client: object, package: str) -> None:
    """Limit how often a new client repeats a request that could not connect."""
    match package:
        case "adlfs":
            _limit_azure(client)
        case "gcsfs":
            _limit_gcs(client)


def _limit_azure(client: object) -> None:
    found: object = client
    for name in ("service_client", "_pipeline", "_impl_policies"):
        found = getattr(found, name, None)
    policies = found if isinstance(found, list) else []
    for policy in policies:
        if hasattr(policy, "connect_retries"):
            policy.connect_retries = 1
            policy.initial_backoff = _SECONDS_AZURE
            policy.random_jitter_range = _SECONDS_AZURE


def _limit_gcs(client: object) -> None:
    cannot_connect = importlib.import_module("aiohttp").ClientConnectorError
    repeated = importlib.import_module("gcsfs.retry").retry_request
    send = vars(type(client))["_request"].__wrapped__  # without repetitions

    async def request(self: object, *arguments: object, **named: object) -> object:
        for attempt in range(_ATTEMPTS_GCS):
            try:
                return await send(self, *arguments, **named)
            except cannot_connect as error:
                if attempt + 1 == _ATTEMPTS_GCS:
                    # For an error of this class, the client does not repeat the request.
                    raise ConnectionError(str(error)) from error
                wait = _WAIT_GCS_SECONDS * 2**attempt * (0.5 + SYSTEM.random())
                await SYSTEM.sleep_async(wait)
        raise AssertionError("the last attempt returns or raises")

    vars(client)["_request"] = MethodType(repeated(retries=_RETRIES_GCS)(request), client)
