"""The options of a REST catalog, checked, and merged with those of its server.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server sends defaults and overrides. The user's options take precedence over the defaults, and
the overrides take precedence over the user's options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.catalog.options import (
    METASTORE,
    TABLE_DEFAULT,
    WAREHOUSE,
    check_kerberos,
    is_access_option,
    is_storage_option,
    of_process,
)
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.services import flag
from lakecore.masking import masked_options
from lakecore.options import NEVER_STORED, nearest, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RestOptions", "merged_options", "parse_rest_options"]

URI = "uri"
PREFIX = "prefix"
TOKEN = "token"  # noqa: S105  the name of an option
TOKEN_PROVIDER = "token.provider"  # noqa: S105  the name of an option
DATA_TOKEN = "data-token.enabled"  # noqa: S105  the name of an option
HEADER = "header."
BEAR, DLF = "bear", "dlf"

_KNOWN = (
    METASTORE,
    WAREHOUSE,
    URI,
    TOKEN,
    TOKEN_PROVIDER,
    DATA_TOKEN,
    "catalog-options-table.enabled",
    "dlf.access-key-id",
    "dlf.access-key-secret",
    "dlf.oss-endpoint",
    "dlf.region",
    "dlf.security-token",
    "dlf.signing-algorithm",
    "dlf.token-ecs-metadata-url",
    "dlf.token-ecs-role-name",
    "dlf.token-loader",
    "dlf.token-path",
)
# Options of features that lakecore does not have, with the values that switch the feature off.
_FIXED = {
    "cache-enabled": ("false",),
    "case-sensitive": ("true",),
    "io-cache.enabled": ("false",),
    "local-cache.enabled": ("false",),
    "lock.enabled": ("false",),
    "resolving-file-io.enabled": ("false",),
    "rest.commit.retry-acquire-lock": ("false",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """The options of one catalog. `warehouse` is a name that the server knows, or empty.

    `given` are the options of the user; `texts` are the options merged with those of the server.
    """

    given: Mapping[str, str]
    texts: Mapping[str, str]
    uri: str
    warehouse: str

    @property
    def prefix(self) -> str:
        """The prefix of every path, which the server chooses."""
        return self.texts.get(PREFIX, "")

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers of every request."""
        return {
            key.removeprefix(HEADER): text
            for key, text in self.texts.items()
            if key.startswith(HEADER)
        }

    @property
    def table_defaults(self) -> Mapping[str, str]:
        """The default options of new tables."""
        return {
            key.removeprefix(TABLE_DEFAULT): text
            for key, text in self.texts.items()
            if key.startswith(TABLE_DEFAULT)
        }

    @property
    def asks_data_tokens(self) -> bool:
        """Whether the server gives each table its own credentials for the storage."""
        return flag(DATA_TOKEN, self.texts.get(DATA_TOKEN, "false"))

    @property
    def storage(self) -> Mapping[str, str]:
        """The options of the storage services."""
        return {key: text for key, text in self.texts.items() if is_storage_option(key)}

    def __repr__(self) -> str:
        """The options, with secrets hidden."""
        return f"RestOptions({masked_options(self.texts)!r})"


def parse_rest_options(given: Mapping[str, str]) -> RestOptions:
    """The checked options of the user.

    Raises InvalidRequest for an unknown or missing key, Unsupported for a feature that lakecore
    does not have.
    """
    uri = given.get(URI, "").strip().rstrip("/")
    if not uri:
        raise InvalidRequest("a REST catalog needs the address of its server", option=URI)
    if "://" not in uri:
        uri = f"http://{uri}"
    check_kerberos(given)
    for key, text in given.items():
        _check(key, text)
    options = RestOptions(
        given=dict(given), texts=dict(given), uri=uri, warehouse=given.get(WAREHOUSE, "").strip()
    )
    parse_options(options.table_defaults, table="(table-default)", creating=True)
    return options


def merged_options(
    mine: RestOptions, defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> RestOptions:
    """The options of the user, merged with those that the server has sent.

    What the process allows is stated by the user alone.
    """
    merged = {**defaults, **mine.texts, **overrides}
    served = {key: text for key, text in merged.items() if key not in NEVER_STORED}
    return replace(mine, texts=served | of_process(mine.texts))


def _check(key: str, text: str) -> None:
    if key in _FIXED:
        if text.strip().lower() not in _FIXED[key]:
            raise Unsupported(
                "the catalog option is not supported", option=key, value=text, supported=_FIXED[key]
            )
        return
    if key in _KNOWN or key.startswith((HEADER, TABLE_DEFAULT)) or is_access_option(key):
        return
    near = nearest(key, {each: each for each in (*_KNOWN, *_FIXED)})
    raise InvalidRequest(
        "unknown option of a REST catalog; options of new tables begin with table-default",
        option=key,
        **({"did_you_mean": near[0]} if near else {"known": _KNOWN}),
    )


def texts_of(reply: Mapping[str, object], key: str) -> dict[str, str]:
    """The options of the server, without nulls."""
    found = reply.get(key)
    if not isinstance(found, dict):
        return {}
    return {str(k): str(v) for k, v in found.items() if v is not None}
