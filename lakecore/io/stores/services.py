"""What each remote storage supports, and its fsspec client.

`SERVICES` is the table: scheme of a URI -> `Service`. `service_settings.py` maps the options of a
catalog to the arguments of the client.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from types import MethodType
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.storage_errors import http_status
from lakecore.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


# --- timeouts ------------------------------------------------------------------------------------
# How long lakecore waits for the servers of storages and catalogs: the one policy for all of them.
#
# - A connection is made within `lakecore.connect-timeout`, or it has failed.
# - A server that has accepted a request and is silent for `lakecore.answer-timeout` has failed. The
#   time counts from the last byte, so it does not limit the size of a request or of a reply.
#
# Reads and writes of files repeat a request without an answer once; `services.py` says how often
# other failures are repeated. A catalog's server may work for long before its first byte, for
# example when it drops a table: its default is longer.

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


# --- services ------------------------------------------------------------------------------------

# --- connection retries --------------------------------------------------------------------------
# How often and how long the clients of S3, Azure and Google Cloud Storage try a request.
#
# By default, a request takes one to seven minutes to report that its server is down or silent: each
# client repeats it in its own way, and s3fs multiplies its attempts with those of botocore. Here:
#
# - a request that could not connect is repeated twice (Azure: once), after a few seconds at most;
# - a request without an answer (`timeouts.py`) is repeated once;
# - a request that failed otherwise, for example because the server is busy, is repeated up to 4
#   times on S3, with waits of up to 8 s, and as often as by default elsewhere. Azure's client then
#   waits 1 s, 4 s and 10 s.
#
# All waits have random jitter. A commit repeats its requests itself: its client sends each once.
#
# The settings are attributes of the clients' own retry policies, because the constructors in
# fsspec's packages have no arguments for them.

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
    # The class's own `call_s3` calls the class's `_call_s3`, which this policy does not reach.
    synchronous = importlib.import_module("fsspec.asyn").sync_wrapper
    vars(client)["call_s3"] = synchronous(vars(client)["_call_s3"], obj=client)


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


# --- reachable -----------------------------------------------------------------------------------
# Checks once, before the first request, whether the server of a storage or a catalog answers.
#
# The clients repeat a request that got no answer, and opening a warehouse takes several requests. A
# wrong address, or a server that is down or silent, is reported within `SECONDS_MAX` instead. A
# server of http or HDFS must answer a request, one of https a TLS handshake.
#
# A server behind a proxy is not checked, because only the proxy may be able to reach it.

SECONDS_MAX = 10.0
_ATTEMPTS_MAX = 4
_ATTEMPT_SECONDS = 4.0
_FIRST_WAIT_SECONDS = 0.2
_METHODS = {"http": "HEAD", "hdfs": "GET"}
"""The method of the request that checks a server. A name node refuses GET by an HTTP response."""
_PORTS = {"http": 80, "https": 443, "hdfs": 8020}


def check_reachable(
    address: str,
    ambient: Ambient = SYSTEM,
    ask: Callable[[str, tuple[str, int], float], None] | None = None,
) -> None:
    """Raise StorageError if nothing answers at an address such as `https://host:port/path`.

    Tries several times, with random waits, and gives up after `SECONDS_MAX`.
    """
    parts = urlsplit(address)
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise InvalidRequest(
            "the port of an address of a storage is not a number up to 65535", host=parts.hostname
        ) from error
    if not parts.hostname or port is None or _has_proxy(parts.scheme, parts.hostname):
        return
    began, reason = ambient.now_ms(), ""
    for attempt in range(_ATTEMPTS_MAX):
        wait = _FIRST_WAIT_SECONDS * 2**attempt * (0.5 + ambient.random()) if attempt else 0.0
        left = SECONDS_MAX - (ambient.now_ms() - began) / 1000 - wait
        if left <= 0:
            break
        ambient.sleep(wait)
        try:
            (ask or _ask)(parts.scheme, (parts.hostname, port), min(left, _ATTEMPT_SECONDS))
        except OSError as error:
            reason = str(error.strerror or error)
        else:
            return
    raise StorageError(
        "the server cannot be reached, or does not answer",
        address=f"{parts.scheme}://{parts.hostname}:{port}",
        reason=reason,
        waited_seconds=round((ambient.now_ms() - began) / 1000, 1),
    )


def _ask(scheme: str, address: tuple[str, int], seconds: float) -> None:
    """Return if the server answers in time, whatever it says; else raise OSError."""
    with socket.create_connection(address, seconds) as connection:
        if scheme == "https":
            # A client without certificates: also its refusal of the server's one is an answer.
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with suppress(ssl.SSLError):
                tls.wrap_socket(connection, server_hostname=address[0]).close()
        elif scheme in _METHODS:
            head = (
                f"{_METHODS[scheme]} / HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n\r\n"
            )
            connection.sendall(head.encode())
            connection.recv(1)


def _has_proxy(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return (scheme in proxies or "all" in proxies) and not proxy_bypass(host)


# --- services ------------------------------------------------------------------------------------

Setting: TypeAlias = "str | bool | int | dict[str, Setting]"

_TIMEOUTS = Timeouts()


class S3Body(Protocol):
    """The bytes of a file, as the client of S3 receives them."""

    async def read(self) -> bytes: ...


class S3Page(TypedDict, total=False):
    """What S3 answers: a part of a listing, or of a file, or what could not be deleted."""

    Body: S3Body
    ContentRange: str
    Errors: Sequence[Mapping[str, object]]
    Contents: Sequence[Mapping[str, object]]
    CommonPrefixes: Sequence[Mapping[str, str]]
    IsTruncated: bool
    NextContinuationToken: str


class FileSystem(Protocol):
    """The part of an fsspec file system that lakecore uses. Paths have no scheme."""

    @property
    def loop(self) -> object: ...
    def cat_file(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes: ...
    def exists(self, path: str) -> bool: ...
    def info(self, path: str) -> Mapping[str, object]: ...
    def isdir(self, path: str) -> bool: ...
    def ls(self, path: str, *, detail: bool) -> Sequence[Mapping[str, object]]: ...
    def call_s3(self, method: str, **request: object) -> S3Page: ...
    def find(self, path: str) -> Sequence[str]: ...
    def pipe_file(self, path: str, value: bytes, *, mode: str) -> None: ...
    def copy(self, path1: Sequence[str], path2: Sequence[str]) -> None: ...
    def rm(self, path: Sequence[str]) -> None: ...
    def rm_file(self, path: str) -> None: ...
    def open(self, path: str, mode: str, *, block_size: int) -> IO[bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One kind of remote storage behind fsspec.

    - `file_system`: the class of the client, if it is not the one that fsspec knows.
    - `conditional_put`: whether `pipe_file(mode="create")` of its client is one request, which the
      service itself refuses if the path exists.
    - `deletes_many`: whether the service deletes many files by one request of its client.
    - `failures`: the exception classes of the client for failures of the service or the network, in
      addition to Python's own.
    """

    protocol: str
    package: str
    file_system: str | None = None
    extra: str | None = None
    conditional_put: bool = False
    deletes_many: bool = True
    failures: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # option -> path in the settings
    constants: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def install_hint(self) -> str:
        """The command that installs the client's package."""
        return f"pip install '{f'lakecore[{self.extra}]' if self.extra else self.package}'"


