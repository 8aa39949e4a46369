"""Maps Paimon's options of a storage to the arguments of its fsspec client.

An option is recognised by the prefix of its service (`s3.`, `fs.s3a.`, ...) and the rest of its
name. Dots, dashes and case of the rest are ignored: Hadoop uses `access.key`, Paimon `access-key`,
Alibaba `accessKeyId`. A name with such a prefix that is not in the table of its service raises an
error: an ignored option would mislead.

Credentials in options take precedence over those in the environment.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.services import (
    ANSWER_OPTION,
    AZURE,
    GCS,
    OSS,
    S3,
    SERVICES,
    TIMEOUT_OPTIONS,
    Service,
    Setting,
    flag,
    timeouts_of,
)
from lakecore.options import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- hdfs options --------------------------------------------------------------------------------
# Converts the options of HDFS (Paimon's and Hadoop's keys) to settings of the client.
#
# - `hadoop-conf-dir`: the directory with `core-site.xml` and `hdfs-site.xml`. Without it, the
#   client reads the directory that the environment names: `HADOOP_CONF_DIR`, or
#   `HADOOP_HOME/etc/hadoop`.
# - `hadoop.KEY` sets KEY, as in Paimon; `dfs.*`, `hadoop.security.*` and `fs.defaultFS` need no
#   prefix. Options override files.
#
# INVARIANT: no option is accepted and ignored. A key that the client does not read raises
# `Unsupported`, which names the keys that it reads. Files may hold any keys, because servers read
# them too.

HDFS = "hdfs"
HADOOP_CONF_DIR = "hadoop-conf-dir"
PREFIX = "hadoop."
DEFAULT_FS = "fs.defaultFS"

# The keys that the client reads. The name of a name service follows a key that ends with a dot.
KEYS = (
    DEFAULT_FS,
    "dfs.client.block.write.replace-datanode-on-failure.best-effort",
    "dfs.client.block.write.replace-datanode-on-failure.enabled",
    "dfs.client.block.write.replace-datanode-on-failure.policy",
    "dfs.client.failover.max.attempts",
    "dfs.client.failover.proxy.provider.",
    "dfs.client.failover.random.order.",
    "dfs.client.failover.resolve-needed.",
    "dfs.client.failover.resolver.useFQDN.",
    "dfs.client.failover.sleep.base.millis",
    "dfs.client.failover.sleep.max.millis",
    "dfs.client.socket-timeout",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
)
# The key that lists the name services.
NAMESERVICES = "dfs.nameservices"


_SOCKET_TIMEOUT = "dfs.client.socket-timeout"
ATTEMPTS_OPTION = "dfs.client.failover.max.attempts"
ATTEMPTS_OF_ONE = 2
"""The connection attempts to a single name node; Hadoop's default, 15, takes three minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsSettings:
    """The HDFS address `hdfs://HOST`, the client's settings, and Hadoop's configuration directory.

    The directory holds `core-site.xml` and `hdfs-site.xml`.
    """

    address: str
    config: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None


def is_hdfs_option(option: str) -> bool:
    """Whether a catalog option is an option of Hadoop or HDFS."""
    return option in {HADOOP_CONF_DIR, DEFAULT_FS} or option.startswith((PREFIX, "dfs."))


def check_hdfs_options(options: Mapping[str, str]) -> None:
    """Raise Unsupported for a key of Hadoop that the client does not read."""
    for option in filter(is_hdfs_option, options):
        if option != HADOOP_CONF_DIR:
            _hadoop_key(option)


def hdfs_settings(uri: str, options: Mapping[str, str]) -> HdfsSettings:
    """The settings of the client for paths below `hdfs://HOST/...`.

    Raises InvalidRequest if `hadoop-conf-dir` is not a directory, or if two options set one key.
    """
    check_hdfs_options(options)
    config: dict[str, str] = {}
    for option in filter(is_hdfs_option, options):
        if option == HADOOP_CONF_DIR:
            continue
        key = _hadoop_key(option)
        if config.setdefault(key, options[option]) != options[option]:
            raise InvalidRequest("two options set the same value differently; keep one", option=key)
    config.pop(NAMESERVICES, None)
    directory = options.get(HADOOP_CONF_DIR)
    if directory is not None:
        directory = os.path.expanduser(directory)
        if not os.path.isdir(directory):
            raise InvalidRequest(
                "the directory with core-site.xml and hdfs-site.xml is not there",
                option=HADOOP_CONF_DIR,
                value=directory,
            )
    authority = uri.partition("://")[2].partition("/")[0]
    if ":" in authority:
        config.setdefault(ATTEMPTS_OPTION, str(ATTEMPTS_OF_ONE))
    if ":" in authority or ANSWER_OPTION in options:
        config.setdefault(_SOCKET_TIMEOUT, str(round(timeouts_of(options).answer * 1000)))
    return HdfsSettings(address=f"hdfs://{authority}", config=config, directory=directory)


