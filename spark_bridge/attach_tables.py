"""Makes the tables of a warehouse available under their own names in Spark SQL.

A catalog table of Spark stores the name of its data source and a copy of its schema; options of the
catalog table do not reach a Python source. Each table therefore gets its own data source, a class
that knows the path, for its catalog table. Every new query reads the newest snapshot; a view over a
loaded frame would not. A frame keeps the snapshot of its first action.

- Classes are registered with one session; a new session must attach again.
- The copy of the schema is fixed: after a schema change, attach again.
- DROP TABLE and ALTER TABLE on the catalog table do not affect lakecore's table.

INVARIANT: a catalog table that is not lakecore's is never replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from lakecore import (
    AlreadyExists,
    InvalidRequest,
    LakecoreError,
    Session,
    Table,
    Unsupported,
    connect,
)
from lakecore.distributed import anchored, is_access_option
from spark_bridge.arguments import named_arguments, warn
from spark_bridge.options import MARK
from spark_bridge.plan_read import read_schema
from spark_bridge.settings import require_version
from spark_bridge.source import LakecoreSource, marked

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    Warehouse: TypeAlias = "str | os.PathLike[str] | Mapping[str, str]"


# --- attached names ------------------------------------------------------------------------------
# The tables and databases that a Spark session has attached, by their names in Spark SQL.

_CATALOG = "spark_catalog"
_FULL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedDatabase:
    """A database of a warehouse. Its attached tables are keyed by their lower-case names."""

    name: str
    warehouse: Warehouse
    session: Session
    tables: Mapping[str, str]


_ATTACHED: WeakKeyDictionary[SparkSession, dict[str, AttachedDatabase]] = WeakKeyDictionary()


def remember(spark: SparkSession, database: AttachedDatabase) -> None:
    """Record that the session has attached a database, in place of an earlier record."""
    _ATTACHED.setdefault(spark, {})[database.name.lower()] = database


def databases(spark: SparkSession) -> tuple[AttachedDatabase, ...]:
    """The databases that the session has attached."""
    return tuple(_ATTACHED.get(spark, {}).values())


def attached_database(spark: SparkSession, name: str) -> AttachedDatabase | None:
    """The attached database of that name; None if there is none. Spark's names ignore case."""
    return _ATTACHED.get(spark, {}).get(name.lower())


def attached_table(
    spark: SparkSession, chain: Sequence[str]
) -> tuple[AttachedDatabase, str] | None:
    """The database and the name of an attached table; None for any other table of Spark."""
    found = database_of(spark, chain)
    if found is None:
        return None
    name = found.tables.get(chain[-1].lower())
    return None if name is None else (found, name)


def database_of(spark: SparkSession, chain: Sequence[str]) -> AttachedDatabase | None:
    """The attached database of a table's name; the table itself need not exist."""
    if not _ATTACHED.get(spark) or not 0 < len(chain) <= _FULL:
        return None
    if len(chain) == _FULL and chain[0].lower() != _CATALOG:
        return None
    name = chain[-2] if len(chain) > 1 else spark.catalog.currentDatabase()
    return attached_database(spark, name)


# --- attach tables -------------------------------------------------------------------------------

