"""What each remote storage supports, and how Paimon's catalog options map to its fsspec client.

`SERVICES` is the table: scheme of a URI -> `Service`. An option is recognised by its prefix (`s3.`,
`fs.s3a.`, ...) and the rest of its name, without regard to dots, dashes and case: Hadoop uses
`access.key`, Paimon `access-key`, Alibaba `accessKeyId`. A name with such a prefix that is not in
the table raises an error, because an option that is accepted and ignored misleads.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.options import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "SERVICES",
    "FileSystem",
    "Service",
    "Setting",
    "check_storage_options",
    "client_failures",
    "client_settings",
    "connect",
    "flag",
]

Setting: TypeAlias = "str | bool | int | dict[str, Setting]"


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

    - `conditional_put`: whether `pipe_file(mode="create")` of its client is one request, which the
      service itself refuses if the path exists.
    - `failures`: the exception classes of the client for failures of the service or the network, in
      addition to Python's own.
    """

    protocol: str
    package: str
    extra: str | None = None
    conditional_put: bool = False
    failures: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # option -> path in the settings
    constants: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def install_hint(self) -> str:
        """The command that installs the client's package."""
        return f"pip install '{f'lakecore[{self.extra}]' if self.extra else self.package}'"


_S3 = Service(
    protocol="s3",
    package="s3fs",
    extra="s3",
    conditional_put=True,  # If-None-Match: *
    failures=(
        "botocore.exceptions.BotoCoreError",
        "botocore.exceptions.ClientError",
        "aiohttp.ClientError",
    ),
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
        "region": "client_kwargs.region_name",
        "endpointregion": "client_kwargs.region_name",
        "pathstyleaccess": "config_kwargs.s3.addressing_style",
        "connectionsslenabled": "use_ssl",
        "connectionmaximum": "config_kwargs.max_pool_connections",
    },
    # One request for each metadata file, instead of one for its size and one for its bytes.
    constants={"max_concurrency": 1},
)

_GCS = Service(
    protocol="gcs",
    package="gcsfs",
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
        "projectid": "project",
    },
)

_AZURE = Service(
    protocol="abfs",
    package="adlfs",
    extra="azure",
    conditional_put=True,  # If-None-Match: *
    failures=("azure.core.exceptions.AzureError", "aiohttp.ClientError"),
    prefixes=("azure.", "fs.azure."),
    names={
        "accountkey": "account_key",
        "sastoken": "sas_token",
        "accountoauth2clientid": "client_id",
        "accountoauth2clientsecret": "client_secret",
    },
)

_OSS = Service(
    protocol="oss",
    package="ossfs",
    prefixes=("oss.", "fs.oss."),
    names={
        "endpoint": "endpoint",
        "accesskeyid": "key",
        "accesskeysecret": "secret",
        "securitytoken": "token",
    },
)

SERVICES: Mapping[str, Service] = {
    "s3": _S3,
    "s3a": _S3,
    "s3n": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "oss": _OSS,
}

_NUMBERS = {"config_kwargs.max_pool_connections"}
_FLAGS = {"use_ssl", "config_kwargs.s3.addressing_style"}


def check_storage_options(options: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an unknown option of any storage, even of one that is not used."""
    for option in options:
        for service in SERVICES.values():
            prefix = _prefix(service, option)
            if prefix is not None:
                _place(service, option, prefix)


def client_settings(service: Service, uri: str, options: Mapping[str, str]) -> dict[str, Setting]:
    """The arguments of the service's fsspec client: no cached listings, then the options."""
    places: dict[str, tuple[str, str]] = {}  # place -> the option that fills it, and its text
    for option, text in options.items():
        prefix = _prefix(service, option)
        if prefix is None:
            continue
        place = _place(service, option, prefix)
        other, other_text = places.setdefault(place, (option, text))
        if other_text != text:
            raise InvalidRequest(
                "two options set the same value differently; keep one", options=[other, option]
            )
    settings: dict[str, Setting] = {"use_listings_cache": False, **service.constants}
    for place, (option, text) in places.items():
        _set(settings, place, _value(place, option, text))
    if service is _S3:
        _complete_s3(settings)
    if service is _AZURE:
        _complete_azure(settings, uri, options)
    return settings


def connect(
    service: Service, settings: Mapping[str, Setting], *, for_commits: bool = False
) -> FileSystem:
    """A client of the service; one for commits repeats requests as little as possible."""
    try:
        importlib.import_module(service.package)
    except ImportError as error:
        raise Unsupported(
            f"a package is missing; install it by {service.install_hint}", package=service.package
        ) from error
    arguments = dict(settings)
    once = for_commits and service is _S3
    if once:
        config = arguments.get("config_kwargs", {})
        assert isinstance(config, dict), "botocore's config is a mapping"
        arguments["config_kwargs"] = {**config, "retries": {"total_max_attempts": 1}}
    client = importlib.import_module("fsspec").filesystem(service.protocol, **arguments)
    if once:
        client.retries = 1  # s3fs repeats requests in addition to botocore
    return cast("FileSystem", client)


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


def _prefix(service: Service, option: str) -> str | None:
    known = (prefix for prefix in service.prefixes if option.startswith(prefix))
    return max(known, key=len, default=None)


def _place(service: Service, option: str, prefix: str) -> str:
    bare = option.removeprefix(prefix)
    if service is _AZURE and bare.startswith("account.key."):  # the account follows
        bare = "account.key"
    place = service.names.get(re.sub(r"[-._]", "", bare).lower())
    if place is None:
        known = {name: prefix + name for name in service.names}
        near = nearest(bare, known)
        hint = {"did_you_mean": near[0]} if near else {"known": list(known.values())}
        raise InvalidRequest("unknown storage option", option=option, **hint)
    return place


def _value(place: str, option: str, text: str) -> Setting:
    if place in _NUMBERS:
        if not text.strip().isdecimal():
            raise InvalidRequest("an option is not a number", option=option, value=text)
        return int(text)
    if place not in _FLAGS:
        return text
    switched_on = flag(option, text)
    if place == "config_kwargs.s3.addressing_style":
        return "path" if switched_on else "auto"
    return switched_on


def _set(settings: dict[str, Setting], place: str, value: Setting) -> None:
    *outer, last = place.split(".")
    for name in outer:
        inner = settings.setdefault(name, {})
        assert isinstance(inner, dict), f"{name} is stated in two places"
        settings = inner
    settings[last] = value


def _complete_s3(settings: dict[str, Setting]) -> None:
    """Add a scheme to bare host names, which Hadoop allows as endpoints and botocore does not."""
    endpoint = settings.get("endpoint_url")
    if isinstance(endpoint, str) and "://" not in endpoint:
        scheme = "http" if settings.get("use_ssl") is False else "https"
        settings["endpoint_url"] = f"{scheme}://{endpoint}"


def _complete_azure(settings: dict[str, Setting], uri: str, options: Mapping[str, str]) -> None:
    """Set the account: that of `abfss://container@account.host/`, or of the key option's name."""
    authority = uri.partition("://")[2].partition("/")[0]
    hosts = {authority.partition("@")[2]} - {""}
    keys = [option for option in options if ".account.key." in f".{option}"]
    hosts |= {key.partition("account.key.")[2] for key in keys} if not hosts else set()
    if len(hosts) > 1:
        raise Unsupported(
            "the options name several storage accounts for one warehouse", accounts=sorted(hosts)
        )
    for host in hosts:
        settings["account_name"] = host.partition(".")[0]
