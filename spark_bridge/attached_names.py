"""The tables and databases that a Spark session has attached, by their names in Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakecore import Session

    Warehouse: TypeAlias = "str | os.PathLike[str] | Mapping[str, str]"

__all__ = [
    "AttachedDatabase",
    "attached_database",
    "attached_table",
    "database_of",
    "databases",
    "remember",
]

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
    """Record that the session has attached a database. Replaces an earlier record of it."""
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