_NAME = re.compile(r"\w+", re.ASCII)
_CATALOG_KIND = "spark.sql.catalogImplementation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The tables that Spark SQL now knows, and for every other table why it is missing.

    attached = spark_bridge.attach(spark, "/data/warehouse")
    attached.tables, attached.left_out
    """

    tables: tuple[str, ...]
    left_out: Mapping[str, str]


@named_arguments
def register(spark: SparkSession, alias: str | None = None) -> None:
    """Register `format("lakecore")` with a session. Calling it again has no effect.

    `alias` is one more name of the format, such as `paimon` for code that names Paimon's connector.

        spark_bridge.register(spark, "paimon")
    """
    require_version(spark)
    _activate(spark)
    spark.dataSource.register(LakecoreSource)
    if alias is not None:
        members = {"name": classmethod(lambda _: alias), "__module__": __name__}
        spark.dataSource.register(type(alias, (LakecoreSource,), members))


@named_arguments
def attach(
    spark: SparkSession,
    warehouse: str | os.PathLike[str] | Mapping[str, str],
    database: str | None = None,
) -> Attached:
    """Register the tables of a warehouse, or of one of its databases, by name in Spark SQL.

    SELECT, INSERT INTO and INSERT OVERWRITE then work with these names. Every new query reads the
    newest snapshot; a frame keeps the snapshot of its first action. Attach again in a new session
    and after a schema change.

    A table with a type or a name that Spark does not support is skipped and named in the result.
    Raises AlreadyExists if Spark has another table of the same name.

        spark_bridge.attach(spark, "/data/warehouse")
        spark.sql("SELECT count(*) FROM shop.orders")
    """
    if spark.conf.get(_CATALOG_KIND, "in-memory") == "hive":
        raise Unsupported(
            "a Hive metastore would show the tables to sessions that cannot read them; start Spark "
            "without Hive support, or use spark_bridge.read and temporary views",
            catalog="hive",
        )
    register(spark)
    return _attached(spark, warehouse, connect(warehouse), database)


def attach_again(spark: SparkSession, database: AttachedDatabase) -> None:
    """Refresh Spark's names of an attached database after a statement. Never fails the statement.

    Names of Spark's other tables are left out; other errors become a warning.
    """
    try:
        _attached(spark, database.warehouse, database.session, database.name, again=True)
    except (LakecoreError, PySparkException, Py4JError) as error:
        warn(
            "the statement was executed, but Spark's names were not refreshed: attach the database "
            f"again. database={database.name} cause={error}"
        )


def require_free(spark: SparkSession, database: AttachedDatabase, name: str) -> None:
    """Raise AlreadyExists if Spark has a table of its own with that name."""
    if name.lower() not in database.tables:
        quoted = f"`{database.name}`.`{name}`"
        if spark.catalog.tableExists(quoted):
            raise _is_taken(f"{database.name}.{name}")


def _attached(
    spark: SparkSession,
    warehouse: Warehouse,
    session: Session,
    database: str | None,
    *,
    again: bool = False,
) -> Attached:
    """As `attach`; `again`: names that Spark uses for other tables are left out."""
    if database is not None and not session.database_exists(database):
        raise InvalidRequest(
            "no such database", database=database, databases=session.list_databases()
        )
    given = warehouse if isinstance(warehouse, Mapping) else {}
    storage = {key: value for key, value in given.items() if is_access_option(key)}
    done: list[str] = []
    known: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in session.list_databases() if database is None else (database,):
        own: dict[str, str] = {}
        for table in session.list_tables(name):
            identifier = f"{name}.{table}"
            twin = known.setdefault(identifier.lower(), identifier)
            if twin != identifier:
                left_out[identifier] = f"Spark takes the name for that of {twin}"
                continue
            try:
                _attach_table(spark, session, name, table, storage)
            except LakecoreError as error:
                if isinstance(error, AlreadyExists) and not again:
                    raise
                left_out[identifier] = str(error)
            else:
                done.append(identifier)
                own[table.lower()] = table
        known_as = AttachedDatabase(name=name, warehouse=warehouse, session=session, tables=own)
        remember(spark, known_as)
    return Attached(tables=tuple(done), left_out=left_out)


def _anchored(table: Table) -> str:
    """The absolute path of a table, because Spark has another working directory."""
    return anchored(table.context.layout, table.context.store).root


def _activate(spark: SparkSession) -> None:
    """Make the session active, as the creation of a frame does.

    Spark looks up the name of a data source in the active session. A name known only to another
    session would raise an error.
    """
    spark.createDataFrame([], "active boolean")


def _attach_table(
    spark: SparkSession, session: Session, database: str, table: str, storage: dict[str, str]
) -> None:
    for name in (database, table):
        if not _NAME.fullmatch(name):
            raise Unsupported("Spark takes letters, digits and _ in the name of a table", name=name)
    opened = session.get_table(f"{database}.{table}")
    opened.options.require_readable()
    source = provider(database, table, _anchored(opened), storage)
    schema = marked(read_schema(opened.schema), source.KEY)
    quoted = f"`{database}`.`{table}`"
    spark.dataSource.register(source)
    try:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    except AnalysisException as error:
        raise Unsupported("Spark takes no database of that name", database=database) from error
    if spark.catalog.tableExists(quoted):
        there = spark.table(quoted).schema
        if _key_of(there) != source.KEY or _format_of(spark, quoted) is not None:
            raise _is_taken(f"{database}.{table}")
        if there == schema:
            return
        spark.sql(f"DROP TABLE {quoted}")
    spark.sql(f"CREATE TABLE {quoted} USING `{source.name()}` OPTIONS ({MARK} '{source.KEY}')")


def _is_taken(table: str) -> AlreadyExists:
    return AlreadyExists(
        "Spark has another table of that name; drop it, or attach to a session without it",
        table=table,
    )


def provider(
    database: str, table: str, path: str, storage: Mapping[str, str]
) -> type[LakecoreSource]:
    """A data source class for one table. Its name and key are derived from the path."""
    key = hashlib.sha256(path.encode()).hexdigest()[:16]
    title = f"lakecore__{database}__{table}__{key}".lower()
    members = {
        "LOCATION": path,
        "STORAGE": dict(storage),
        "KEY": key,
        "name": classmethod(lambda _: title),
        "__module__": __name__,
        "__doc__": f"The table {database}.{table} at {path}.",
    }
    return type(title, (LakecoreSource,), members)


def _key_of(schema: StructType) -> str | None:
    """The key that lakecore stored in a table schema; None if lakecore did not make the schema.

    NOTE: Spark also copies the key to tables that Spark itself creates from such rows.
    """
    return next((field.metadata.get(MARK) for field in schema.fields), None)


def _format_of(spark: SparkSession, quoted: str) -> str | None:
    """The format in which Spark stores a table itself.

    None if a Python source provides the rows.
    """
    facts = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    texts = [(fact.col_name, fact.data_type) for fact in facts]
    # The description lists the columns before the facts, and a column may be named like a fact.
    begin = next(at for at, (name, _) in enumerate(texts) if name.startswith("# Detailed"))
    return dict(texts[begin:]).get("Provider")