def _hadoop_key(option: str) -> str:
    key = option
    if (
        option.startswith(PREFIX) and not option.startswith("hadoop.security.")
    ) or option.startswith(PREFIX + PREFIX):
        key = option.removeprefix(PREFIX)
    if key == NAMESERVICES:
        return key
    if not any(key.startswith(each) if each.endswith(".") else key == each for each in KEYS):
        raise Unsupported(
            "the client of HDFS does not read this option of Hadoop",
            option=option,
            known=[
                HADOOP_CONF_DIR,
                NAMESERVICES,
                *(f"{each}NAME" if each.endswith(".") else each for each in KEYS),
            ],
        )
    return key


# --- service settings ----------------------------------------------------------------------------

Settings: TypeAlias = dict[str, Setting]

_NUMBERS = {"config_kwargs.max_pool_connections"}
_FLAGS = {"use_ssl", "config_kwargs.s3.addressing_style"}

# Names of Azure's options that may end with an account: `account.key.ACCOUNT.dfs.core.windows.net`.
_OF_ACCOUNT = (
    "account.key",
    "account.auth.type",
    "account.oauth.provider.type",
    "account.oauth2.client.id",
    "account.oauth2.client.secret",
    "account.oauth2.client.endpoint",
    "sas.fixed.token",
)
_AZURE_HOST = "blob.core.windows.net"


def is_storage_option(option: str) -> bool:
    """Whether the option belongs to a storage, as `s3.endpoint` does."""
    return (
        option in TIMEOUT_OPTIONS
        or is_hdfs_option(option)
        or any(option.startswith(service.prefixes) for service in SERVICES.values())
    )


def check_storage_options(options: Mapping[str, str]) -> None:
    """Raise an error for an unknown option of any storage, even of one that is not used."""
    check_hdfs_options(options)
    timeouts_of(options)
    for option in options:
        for service in SERVICES.values():
            prefix = _prefix(service, option)
            if prefix is not None:
                _place(service, prefix, _without_account(service, option, prefix)[0], option)


def client_settings(service: Service, uri: str, options: Mapping[str, str]) -> Settings:
    """The arguments of the service's fsspec client, from the options. Listings are not cached."""
    account = _account(uri, options) if service is AZURE else ""
    places: dict[str, tuple[str, str]] = {}  # argument -> the option that sets it, and its text
    for option, text in options.items():
        prefix = _prefix(service, option)
        if prefix is None:
            continue
        name, owner = _without_account(service, option, prefix)
        if owner and owner != account.partition(".")[0]:
            continue  # an option for another account
        place = _place(service, prefix, name, option)
        other, other_text = places.setdefault(place, (option, text))
        if other_text != text:
            raise InvalidRequest(
                "two options set the same value differently; keep one", options=[other, option]
            )
    settings: Settings = {"use_listings_cache": False}
    for name, constant in service.constants.items():
        settings[name] = dict(constant) if isinstance(constant, dict) else constant
    for place, (option, text) in places.items():
        _set(settings, place, _value(place, option, text))
    for known, complete in _COMPLETIONS:
        if service is known:
            complete(settings, account)
    return settings


def _prefix(service: Service, option: str) -> str | None:
    known = (prefix for prefix in service.prefixes if option.startswith(prefix))
    return max(known, key=len, default=None)


def _without_account(service: Service, option: str, prefix: str) -> tuple[str, str]:
    """The name of an option without its prefix, and the account at its end (or an empty string)."""
    bare = option.removeprefix(prefix)
    if service is AZURE:
        for name in _OF_ACCOUNT:
            if bare.startswith(f"{name}."):
                return name, bare.removeprefix(f"{name}.").partition(".")[0]
    return bare, ""


def _place(service: Service, prefix: str, name: str, option: str) -> str:
    place = service.names.get(re.sub(r"[-._]", "", name).lower())
    if place is None:
        known = {each: prefix + each for each in service.names}
        near = nearest(name, known)
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


