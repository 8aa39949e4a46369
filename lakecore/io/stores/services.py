"""What each remote storage supports, and its fsspec client.

`SERVICES` is the table: scheme of a URI -> `Service`. `service_settings.py` maps the options of a
catalog to the arguments of the client.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.connection_retries import give_up_early, with_timeouts
from lakecore.io.stores.reachable import check_reachable
from lakecore.io.stores.timeouts import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "AZURE",
    "GCS",
    "OSS",
    "S3",
    "SERVICES",
    "FileSystem",
    "Service",
    "Setting",
    "client_failures",
    "connect",
    "flag",
]

Setting: TypeAlias = "str | bool | int | dict[str, Setting]"

_TIMEOUTS = Timeouts()


class FileSystem(Protocol):
    """The part of an fsspec file system that lakecore uses. Paths have no scheme."""

    def cat_file(self, path: str) -> bytes: ...
    def exists(self, path: str) -> bool: ...
    def info(self, path: str) -> Mapping[str, object]: ...
    def isdir(self, path: str) -> bool: ...
    def ls(self, path: str, *, detail: bool) -> Sequence[Mapping[str, object]]: ...
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