_S3_FAILURES = (
    "botocore.exceptions.BotoCoreError",
    "botocore.exceptions.ClientError",
    "aiohttp.ClientError",
)

S3 = Service(
    protocol="s3",
    package="s3fs",
    extra="s3",
    conditional_put=True,  # If-None-Match: *
    failures=_S3_FAILURES,
    prefixes=("s3.", "s3a.", "fs.s3.", "fs.s3a."),
    names={
        "endpoint": "endpoint_url",
        "accesskey": "key",
        "accesskeyid": "key",
        "secretkey": "secret",
        "accesskeysecret": "secret",
        "sessiontoken": "token",
        "securitytoken": "token",
        "token": "token",
        "profile": "profile",
        "awscredentialsprovider": "credentials_provider",
        "region": "client_kwargs.region_name",
        "endpointregion": "client_kwargs.region_name",
        "pathstyleaccess": "config_kwargs.s3.addressing_style",
        "connectionsslenabled": "use_ssl",
        "connectionmaximum": "config_kwargs.max_pool_connections",
    },
    # One request for each metadata file, instead of one for its size and one for its bytes.
    constants={"max_concurrency": 1},
)

GCS = Service(
    protocol="gcs",
    package="gcsfs",
    # fsspec registers another class. That class asks Google by gRPC for the kind of each bucket,
    # even for another endpoint, and has its own way of exclusive creation.
    file_system="gcsfs.core.GCSFileSystem",
    extra="gcs",
    conditional_put=True,  # ifGenerationMatch=0
    failures=(
        "gcsfs.retry.HttpError",
        "gcsfs.retry.ChecksumError",
        "google.auth.exceptions.GoogleAuthError",
        "aiohttp.ClientError",
    ),
    prefixes=("gs.", "fs.gs."),
    names={
        "authserviceaccountjsonkeyfile": "token",
        "authtype": "auth_type",
        "projectid": "project",
        "storagerooturl": "endpoint_url",
    },
)

AZURE = Service(
    protocol="abfs",
    package="adlfs",
    extra="azure",
    conditional_put=True,  # If-None-Match: *
    failures=("azure.core.exceptions.AzureError", "aiohttp.ClientError"),
    prefixes=("azure.", "fs.azure."),
    names={
        "accountkey": "account_key",
        "accountauthtype": "auth_type",
        "accountoauthprovidertype": "oauth_provider",
        "accountoauth2clientid": "client_id",
        "accountoauth2clientsecret": "client_secret",
        "accountoauth2clientendpoint": "oauth_endpoint",
        "endpoint": "endpoint",
        "sastoken": "sas_token",
        "sasfixedtoken": "sas_token",
    },
)

