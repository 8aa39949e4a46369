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
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from lakecore import CommitResult, InvalidRequest, LakecoreError, Table, Unsupported
from lakecore.distributed import (
    Analyze,
    Call,
    CreateTable,
    Delete,
    Describe,
    Insert,
    Kind,
    Merge,
    MergeClause,
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
from spark_bridge.arguments import evolved, named_arguments, overwrites_dynamically
from spark_bridge.attach_tables import (
    AttachedDatabase,
    attach_again,
    attached_database,
    attached_table,
    database_of,
    databases,
    require_free,
)
from spark_bridge.bucket_sql import quoted
from spark_bridge.maintenance import compact, expire_snapshots, remove_orphan_files
from spark_bridge.plan_read import read_schema
from spark_bridge.settings import require_version
from spark_bridge.spark_table import SparkTable, create_statement, described
from spark_bridge.sql_query import chain_at, masked, plain, query, require_plain, unmasked
from spark_bridge.types import spark_arrow_schema
from spark_bridge.write_frame import write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# --- sql names -----------------------------------------------------------------------------------
# Statements of Delta Lake, as other names for lakecore's verbs.
#
# | statement | runs as |
# |---|---|
# | `DESCRIBE HISTORY t [LIMIT n]` | a query of `t$snapshots`, newest first |
# | `DESCRIBE DETAIL t` | one row: name, path, keys, files, bytes, options |
# | `OPTIMIZE t [WHERE condition] [ZORDER BY (columns)]` | a full compaction, or sorting |
# | `VACUUM t [RETAIN n HOURS] [DRY RUN]` | expiry of snapshots, and removal of orphan files |
# | `RESTORE t TO VERSION AS OF n`, `TO TIMESTAMP AS OF time` | a snapshot with the rows of then |
# | `INSERT INTO t REPLACE WHERE condition query` | a MERGE, which also deletes by the condition |

_SKIPPED = {"TABLE"}
_QUERIES = {"SELECT", "WITH", "VALUES", "FROM", "TABLE"}


def by_other_name(spark: SparkSession, text: str) -> DataFrame | None:
    """The rows of one of these statements on an attached table; None for every other statement."""
    tokens = tokenize(masked(text))
    words = [token.word for token in tokens]
    if words[0] == "INSERT" and ("REPLACE", "WHERE") in pairwise(words):
        return _replace_where(spark, text)
    two = " ".join(words[:2])
    verb, place = (two, 2) if two in _VERBS else (words[0], 1)
    if verb not in _VERBS:
        return None
    place += words[place] in _SKIPPED
    chain, end = chain_at(text, tokens, place)
    found = attached_table(spark, chain) if chain else None
    if found is None:
        return None
    require_plain(text)
    database, name = found
    table = database.session.get_table(f"{database.name}.{name}")
    rest = text[tokens[end].start : tokens[-1].start].strip()
    named = f"{quoted(database.name)}.{quoted(name)}"
    return _VERBS[verb](spark, table, named, rest)


def _replace_where(spark: SparkSession, text: str) -> DataFrame | None:
    """INSERT INTO ... REPLACE WHERE: None if the table is not attached.

    One MERGE deletes the rows for which the condition is true, and stores the query's rows. In a
    table with a primary key, a row of the query replaces the row of its key.
    """
    seen = masked(text)
    tokens = tokenize(seen)
    words = [token.word for token in tokens]
    at = list(pairwise(words)).index(("REPLACE", "WHERE"))
    depths = accumulate((each.value == "(") - (each.value == ")") for each in tokens)
    starts = (
        place
        for place, depth in enumerate(depths)
        if place > at + 2 and not depth and words[place] in _QUERIES
    )
    begin = next(starts, None)
    if begin is None:
        raise InvalidRequest("REPLACE WHERE needs a condition, and then a query", statement=text)
    statement = parse(seen[: tokens[at].start] + seen[tokens[begin].start :], spark_types=True)
    assert isinstance(statement, Insert), "it begins with INSERT"
    place = attached_table(spark, statement.chain)
    if place is None:
        return None
    if statement.overwrite or statement.partition or statement.options:
        raise InvalidRequest("REPLACE WHERE is without OVERWRITE, PARTITION and options")
    condition = unmasked(seen[tokens[at + 2].start : tokens[begin].start], text).strip()
    table = _table(spark, *place)
    df = query(spark, unmasked(statement.query, text))
    names = names_of_insert(statement, table.schema, df.columns)
    if missing := [name for name in table.schema.names if name not in names]:
        raise InvalidRequest("REPLACE WHERE needs a value for each column", columns=missing)
    rows = assigned(spark, df, read_schema(table.schema), names)
    _check_replacing(rows, condition)
    keys = table.schema.primary_keys
    merge = Merge(
        chain=statement.chain,
        alias=None,
        source="",
        source_chain=None,
        source_alias=None,
        on=" AND ".join(f'target."{key}" = source."{key}"' for key in keys) or "1 = 0",
        clauses=(
            *((MergeClause(match="matched", action="update"),) if keys else ()),
            MergeClause(match="not_matched", action="insert"),
            MergeClause(match="by_source", action="delete", condition=condition),
        ),
    )
    return _counted(spark, merge_into(merge, table, rows))


def _check_replacing(rows: DataFrame, condition: str) -> None:
    """Raise InvalidRequest for a row of the query for which the condition is not true."""
    try:
        is_other = ~f.coalesce(f.expr(condition), f.lit(False))
        found = rows.where(is_other).limit(1).collect()
    except PySparkException as error:
        raise InvalidRequest(
            "REPLACE WHERE cannot judge the rows of the query",
            condition=condition,
            reason=str(error).splitlines()[0],
        ) from error
    if found:
        raise InvalidRequest(
            "the condition of REPLACE WHERE is not true for a row of the query; nothing was done",
            condition=condition,
            row=found[0].asDict(),
        )


def _history(spark: SparkSession, table: Table, named: str, rest: str) -> DataFrame:
    del table
    system = named.removesuffix("`") + "$snapshots`"
    return query(spark, f"SELECT * FROM {system} ORDER BY snapshot_id DESC {rest}")  # noqa: S608


def _detail(spark: SparkSession, table: Table, named: str, rest: str) -> DataFrame:
    _no_more(rest)
    files = table.inspect.files()
    facts = {
        "name": named.replace("`", ""),
        "location": table.path,
        "partition_keys": list(table.schema.partition_keys),
        "primary_keys": list(table.schema.primary_keys),
        "files": files.height,
        "bytes": int(files["file_size_in_bytes"].sum()),
        "options": [f"{key}={value}" for key, value in sorted(table.schema.options.items())],
    }
    texts = pa.list_(pa.string())
    kinds = [pa.string(), pa.string(), texts, texts, pa.int64(), pa.int64(), texts]
    columns = [pa.array([value], kind) for value, kind in zip(facts.values(), kinds, strict=True)]
    return spark.createDataFrame(pa.table(columns, names=list(facts)))


def _optimize(spark: SparkSession, table: Table, named: str, rest: str) -> DataFrame:
    del named
    where, columns = rest, None
    tokens = tokenize(rest)
    for place, token in enumerate(tokens):
        if token.word == "ZORDER" and tokens[place + 1].word == "BY":
            where = rest[: token.start].strip()
            columns = [each.value for each in tokens[place + 2 :] if each.kind is not Kind.OTHER]
            columns = [name for name in columns if name]
    if where and not where.upper().startswith("WHERE "):
        _no_more(where)
    result = compact(
        spark,
        table,
        full=columns is None,
        where=where[len("WHERE ") :] or None,
        order_strategy=None if columns is None else "zorder",
        order_by=columns,
    )
    return _row(spark, snapshot_id=result.snapshot_ids[-1] if result.snapshot_ids else None)


def _vacuum(spark: SparkSession, table: Table, named: str, rest: str) -> DataFrame:
    del named
    words = rest.upper().split()
    dry_run = words[-2:] == ["DRY", "RUN"]
    words = words[:-2] if dry_run else words
    hours = None
    if len(words) == 3 and words[0] == "RETAIN" and words[2].startswith("HOUR"):
        hours = timedelta(hours=float(words[1]))
    elif words:
        _no_more(rest)
    expired = expire_snapshots(spark, table, older_than=hours, dry_run=dry_run)
    age = max(hours or timedelta(0), timedelta(days=1))
    orphans = remove_orphan_files(spark, table, age, dry_run=dry_run)
    return _row(spark, expired_snapshots=expired.snapshots_expired, orphan_files=orphans.files)


def _restore(spark: SparkSession, table: Table, named: str, rest: str) -> DataFrame:
    if not rest.upper().startswith("TO "):
        _no_more(rest)
    rows = query(spark, f"SELECT * FROM {named} {rest[3:]}")  # noqa: S608  the user's own text
    result = write(rows, table, "overwrite", dynamic=False)
    return _row(spark, snapshot_id=result.snapshot_id, rows=result.rows)


def _row(spark: SparkSession, **facts: int | None) -> DataFrame:
    return spark.createDataFrame(
        pa.table({name: pa.array([value], pa.int64()) for name, value in facts.items()})
    )


def _no_more(rest: str) -> None:
    if rest:
        raise InvalidRequest("the statement ends before this", given=rest)


_VERBS: dict[str, Callable[[SparkSession, Table, str, str], DataFrame]] = {
    "DESC HISTORY": _history,
    "DESCRIBE HISTORY": _history,
    "DESC DETAIL": _detail,
    "DESCRIBE DETAIL": _detail,
    "OPTIMIZE": _optimize,
    "VACUUM": _vacuum,
    "RESTORE": _restore,
}


# --- store assignment ----------------------------------------------------------------------------
# Casts the rows of an INSERT as Spark's ANSI store assignment does, by Spark's analyzer.

_POLICY = "spark.sql.storeAssignmentPolicy"


def assigned(
    spark: SparkSession, df: DataFrame, types: StructType, names: Sequence[str]
) -> DataFrame:
    """The columns of a frame, in order, with these names and with their types in the table.

    Raises InvalidRequest for a column whose type Spark would not store in the table's type, and
    Unsupported for another policy than ANSI.
    """
    policy = str(spark.conf.get(_POLICY, "ANSI"))
    if policy.upper() != "ANSI":
        raise Unsupported(
            "INSERT has the store assignment ANSI alone", option=_POLICY, value=policy
        )
    places = [str(place) for place in range(len(names))]
    given = df.toDF(*places)
    wanted = [types[name].dataType for name in names]
    known = [
        StructField(place, _with_names_of(field.dataType, kind))
        for place, field, kind in zip(places, given.schema.fields, wanted, strict=True)
    ]
    for place, name, field in zip(places, names, known, strict=True):
        try:
            # The cast is Spark's; analysis happens when the schema is asked for.
            _ = given.select(place).to(StructType([field])).schema
        except AnalysisException as error:
            raise InvalidRequest(
                "Spark's ANSI store assignment does not store this type in the column: CAST the "
                "value in the query",
                column=name,
                given=given.schema[place].dataType.simpleString(),
                wanted=types[name].dataType.simpleString(),
            ) from error
    fitted = given.to(StructType(known))
    return fitted.select(
        *(
            f.col(place).cast(kind).alias(name)
            for place, kind, name in zip(places, wanted, names, strict=True)
        )
    )


def _with_names_of(given: DataType, kind: DataType) -> DataType:
    """A type of the table with the field names of a given type.

    INSERT assigns nested fields by place, and `DataFrame.to` by name.
    """
    if isinstance(given, StructType) and isinstance(kind, StructType):
        if len(given.fields) != len(kind.fields):
            raise InvalidRequest(
                "a ROW has another number of fields than that of the table",
                given=given.simpleString(),
                wanted=kind.simpleString(),
            )
        return StructType(
            [
                StructField(own.name, _with_names_of(own.dataType, field.dataType))
                for own, field in zip(given.fields, kind.fields, strict=True)
            ]
        )
    if isinstance(given, ArrayType) and isinstance(kind, ArrayType):
        return ArrayType(_with_names_of(given.elementType, kind.elementType))
    if isinstance(given, MapType) and isinstance(kind, MapType):
        return MapType(
            _with_names_of(given.keyType, kind.keyType),
            _with_names_of(given.valueType, kind.valueType),
        )
    return kind


# --- sql statements ------------------------------------------------------------------------------

_OURS = frozenset({"CALL", "DELETE", "MERGE", "UPDATE"})
"""Statements that Spark itself does not run on a Python source."""
_EVOLVING = re.compile(r"MERGE\s+WITH\s+SCHEMA\s+EVOLUTION\b", re.IGNORECASE)
_CREATING = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:EXTERNAL\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"((?:`[^`]*`|\w+)(?:\s*\.\s*(?:`[^`]*`|\w+))*)",
    re.IGNORECASE,
)
_SHOWN_BY_SPARK = frozenset({"tables", "views", "databases", "columns"})
_COUNTS = ("rows", "rows_inserted", "rows_updated", "rows_deleted")


@named_arguments
def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run the statements of a text in order. Returns the rows of the last one.

    Tables that `attach` has registered work in all statements of Spark SQL, and also in CALL, MERGE
    INTO, UPDATE, DELETE, ALTER, INSERT OVERWRITE ... PARTITION, CREATE TABLE ... AS, `VERSION AS
    OF`, `TIMESTAMP AS OF` and `t$snapshots`. A statement that changes rows returns one row: the
    snapshot and the numbers of rows.

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
        if _is_ours(spark, tokenize(masked(text))[0].word) or _creates_attached(spark, text):
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


def _creates_attached(spark: SparkSession, text: str) -> bool:
    """Whether Spark would make a table of its own, under the name of an attached database."""
    found = _CREATING.match(text)
    if found is None:
        return False
    chain = [each.strip(" \t\n`") for each in re.split(r"\.(?=(?:[^`]*`[^`]*`)*[^`]*$)", found[1])]
    return database_of(spark, chain) is not None


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
    """MERGE INTO; with `evolves`, new columns of the source are first added to the table."""
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
    """Whether the name belongs to a temporary view, which precedes a table."""
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

    Then attach again, because Spark has copies of the schemas.
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
