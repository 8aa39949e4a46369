"""Translates the URI of a JDBC catalog and the properties `jdbc.*` to arguments of a Python driver.

The same URI and properties work in Java, Flink and Spark. Settings that Python drivers have too are
translated. Settings of Java drivers without an effect here are ignored (`permitMysqlScheme`). Any
other setting raises InvalidRequest.

Support for another database needs an entry here, in `database.py` and in `statements.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.open import locate
from lakecore.masking import is_secret, masked

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Address", "Argument", "parse_address"]

Argument: TypeAlias = "str | int | bool | dict[str, str]"

SQLITE, MYSQL, POSTGRESQL = "sqlite", "mysql", "postgresql"
_DIALECTS = {
    "sqlite": SQLITE,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "postgresql": POSTGRESQL,
}
_EXAMPLES = {
    SQLITE: "jdbc:sqlite:/data/catalog.db",
    MYSQL: "jdbc:mysql://host:3306/database",
    POSTGRESQL: "jdbc:postgresql://host:5432/database",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database: the dialect, its location, and the arguments of the driver.

    `repr` hides secrets.
    """

    dialect: str
    text: str
    host: str | None = None
    port: int | None = None
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    arguments: Mapping[str, Argument] = field(default_factory=dict, repr=False)


def parse_address(uri: str, properties: Mapping[str, str]) -> Address:
    """The database that a URI names; `properties` are the options `jdbc.*` without the prefix.

    Raises InvalidRequest for a malformed URI or an unknown setting, Unsupported for a database that
    lakecore does not know.
    """
    scheme, _, rest = uri.strip().partition(":")
    kind, _, place = rest.partition(":")
    if scheme.lower() != "jdbc" or not place:
        raise InvalidRequest(
            "the URI of a JDBC catalog begins with jdbc:",
            uri=masked(uri),
            examples=[*_EXAMPLES.values()],
        )
    dialect = _DIALECTS.get(kind.lower())
    if dialect is None:
        raise Unsupported(
            "no such database for a JDBC catalog", database=kind, supported=[*_EXAMPLES]
        )
    if dialect == SQLITE:
        return _sqlite(place, properties)
    return _server(dialect, uri, place, properties)


def _sqlite(place: str, properties: Mapping[str, str]) -> Address:
    path, question, settings = place.partition("?")
    if question or properties:
        raise InvalidRequest(
            "a SQLite catalog has no settings: the URI is jdbc:sqlite: and the path of a file",
            given=[*(f"jdbc.{key}" for key in properties), *([settings] if question else [])],
        )
    path = path.removeprefix("file:")
    if not path or path == ":memory:" or path.startswith(":"):
        raise Unsupported(
            "a SQLite catalog is a file: one in memory would be lost with its connection",
            uri=f"jdbc:sqlite:{place}",
            example=_EXAMPLES[SQLITE],
        )
    path = locate(path)
    return Address(dialect=SQLITE, text=f"jdbc:sqlite:{path}", database=path)


def _server(dialect: str, uri: str, place: str, properties: Mapping[str, str]) -> Address:
    example = _EXAMPLES[dialect]
    parts = urlsplit(f"{dialect}:{place}")
    if "@" in parts.netloc:
        raise InvalidRequest(
            "credentials in a URI are shown by tools and logs; "
            "give them as the options jdbc.user and jdbc.password",
            uri=masked(uri),
            example=example,
        )
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(
            "the port is not a number", uri=masked(uri), example=example
        ) from error
    database = unquote(parts.path.lstrip("/"))
    if not parts.hostname or not database or "/" in database:
        raise InvalidRequest(
            "the URI names a host and a database", uri=masked(uri), example=example
        )
    given = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **properties}
    user = given.pop("user", given.pop("username", None))
    password = given.pop("password", None)
    arguments: dict[str, Argument] = {}
    for key, value in given.items():
        arguments |= _argument(dialect, key, value)
    return Address(
        dialect=dialect,
        text=f"jdbc:{dialect}://{parts.netloc}/{database}",
        host=parts.hostname,
        port=port,
        database=database,
        user=user,
        password=password,
        arguments=arguments,
    )


def _argument(dialect: str, key: str, value: str) -> dict[str, Argument]:
    """The driver's arguments for one setting; empty for a setting of Java drivers only."""
    translate = _SETTINGS[dialect].get(key)
    if translate is None:
        raise InvalidRequest(
            "unknown setting of the database connection",
            option=f"jdbc.{key}",
            known=sorted([*_SETTINGS[dialect], "user", "password"]),
        )
    try:
        return translate(value.strip())
    except ValueError as error:
        raise InvalidRequest(
            "a setting of the database connection has a bad value",
            option=f"jdbc.{key}",
            value="***" if is_secret(key) else value,
            expected=str(error),
        ) from error


Translate: TypeAlias = Callable[[str], "dict[str, Argument]"]


def _seconds(*names: str, unit_ms: int) -> Translate:
    """A timeout in units of `unit_ms`, rounded up to whole seconds, which the drivers take."""

    def translate(text: str) -> dict[str, Argument]:
        if not text.isdecimal():
            raise ValueError("a whole number")
        seconds = -(-int(text) * unit_ms // 1000)
        return dict.fromkeys(names, seconds) if seconds else {}

    return translate


def _as(name: str) -> Translate:
    return lambda text: {name: text}


def _only_java(text: str) -> dict[str, Argument]:  # noqa: ARG001  the shape of Translate
    return {}


def _one_of(choices: Mapping[str, dict[str, Argument]]) -> Translate:
    def translate(text: str) -> dict[str, Argument]:
        found = choices.get(text.lower())
        if found is None:
            raise ValueError(f"one of {', '.join(choices)}")
        return found

    return translate


# PyMySQL encrypts the connection only if it gets SSL settings, which may be meaningless.
_ENCRYPTED: dict[str, Argument] = {"ssl": {"fake": "settings"}}

_SETTINGS: Mapping[str, Mapping[str, Translate]] = {
    MYSQL: {
        "permitMysqlScheme": _only_java,
        "nullCatalogMeansCurrent": _only_java,
        "allowPublicKeyRetrieval": _only_java,
        "useUnicode": _only_java,
        "characterEncoding": _one_of(
            {"utf8": {"charset": "utf8mb4"}, "utf-8": {"charset": "utf8mb4"}}
        ),
        "connectTimeout": _seconds("connect_timeout", unit_ms=1),
        "socketTimeout": _seconds("read_timeout", "write_timeout", unit_ms=1),
        "useSSL": _one_of({"false": {}, "true": _ENCRYPTED}),
        "sslMode": _one_of(
            {"disabled": {}, "disable": {}, "required": _ENCRYPTED, "trust": _ENCRYPTED}
        ),
    },
    POSTGRESQL: {
        "sslmode": _as("sslmode"),
        "sslrootcert": _as("sslrootcert"),
        "sslcert": _as("sslcert"),
        "sslkey": _as("sslkey"),
        "ApplicationName": _as("application_name"),
        "connectTimeout": _seconds("connect_timeout", unit_ms=1000),
        "currentSchema": lambda text: {"options": f"-csearch_path={text}"},
    },
}