# Alibaba OSS, through its S3-compatible API, which ignores the condition of a put.
OSS = Service(
    protocol="s3",
    package="s3fs",
    extra="s3",
    deletes_many=False,  # OSS requires a checksum (Content-MD5) that S3 clients no longer send
    failures=_S3_FAILURES,
    prefixes=("oss.", "fs.oss."),
    names={
        "endpoint": "endpoint_url",
        "accesskeyid": "key",
        "accesskeysecret": "secret",
        "securitytoken": "token",
    },
    constants={
        "max_concurrency": 1,
        "config_kwargs": {
            "signature_version": "s3",  # the newer one sends bodies in chunks, which OSS refuses
            "s3": {"addressing_style": "virtual"},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    },
)

SERVICES: Mapping[str, Service] = {
    "s3": S3,
    "s3a": S3,
    "s3n": S3,
    "gs": GCS,
    "gcs": GCS,
    "abfs": AZURE,
    "abfss": AZURE,
    "wasb": AZURE,
    "wasbs": AZURE,
    "oss": OSS,
}


def connect(
    service: Service,
    settings: Mapping[str, Setting],
    timeouts: Timeouts = _TIMEOUTS,
    *,
    for_commits: bool = False,
) -> FileSystem:
    """A client of the service. With `for_commits`, it repeats requests as rarely as possible."""
    try:
        importlib.import_module(service.package)
    except ImportError as error:
        raise Unsupported(
            f"a package is missing; install it by {service.install_hint}", package=service.package
        ) from error
    address = _address(service, settings)
    if address is not None and not for_commits:
        check_reachable(address)
    if service is GCS:  # the client logs each refusal as an error with a traceback
        logging.getLogger("gcsfs").addFilter(_GCSFS_REFUSALS)
    arguments = with_timeouts(settings, service.package, timeouts, for_commits=for_commits)
    client = _client_class(service)(**arguments)
    give_up_early(client, service.package, timeouts, for_commits=for_commits)
    return client


def entries(service: Service, files: FileSystem, key: str) -> Iterator[Mapping[str, object]]:
    """What is directly below a directory, as `ls` of fsspec describes it.

    For a directory without files, `ls` of s3fs lists its parent, too: all partitions of a table.
    """
    if service.package != "s3fs":
        yield from files.ls(key, detail=True)
        return
    bucket, _, path = key.partition("/")
    request: dict[str, object] = {"Bucket": bucket, "Prefix": path and f"{path}/", "Delimiter": "/"}
    while True:
        page = files.call_s3("list_objects_v2", **request)
        for each in page.get("Contents", ()):
            name = f"{bucket}/{each['Key']}"
            yield {"name": name, "type": "file", "size": each["Size"], **each}
        for each in page.get("CommonPrefixes", ()):
            yield {"name": f"{bucket}/{each['Prefix']}", "type": "directory"}
        if not page.get("IsTruncated"):
            return
        request["ContinuationToken"] = page["NextContinuationToken"]


def _address(service: Service, settings: Mapping[str, Setting]) -> str | None:
    """The address of the server; None if it depends on the bucket."""
    endpoint = settings.get("endpoint_url")
    if isinstance(endpoint, str):
        return endpoint
    if service is GCS:
        # These variables redirect gcsfs to another server, which is not known here.
        redirected = ("STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_UNIVERSE_DOMAIN")
        return None if any(map(os.environ.get, redirected)) else "https://storage.googleapis.com"
    found = re.search(r"BlobEndpoint=([^;]+)", str(settings.get("connection_string", "")))
    if found is not None:
        return found[1]
    if service is AZURE and "account_name" in settings:
        host = settings.get("account_host", f"{settings['account_name']}.blob.core.windows.net")
        return f"https://{host}"
    return None


def _client_class(service: Service) -> Callable[..., FileSystem]:
    if service.file_system is None:
        known: Callable[..., FileSystem] = importlib.import_module("fsspec").get_filesystem_class(
            service.protocol
        )
        return known
    module, _, name = service.file_system.rpartition(".")
    own: Callable[..., FileSystem] = getattr(importlib.import_module(module), name)
    return own


class _ExpectedRefusals(logging.Filter):
    """Keeps expected refusals out of the log: a lost race, or a missing file."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return getattr(error, "code", None) not in {404, 412}


_GCSFS_REFUSALS = _ExpectedRefusals()


def client_failures(service: Service) -> tuple[type[Exception], ...]:
    """The exceptions of the client for failures of the service or the network."""
    classes: list[type[Exception]] = [OSError, ValueError, RuntimeError]  # of any client
    for name in service.failures:
        module, _, own_name = name.rpartition(".")
        classes.append(getattr(importlib.import_module(module), own_name))
    return tuple(classes)


def flag(option: str, text: str) -> bool:
    """The boolean value of an option."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise InvalidRequest("an option is neither true nor false", option=option, value=text)