def _set(settings: Settings, place: str, value: Setting) -> None:
    *outer, last = place.split(".")
    for name in outer:
        inner = settings.setdefault(name, {})
        assert isinstance(inner, dict), f"{name} is stated in two places"
        settings = inner
    settings[last] = value


def _taken(settings: Settings, name: str) -> str:
    """Remove a value from the settings and return it; empty if it is absent."""
    value = settings.pop(name, "")
    assert isinstance(value, str), f"{name} is a text"
    return value


# ----------------------------------------------------------------------------------- S3 and OSS

_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_BY_KEYS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_BY_ENVIRONMENT = ("DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider")


def _complete_s3(settings: Settings, _: str) -> None:
    _add_scheme(settings)
    provider = _taken(settings, "credentials_provider").strip()
    name = provider.rpartition(".")[2]
    has_keys = "key" in settings or "secret" in settings
    if name == _ANONYMOUS:
        if has_keys:
            raise InvalidRequest(
                "the options ask for anonymous access, and give keys", option=_provider_option()
            )
        settings["anon"] = True
    elif (name in _BY_KEYS and not has_keys) or (name in _BY_ENVIRONMENT and has_keys):
        needs = "needs keys, and" if name in _BY_KEYS else "takes no keys, but"
        raise InvalidRequest(
            f"the provider of credentials {needs} the options give "
            f"{'some' if has_keys else 'none'}",
            option=_provider_option(),
            value=provider,
        )
    elif provider and name not in {*_BY_KEYS, *_BY_ENVIRONMENT}:
        raise Unsupported(
            "this provider of credentials is not supported",
            option=_provider_option(),
            value=provider,
            supported=[_ANONYMOUS, *_BY_KEYS, *_BY_ENVIRONMENT],
        )
    if ("key" in settings) != ("secret" in settings):
        raise InvalidRequest("an access key and a secret key are given together or not at all")
    if "profile" in settings and (has_keys or provider):
        raise InvalidRequest(
            "a profile names the credentials: remove the other options that do", option="s3.profile"
        )


def _provider_option() -> str:
    return "fs.s3a.aws.credentials.provider"


def _complete_oss(settings: Settings, _: str) -> None:
    """Use the hosts of OSS's S3 API, public and internal, which differ from its normal hosts."""
    _add_scheme(settings)
    endpoint = settings.get("endpoint_url")
    if not isinstance(endpoint, str):
        raise InvalidRequest(
            "OSS needs the address of its region",
            option="fs.oss.endpoint",
            example="oss-cn-hangzhou.aliyuncs.com",
        )
    scheme, _, host = endpoint.partition("://")
    if host.startswith("oss-") and host.rstrip("/").endswith(".aliyuncs.com"):
        settings["endpoint_url"] = f"{scheme}://s3.{host}"


def _add_scheme(settings: Settings) -> None:
    """Add a scheme to bare host names, which Hadoop allows as endpoints and botocore does not."""
    endpoint = settings.get("endpoint_url")
    if isinstance(endpoint, str) and "://" not in endpoint:
        scheme = "http" if settings.get("use_ssl") is False else "https"
        settings["endpoint_url"] = f"{scheme}://{endpoint}"


# ------------------------------------------------------------------------------------------ GCS

_GCS_TOKENS = {
    "APPLICATION_DEFAULT": "google_default",
    "COMPUTE_ENGINE": "cloud",
    "UNAUTHENTICATED": "anon",
}
_BY_KEY_FILE = "SERVICE_ACCOUNT_JSON_KEYFILE"


def _complete_gcs(settings: Settings, _: str) -> None:
    root = _taken(settings, "endpoint_url")
    if root:
        settings["endpoint_url"] = root.rstrip("/")
    kind, key_file = _taken(settings, "auth_type").strip(), settings.get("token")
    option = "fs.gs.auth.type"
    if kind in _GCS_TOKENS:
        if key_file is not None:
            raise InvalidRequest(
                "a key file is given, but the kind of authentication takes none",
                option=option,
                value=kind,
            )
        settings["token"] = _GCS_TOKENS[kind]
    elif kind == _BY_KEY_FILE and key_file is None:
        raise InvalidRequest(
            "the path of the key file is missing", option="fs.gs.auth.service.account.json.keyfile"
        )
    elif kind not in {"", _BY_KEY_FILE}:
        raise Unsupported(
            "this kind of authentication is not supported",
            option=option,
            value=kind,
            supported=[*_GCS_TOKENS, _BY_KEY_FILE],
        )


