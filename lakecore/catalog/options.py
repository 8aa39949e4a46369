"""The options of a catalog: Paimon's keys with string values, parsed once.

INVARIANT: no option is accepted and ignored. An unknown key raises an error that names the nearest
known key. A Paimon key with a value that this catalog does not support raises `Unsupported`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.service_settings import is_storage_option
from lakecore.io.stores.services import flag
from lakecore.masking import masked_options
from lakecore.options import (
    DURATION,
    NEVER_STORED,
    OptionValue,
    below,
    nearest,
    option_texts,
    parse_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "FILESYSTEM",
    "METASTORE",
    "WAREHOUSE",
    "CatalogOptions",
    "OptionReader",
    "check_kerberos",
    "is_access_option",
    "is_storage_option",
    "of_process",
    "parse_catalog_options",
]

WAREHOUSE = "warehouse"
METASTORE = "metastore"
SINGLE_WRITER = "commit.single-writer"
TABLE_DEFAULT = "table-default."
FILESYSTEM = "filesystem"

# Options that this catalog knows, with the values that it supports.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "allow-upper-case": ("true",),
    "cache-enabled": ("false",),
    "case-sensitive": ("true",),
    "catalog-options-table.enabled": ("true", "false"),
    "format-table.enabled": ("false",),
    "local-cache.enabled": ("false",),
    "lock.enabled": ("false",),
    "resolving-file-io.enabled": ("false",),
    "table.type": ("managed",),
}

_LOGIN = "security.kerberos.login."
_KERBEROS = (
    "security.",
    "hive.metastore.kerberos.",
    "hive.metastore.sasl.",
    "hive.metastore.client.kerberos.",
)

# Keys that only affect a metastore, a lock or a cache that this catalog does not have.
_FOREIGN = (
    "cache.",
    "client-pool-size",
    "file-io.allow-cache",
    "hadoop-conf-loader",
    "hive-conf-dir",
    "jdbc.",
    "local-cache.",
    "lock",
    "sync-all-properties",
    "token",
    "uri",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """The options that were set. `table_defaults`: the default options of new tables."""

    texts: Mapping[str, str] = field(default_factory=dict)
    warehouse: str
    table_defaults: Mapping[str, str] = field(default_factory=dict)
    single_writer: bool = False

    def __repr__(self) -> str:
        """The options, with secrets hidden."""
        return f"CatalogOptions({masked_options(self.texts)!r}, warehouse={self.warehouse!r})"


@dataclass(frozen=True, slots=True)
class OptionReader:
    """Reads typed values of catalog options. A bad value raises InvalidRequest."""

    texts: Mapping[str, str] = field(repr=False)

    def text(self, key: str, default: str) -> str:
        """The value of an option as a string; `default` if missing or blank."""
        return self.texts.get(key, "").strip() or default

    def flag(self, key: str, *, default: bool) -> bool:
        """The value of an option that is true or false."""
        return flag(key, self.texts.get(key, str(default)))

    def integer(self, key: str, default: int, *, least: int) -> int:
        """The value of an option that is a whole number."""
        text = self.texts.get(key, str(default)).strip()
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise InvalidRequest(
                "an option is not a whole number, or too small", option=key, value=text, least=least
            )
        return int(text)

    def duration_ms(self, key: str, default: str) -> int:
        """A duration such as `8 min`, in milliseconds."""
        text = self.texts.get(key, default)
        try:
            return DURATION.parse(text)
        except ValueError as error:
            raise InvalidRequest(
                "an option is not a duration", option=key, value=text, expected=str(error)
            ) from error


def parse_catalog_options(
    given: Mapping[str, OptionValue], *, own: Sequence[str] = (), prefixes: Sequence[str] = ()
) -> CatalogOptions:
    """The typed options that every catalog has.

    `own`: further keys that the catalog reads; `prefixes`: prefixes of such keys. Raises
    InvalidRequest for an unknown key or a bad value, Unsupported for a feature that the catalog
    does not have.
    """
    options = option_texts(given)
    warehouse = options.get(WAREHOUSE, "").rstrip()
    if not warehouse.strip():
        raise InvalidRequest("the catalog has no warehouse; give it a path", option=WAREHOUSE)
    catalog = options.get(METASTORE, FILESYSTEM)
    check_kerberos(options)
    for key, text in options.items():
        if key not in own and not key.startswith(tuple(prefixes)):
            _check(key, text, catalog, own)
    defaults = below(options, TABLE_DEFAULT)
    parse_options(defaults, table="(table-default)", creating=True)
    return CatalogOptions(
        texts=dict(options),
        warehouse=warehouse,
        table_defaults=defaults,
        single_writer=flag(SINGLE_WRITER, options.get(SINGLE_WRITER, "false")),
    )


def is_access_option(key: str) -> bool:
    """Whether the option says how, or where, a process may reach files, and is never stored."""
    return key in NEVER_STORED or is_storage_option(key)


def of_process(options: Mapping[str, str]) -> dict[str, str]:
    """What the process allows the tables of a catalog, as dynamic options of each."""
    return {key: text for key, text in options.items() if key in NEVER_STORED}


def check_kerberos(options: Mapping[str, str]) -> None:
    """Raise Unsupported for an option of a Kerberos login, which lakecore does not perform.

    The error states the command that gets a ticket for the HDFS client.
    """
    key = next((key for key in options if key.startswith(_KERBEROS)), None)
    if key is None:
        return
    keytab, principal = (options.get(f"{_LOGIN}{each}", "") for each in ("keytab", "principal"))
    command = shlex.join(("kinit", "-kt", keytab or "KEYTAB", principal or "PRINCIPAL"))
    raise Unsupported(
        f"lakecore does not log in by Kerberos: for HDFS, get a ticket by `{command}`, take the "
        "options of the login away, and set hadoop.security.authentication to kerberos; a Hive "
        "Metastore with Kerberos cannot be used",
        option=key,
    )


def _check(key: str, text: str, catalog: str, further: Sequence[str]) -> None:
    own = (WAREHOUSE, METASTORE, SINGLE_WRITER)
    if key in own or key.startswith(TABLE_DEFAULT) or is_access_option(key):
        return
    if key in _FIXED:
        if text.strip().lower() not in _FIXED[key]:
            raise Unsupported(
                "the catalog option is not supported", option=key, value=text, supported=_FIXED[key]
            )
        return
    if key.startswith(_FOREIGN):
        raise Unsupported(
            f"the catalog option is not supported: a {catalog} catalog has nothing to set by it",
            option=key,
        )
    known = (*own, *_FIXED, *further)
    near = nearest(key, {each: each for each in known})
    raise InvalidRequest(
        "unknown catalog option; options of new tables begin with table-default",
        option=key,
        **({"did_you_mean": near[0]} if near else {"known": known}),
    )
