"""`sql`: Spark SQL, in which statements on attached tables run as lakecore's verbs.

1. The text is cut into statements, and lakecore's parser reads each of them.
2. A statement whose table or database is attached goes to lakecore: DELETE, UPDATE, MERGE, INSERT,
   CREATE TABLE ... AS and CALL run their work as Spark jobs (`spark_table.py`); ALTER, CREATE,
   DROP, TRUNCATE, ANALYZE and SHOW run on the driver. Queries within statements are Spark's.
3. A query is Spark's; time travel and system tables in it become frames (`sql_query.py`).
4. Everything else goes to `spark.sql` unchanged.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f

from lakecore import InvalidRequest, LakecoreError
from lakecore.distributed.sql import (
    Analyze,
    Call,
    CreateTable,
    Delete,
    Describe,
    Insert,
    Kind,
    Merge,
    Query,
    Show,
    Statement,
    TableStatement,
    Truncate,
    Update,
    engine_over,
    merge_into,
    names_of_insert,
    parse,
    split,
    tokenize,
)
from spark_bridge.arguments import named_arguments, overwrites_dynamically
from spark_bridge.attach_tables import attach_again, require_free
from spark_bridge.attached_names import (
    attached_database,
    attached_table,
    database_of,
    databases,
)
from spark_bridge.bucket_sql import quoted
from spark_bridge.evolve import evolved
from spark_bridge.plan_read import read_schema
from spark_bridge.settings import require_version
from spark_bridge.spark_table import SparkTable
from spark_bridge.sql_describe import create_statement, described
from spark_bridge.sql_names import by_other_name
from spark_bridge.sql_query import query
from spark_bridge.sql_strings import masked, plain, require_plain, unmasked
from spark_bridge.store_assignment import assigned
from spark_bridge.types import spark_arrow_schema
from spark_bridge.write_frame import write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakecore import CommitResult, Table
    from spark_bridge.attached_names import AttachedDatabase

__all__ = ["sql"]

_OURS = frozenset({"CALL", "DELETE", "MERGE", "UPDATE"})
"""Statements that Spark itself does not run on a Python source."""
_EVOLVING = re.compile(r"MERGE\s+WITH\s+SCHEMA\s+EVOLUTION\b", re.IGNORECASE)
_SHOWN_BY_SPARK = frozenset({"tables", "views", "databases", "columns"})
_COUNTS = ("rows", "rows_inserted", "rows_updated", "rows_deleted")


@named_arguments
def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run the statements of a text in order. Returns the rows of the last one.

    Tables that `attach` has registered take part in all statements of Spark SQL, and in addition in
    CALL, MERGE INTO, UPDATE, DELETE, ALTER, INSERT OVERWRITE ... PARTITION, CREATE TABLE ... AS,
    `VERSION AS OF`, `TIMESTAMP AS OF` and `t$snapshots`. A statement that changes rows returns one
    row: the snapshot and the numbers of rows.

    Conditions and values of DELETE, UPDATE and MERGE are expressions of DuckDB's SQL; queries are
    Spark's. Raises lakecore's errors for statements on attached tables, else Spark's.

        spark_bridge.attach(spark, "/data/warehouse")
        spark_bridge.sql(spark, "DELETE FROM shop.orders WHERE price < 0").show()
    """
    require_version(spark)
    found: DataFrame | None = None
    seen = masked(text)
    try:
        parts = split(seen)
    except LakecoreError:
        if _is_ours(spark, text.strip().partition(" ")[0]):
            raise
        return spark.sql(text)
    end = 0
    for part in parts:
        start = seen.index(part, end)
        end = start + len(part)
        found = _run(spark, text[start:end])
    if found is None:
        raise InvalidRequest("the text contains no statement")
    return found


def _run(spark: SparkSession, text: str) -> DataFrame:
    named = by_other_name(spark, text)
    if named is not None:
        return named
    evolving = _EVOLVING.match(text)
    read = text if evolving is None else "MERGE" + text[evolving.end() :]
    try:
        statement = parse(masked(read), spark_types=True)
    except LakecoreError:
        if _is_ours(spark, tokenize(masked(text))[0].word):
            raise
        return spark.sql(text)
    if isinstance(statement, Query):
        return query(spark, text)
    if isinstance(statement, Call):
        return _call(spark, statement, text)
    if isinstance(statement, CreateTable):
        return _create(spark, statement, text)
    chain = getattr(statement, "chain", ())
    place = attached_table(spark, chain) if chain else None
    if place is None:
        return spark.sql(text)
    if isinstance(statement, Merge):
        require_plain(text)
        return _merge(spark, *place, statement, evolves=evolving is not None)
    return _on_table(spark, *place, statement, text)