# ---------------------------------------------------------------------------------------- Azure


def _account(uri: str, options: Mapping[str, str]) -> str:
    """The host of the account, from `abfss://container@HOST/` or from the options.

    Empty if neither states it.
    """
    authority = uri.partition("://")[2].partition("/")[0]
    hosts = {authority.partition("@")[2]} - {""}
    if not hosts:
        for option in options:
            prefix = _prefix(AZURE, option)
            name, owner = ("", "") if prefix is None else _without_account(AZURE, option, prefix)
            if owner:
                hosts.add(option.partition(f"{name}.")[2])
    if len({host.partition(".")[0] for host in hosts}) > 1:
        raise Unsupported(
            "the options name several storage accounts, and the URI names none; write "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/",
            accounts=sorted(hosts),
        )
    return min(hosts, default="")


def _complete_azure(settings: Settings, account: str) -> None:
    name, _, suffix = account.partition(".")
    endpoint = _taken(settings, "endpoint")
    host = suffix.replace("dfs.", "blob.", 1) or _AZURE_HOST
    if not endpoint and name:
        endpoint = f"https://{name}.{host}"
    _check_azure_kind(settings)
    key, signature = _taken(settings, "account_key"), _taken(settings, "sas_token")
    if key and signature:
        raise InvalidRequest("an account key and a SAS token are given; keep one")
    if (key or signature) and not name:
        raise InvalidRequest(
            "the credentials are of an account that nothing names",
            example="fs.azure.account.key.ACCOUNT.dfs.core.windows.net",
        )
    # Pass the key as a connection string: otherwise the client would prefer a connection string
    # from the environment.
    if key:
        settings["connection_string"] = (
            f"DefaultEndpointsProtocol={endpoint.partition('://')[0]};AccountName={name};"
            f"AccountKey={key};BlobEndpoint={endpoint};"
        )
    elif signature:
        settings["connection_string"] = (
            f"BlobEndpoint={endpoint};SharedAccessSignature={signature.removeprefix('?')}"
        )
    if name:
        settings["account_name"] = name
        if host != _AZURE_HOST:
            settings["account_host"] = f"{name}.{host}"


def _check_azure_kind(settings: Settings) -> None:
    """Check that the credentials are of the kind that the options name."""
    kind = _taken(settings, "auth_type").strip()
    provider = _taken(settings, "oauth_provider").rpartition(".")[2]
    endpoint = _taken(settings, "oauth_endpoint")
    option = "fs.azure.account.auth.type"
    needs = {"SharedKey": "account_key", "SAS": "sas_token", "OAuth": "", "": ""}
    if kind not in needs:
        raise Unsupported(
            "this kind of authentication is not supported",
            option=option,
            value=kind,
            supported=[each for each in needs if each],
        )
    if needs[kind] and needs[kind] not in settings:
        raise InvalidRequest(
            "the options do not give the credentials of this kind of authentication",
            option=option,
            value=kind,
        )
    if provider not in {"", "ClientCredsTokenProvider", "MsiTokenProvider"}:
        raise Unsupported(
            "this provider of tokens is not supported",
            option="fs.azure.account.oauth.provider.type",
            value=provider,
            supported=["ClientCredsTokenProvider", "MsiTokenProvider"],
        )
    if "client_id" in settings or "client_secret" in settings or endpoint:
        tenant = re.fullmatch(r"https://[^/]+/([^/]+)/oauth2(?:/v2\.0)?/token", endpoint)
        if tenant is None or not {"client_id", "client_secret"} <= settings.keys():
            raise InvalidRequest(
                "OAuth needs the client's id, its secret and the address that gives tokens",
                options=[
                    f"fs.azure.account.oauth2.client.{each}"
                    for each in ("id", "secret", "endpoint")
                ],
                example="https://login.microsoftonline.com/TENANT/oauth2/token",
            )
        settings["tenant_id"] = tenant[1]


_COMPLETIONS: tuple[tuple[Service, Callable[[Settings, str], None]], ...] = (
    (S3, _complete_s3),
    (OSS, _complete_oss),
    (GCS, _complete_gcs),
    (AZURE, _complete_azure),
)
