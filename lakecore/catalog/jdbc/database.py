"""Runs statements in transactions of a SQL database, with SQLAlchemy.

Only this module uses SQLAlchemy. SQLAlchemy and the drivers are imported when a catalog is opened.
Their errors are raised as `StorageError`, without secrets. If the database aborts a transaction
because of another one (a deadlock, a busy file), the transaction is repeated.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from lakecore.errors import InvalidRequest, StorageError, Unsupported, optional
from lakecore.io.stores.open import locate
from lakecore.io.stores.services import CONNECT_OPTION, Timeouts
from lakecore.masking import is_secret, mask_exception, masked

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from lakecore.io.ambient import Ambient


# --- address -------------------------------------------------------------------------------------
# Translates the URI of a JDBC catalog and the properties `jdbc.*` to arguments of a Python driver.
#
# The same URI and properties work in Java, Flink and Spark. Settings that Python drivers also have
# are translated. Settings of Java drivers without an effect here are ignored (`permitMysqlScheme`).
# Any other setting raises InvalidRequest.
#
# Another database needs an entry here, and in the statements of `metastore.py`.

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
    """A timeout in units of `unit_ms`, rounded up to whole seconds for the drivers."""

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


# --- database ------------------------------------------------------------------------------------

Statement: TypeAlias = "tuple[str, Mapping[str, object]]"

_DRIVERS = {SQLITE: "sqlite", MYSQL: "mysql+pymysql", POSTGRESQL: "postgresql+psycopg"}
_PACKAGES = {SQLITE: (), MYSQL: ("pymysql",), POSTGRESQL: ("psycopg",)}
_BUSY_SECONDS = 30.0
_imported = partial(optional, extra="jdbc", what="a JDBC catalog")
_ATTEMPTS = 8
_WAIT_SECONDS = 0.02
_TIMEOUTS = Timeouts()
_LOST_OUT = re.compile(r"^(40P01|40001) |^ \((1213|1205),|database is locked")
"""The error codes and the text of a transaction that was aborted because of another one."""


class _PyMySql(Protocol):
    _read_timeout: object


class _LostOut(StorageError):
    """The database aborted a transaction because of another one."""


class Database:
    """A pool of connections, opened at the first use, and pickled without connections."""

    def __init__(
        self, address: Address, pool_size: int, ambient: Ambient, timeouts: Timeouts = _TIMEOUTS
    ) -> None:
        self.address = address
        self._timeouts = timeouts
        self._pool_size = pool_size
        self._ambient = ambient
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        for package in ("sqlalchemy", *_PACKAGES[address.dialect]):
            _imported(package)

    def __repr__(self) -> str:
        return f"Database({self.address.text!r})"

    def __getstate__(self) -> dict[str, object]:
        """The state without connections: the process that unpickles it opens new ones."""
        return {**self.__dict__, "_engine": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def dialect(self) -> str:
        """`sqlite`, `mysql` or `postgresql`."""
        return self.address.dialect

    def rows(self, statement: str, values: Mapping[str, object]) -> list[tuple[str, ...]]:
        with self._plain_errors():
            text = _imported("sqlalchemy").text(statement)
            with self._connected().connect() as connection:
                return [tuple(row) for row in connection.execute(text, dict(values))]

    def change(self, *statements: Statement) -> int:
        """Run statements in one transaction. Returns the number of rows that the first changed."""
        counts = self._transaction(statements)
        assert counts is not None, "a broken key raises an error here"
        return counts

    def insert(self, *statements: Statement) -> int | None:
        """Run statements in one transaction. Returns the number of rows that the first changed.

        Returns None, and changes nothing, if a key already exists.
        """
        return self._transaction(statements, key_may_exist=True)

    def create(self, table: str, statement: str) -> None:
        """Create a table unless it exists."""
        if self.has_table(table):
            return
        try:
            self.change((statement, {}))
        except StorageError:
            # Another process may have created the table meanwhile.
            if not self.has_table(table):
                raise

    def has_table(self, table: str) -> bool:
        with self._plain_errors():
            return bool(_imported("sqlalchemy").inspect(self._connected()).has_table(table))

    def columns(self, table: str) -> frozenset[str]:
        """The names of the columns of a table, in lower case."""
        with self._plain_errors():
            found = _imported("sqlalchemy").inspect(self._connected()).get_columns(table)
            return frozenset(str(column["name"]).lower() for column in found)

    def _transaction(
        self, statements: Sequence[Statement], *, key_may_exist: bool = False
    ) -> int | None:
        sql = _imported("sqlalchemy")
        for attempt in range(_ATTEMPTS):
            try:
                with self._plain_errors():
                    try:
                        with self._connected().begin() as connection:
                            return _run(connection, statements)
                    except sql.exc.IntegrityError:
                        if key_may_exist:
                            return None
                        raise
            except _LostOut as error:
                if attempt + 1 == _ATTEMPTS:
                    raise StorageError(error.message, **error.facts) from error
            self._ambient.sleep(_WAIT_SECONDS * 2**attempt * (0.5 + self._ambient.random()))
        return None

    def _connected(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._connect()
                # Catalogs have no `close`: close the connections when the catalog is collected.
                weakref.finalize(self, self._engine.dispose)
            return self._engine

    def _connect(self) -> Engine:
        sql, address = _imported("sqlalchemy"), self.address
        url = sql.URL.create(
            _DRIVERS[address.dialect],
            username=address.user,
            password=address.password,
            host=address.host,
            port=address.port,
            database=address.database,
        )
        settings: dict[str, object]
        arguments: dict[str, object] = {**self._waits(), **address.arguments}
        after_login = _limited_login(arguments) if address.dialect == MYSQL else None
        if address.dialect == SQLITE:
            # Open the file for each use: a pool would keep a replaced file open.
            settings = {
                "poolclass": sql.pool.NullPool,
                "connect_args": {"timeout": _BUSY_SECONDS},
            }
        else:
            settings = {
                "pool_size": self._pool_size,
                "pool_pre_ping": True,  # replaces connections that a restart of the server broke
                "connect_args": arguments,
            }
        # Values of table properties may be secret, and must not appear in errors.
        engine = cast("Engine", sql.create_engine(url, hide_parameters=True, **settings))
        if after_login is not None:
            sql.event.listen(engine, "connect", after_login, insert=True)
        return engine

    def _waits(self) -> dict[str, int]:
        """The driver's timeouts in seconds; settings of the connection may replace them."""
        connect = ceil(self._timeouts.connect)
        if self.dialect == POSTGRESQL:
            return {"connect_timeout": max(2, connect)}  # less is not accepted
        answer = ceil(self._timeouts.catalog_answer)
        return {"connect_timeout": connect, "read_timeout": answer, "write_timeout": answer}

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        sql = _imported("sqlalchemy")
        try:
            yield
        # PyMySQL raises a RuntimeError if a package for the server's login method is missing.
        except (sql.exc.SQLAlchemyError, RuntimeError, OSError) as error:
            if isinstance(error, StorageError):
                raise
            secrets = [self.address.password] if self.address.password else []
            mask_exception(error, secrets)
            stated = str(getattr(error, "orig", None) or error)
            code = str(getattr(getattr(error, "orig", None), "sqlstate", ""))
            why = masked(" ".join(stated.split()), secrets)
            lost = _LOST_OUT.search(f"{code} {why}") is not None
            raise (_LostOut if lost else StorageError)(
                "the request to the database of the catalog failed",
                database=self.address.text,
                why=why,
                **_advice(why),
            ) from error


def _run(connection: Connection, statements: Sequence[Statement]) -> int:
    text = _imported("sqlalchemy").text
    counts = [
        connection.execute(text(statement), dict(values)).rowcount
        for statement, values in statements
    ]
    return int(counts[0])


def _limited_login(arguments: dict[str, object]) -> Callable[[_PyMySql, object], None]:
    """Limit the login to MySQL by the connect timeout: a server may accept and then be silent.

    Returns a function that sets the longer timeout of statements, once PyMySQL has logged in.
    """
    answer = arguments["read_timeout"]
    arguments["read_timeout"] = arguments["connect_timeout"]

    def after_login(connection: _PyMySql, _record: object) -> None:
        connection._read_timeout = answer  # noqa: SLF001 - PyMySQL has one timeout for all reads

    return after_login


def _advice(why: str) -> dict[str, str]:
    """Advice on how to fix two common failures; empty for other errors."""
    if "key was too long" in why.lower():
        return {"advice": "Paimon's tables need a database with a one-byte character set: latin1"}
    if "timed out" in why.lower():
        return {"advice": f"if the server is only slow, give it more time: {CONNECT_OPTION}"}
    if "unable to open database file" in why:
        return {"advice": "the directory of the file must exist and be writable"}
    return {}