def _is_ours(spark: SparkSession, word: str) -> bool:
    """Whether Spark itself would refuse a statement that begins with this word."""
    return word.upper() in _OURS and bool(databases(spark))


def _create(spark: SparkSession, statement: CreateTable, text: str) -> DataFrame:
    """CREATE TABLE: a table of lakecore if the database is attached, else one of Spark."""
    database = database_of(spark, statement.chain)
    if database is None or statement.temporary:
        return spark.sql(text)
    require_free(spark, database, statement.chain[-1])
    if statement.query is not None:
        query_text = unmasked(statement.query, text)
        return _create_as(spark, database, replace(statement, query=query_text))
    return _changed_schema(spark, database, parse(plain(spark, text), spark_types=True))


def _on_table(
    spark: SparkSession, database: AttachedDatabase, name: str, statement: Statement, text: str
) -> DataFrame:
    """A statement on an attached table."""
    if isinstance(statement, Insert):
        rows = query(spark, unmasked(statement.query, text))
        return _insert(spark, _table(spark, database, name), statement, rows)
    require_plain(text)
    if isinstance(statement, Update | Delete | Truncate | Analyze):
        return _by_engine(spark, database, statement)
    if isinstance(statement, TableStatement):
        result = _changed_schema(spark, database, statement)
        if not database.session.table_exists(f"{database.name}.{name}"):
            spark.sql(f"DROP TABLE IF EXISTS {quoted(database.name)}.{quoted(name)}")
        return result
    if isinstance(statement, Show | Describe):
        return _shown(spark, database, name, statement, text)
    return spark.sql(text)


def _merge(
    spark: SparkSession, database: AttachedDatabase, name: str, statement: Merge, *, evolves: bool
) -> DataFrame:
    """MERGE INTO; with `evolves`, new columns of the source are columns of the table before it."""
    table = _table(spark, database, name)
    rows = query(spark, "SELECT * FROM " + statement.source)  # noqa: S608  the user's own text
    grown = table
    if evolves:
        context, evolution = evolved(
            table.context,
            rows.select(*_new_columns(table, statement, rows)).schema,
            evolve_schema=True,
        )
        if evolution is not None:
            evolution.publish(context)
            grown = table.refresh()
    try:
        return _counted(spark, merge_into(statement, grown, rows))
    finally:
        if grown is not table:
            attach_again(spark, database)


def _new_columns(table: Table, statement: Merge, rows: DataFrame) -> list[Column]:
    """The columns of the source that the table lacks and the clauses set.

    Raises InvalidRequest, before the schema changes, if `*` needs a column that the source lacks.
    """
    own = {name.lower(): name for name in table.schema.names}
    given = {name.lower(): name for name in rows.columns}
    setting = [each for each in statement.clauses if each.action != "delete"]
    starred = any(each.values is None and each.row is None for each in setting)
    missing = [name for key, name in own.items() if starred and key not in given]
    if missing:
        raise InvalidRequest(
            "the source lacks columns of the table: name the columns to set in place of *",
            columns=missing,
        )
    named = {path[0].lower() for each in setting for path in each.values or {}}
    wanted = given if starred else {key: name for key, name in given.items() if key in named}
    return [f.col(quoted(name)) for key, name in wanted.items() if key not in own]


def _shown(
    spark: SparkSession, database: AttachedDatabase, name: str, asked: Show | Describe, text: str
) -> DataFrame:
    """SHOW and DESCRIBE: Spark answers what it knows of its own entry of the table."""
    if isinstance(asked, Describe):
        if asked.database or asked.function or _is_temporary(spark, asked.chain):
            return spark.sql(text)
        table = _table(spark, database, name)
        return _framed(spark, described(table, database.name, extended=asked.extended))
    if asked.what == "create":
        statement = create_statement(_table(spark, database, name), database.name)
        return _framed(spark, pa.table({"createtab_stmt": [statement]}))
    if asked.what in _SHOWN_BY_SPARK:
        return spark.sql(text)
    return _by_engine(spark, database, asked)


def _is_temporary(spark: SparkSession, chain: Sequence[str]) -> bool:
    """Whether the name is that of a temporary view, which precedes a table."""
    return len(chain) == 1 and bool(spark.catalog.getTable(quoted(chain[0])).isTemporary)


def _table(spark: SparkSession, database: AttachedDatabase, name: str) -> Table:
    return SparkTable(database.session.get_table(f"{database.name}.{name}"), spark)


def _by_engine(spark: SparkSession, database: AttachedDatabase, statement: Statement) -> DataFrame:
    """Run a statement by lakecore's SQL on the tables of the database's warehouse."""
    engine = engine_over(database.session, lambda table: SparkTable(table, spark))
    current = attached_database(spark, spark.catalog.currentDatabase())
    engine.run(f"USE `{(current or database).name}`")
    return _framed(spark, engine.carry_out(statement).to_arrow_table())


def _changed_schema(
    spark: SparkSession, database: AttachedDatabase, statement: Statement
) -> DataFrame:
    """Run a statement that changes tables or schemas.

    Then attach again, because Spark has copies.
    """
    result = _by_engine(spark, database, statement)
    attach_again(spark, database)
    return result


def _call(spark: SparkSession, statement: Call, text: str) -> DataFrame:
    """CALL: the procedure runs on the warehouse that has its table."""
    known = databases(spark)
    if not known:
        return spark.sql(text)
    require_plain(text)
    stated = statement.named.get("table") or next(iter(statement.positional), "")
    chain = [token.value for token in tokenize(stated) if token.kind is Kind.STRING]
    names = chain[0].split(".") if chain else []
    found = database_of(spark, names) if names else None
    warehouses = {id(each.session): each for each in known}
    if found is None and len(warehouses) > 1 and not names:
        raise InvalidRequest(
            "several warehouses are attached: name the table of one",
            databases=[each.name for each in known],
        )
    return _changed_schema(spark, found or known[0], statement)


def _insert(spark: SparkSession, table: Table, statement: Insert, df: DataFrame) -> DataFrame:
    """INSERT INTO and INSERT OVERWRITE: rows of a query of Spark, written by its tasks."""
    if statement.options:
        table = table.copy(dict(statement.options))
    schema = table.schema
    names = names_of_insert(statement, schema, df.columns)
    types = read_schema(schema)
    stated = statement.partition or {}
    constants = {key: value for key, value in stated.items() if value is not None}
    rows = assigned(spark, df, types, names).withColumns(
        {key: f.lit(value).cast(types[key].dataType) for key, value in constants.items()}
    )
    if not statement.overwrite:
        result = write(rows, table)
    else:
        mode = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static"))
        dynamic = len(constants) < len(schema.partition_keys) and overwrites_dynamically(
            table.context, mode
        )
        partition = None if dynamic else _typed(spark, types, constants) or None
        result = write(rows, table, "overwrite", partition, dynamic=dynamic)
    return _framed(
        spark,
        pa.table(
            {"snapshot_id": pa.array([result.snapshot_id], pa.int64()), "rows": [result.rows]}
        ),
    )


def _typed(
    spark: SparkSession, types: StructType, constants: Mapping[str, str]
) -> dict[str, object]:
    """The values of a partition in the types of its keys."""
    if not constants:
        return {}
    values = [f.lit(each).cast(types[key].dataType).alias(key) for key, each in constants.items()]
    found: dict[str, object] = spark.range(1).select(*values).collect()[0].asDict()
    for key, value in found.items():
        if value is None:
            raise InvalidRequest(
                "the value of a partition does not fit its key", column=key, value=constants[key]
            )
    return found


def _create_as(
    spark: SparkSession, database: AttachedDatabase, statement: CreateTable
) -> DataFrame:
    """CREATE TABLE ... AS: creates the table with its rows, or nothing."""
    if statement.replace or statement.columns:
        raise InvalidRequest(
            "CREATE TABLE ... AS creates a new table with the columns of the query: name no "
            "columns, and drop an existing table before",
            table=".".join(statement.chain),
        )
    assert statement.query is not None, "the caller checks"
    session, identifier = database.session, f"{database.name}.{statement.chain[-1]}"
    if statement.if_not_exists and session.table_exists(identifier):
        return _framed(spark, pa.table({"result": ["OK"]}))
    df = query(spark, statement.query)
    arrow = spark_arrow_schema(df.schema)
    keys = {*statement.primary_keys}
    table = session.create_table(
        identifier,
        pa.schema([each.with_nullable(each.name not in keys) for each in arrow]),
        primary_keys=statement.primary_keys,
        partition_keys=statement.partition_keys,
        options=dict(statement.options),
        comment=statement.comment,
    )
    try:
        write(df, table)
    except BaseException:
        session.drop_table(identifier)
        raise
    attach_again(spark, database)
    return _framed(spark, pa.table({"result": ["OK"]}))


def _counted(spark: SparkSession, result: CommitResult) -> DataFrame:
    """The result of a verb as one row: the snapshot and the counts."""
    counts = {name: getattr(result, name) for name in _COUNTS}
    columns = {"snapshot_id": pa.array([result.snapshot_id], pa.int64())}
    columns |= {
        name: pa.array([count], pa.int64()) for name, count in counts.items() if count is not None
    }
    return _framed(spark, pa.table(columns))


def _framed(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows)
