"""A table whose verbs run as Spark jobs, for lakecore's SQL.

SQL procedures and statements call the verbs of a table. Here the verbs that read or write many rows
are replaced by Spark jobs with the same names and arguments; all others are the table's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore import AnalyzeResult, CommitResult, CompactionResult, Table
from lakecore.distributed import (
    BATCH_COMMIT_IDENTIFIER,
    LENGTH_MAX,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    MergeInto,
    Multiset,
    OptionValue,
    Root,
    Row,
    with_nullable,
)
from spark_bridge.bucket_sql import quoted
from spark_bridge.change_rows import delete, update
from spark_bridge.maintenance import analyze, by_spark, compact, rescale
from spark_bridge.merge_frame import merge
from spark_bridge.sql_query import spelled_string
from spark_bridge.types import to_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


class SparkTable(Table):
    """A table of lakecore whose verbs run as jobs of `spark`."""

    def __init__(self, table: Table, spark: SparkSession) -> None:
        super().__init__(by_spark(spark, table).context)
        self._spark = spark

    def copy(self, dynamic_options: Mapping[str, OptionValue]) -> SparkTable:
        """The same table with other options."""
        return SparkTable(super().copy(dynamic_options), self._spark)

    def refresh(self) -> SparkTable:
        """The same table with its newest schema."""
        return SparkTable(super().refresh(), self._spark)

    def delete(
        self,
        where: pl.Expr | str,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """As `Table.delete`, by tasks of Spark."""
        return delete(self._spark, self, where, commit_user=commit_user, identifier=identifier)

    def update(
        self,
        values: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """As `Table.update`, by tasks of Spark."""
        return update(
            self._spark, self, values, where, commit_user=commit_user, identifier=identifier
        )

    def merge(self, source: object, on: Sequence[str] | pl.Expr | str) -> MergeInto:
        """As `Table.merge`; the tasks of Spark merge a source that is a Spark frame."""
        if not hasattr(source, "sparkSession"):
            return super().merge(source, on)
        df: DataFrame = source
        return merge(self._spark, self, df, on)

    def analyze(self, columns: Sequence[str] | str | None = None) -> AnalyzeResult:
        """As `Table.analyze`, by tasks of Spark."""
        return analyze(self._spark, self, columns)

    def compact(  # noqa: PLR0913  the public verb
        self,
        *,
        full: bool = False,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
        buckets: Sequence[int] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        order_strategy: str | None = None,
        order_by: Sequence[str] | str | None = None,
        partition_idle_time: timedelta | str | None = None,
    ) -> CompactionResult:
        """As `Table.compact`, by tasks of Spark."""
        return compact(
            self._spark,
            self,
            full=full,
            partitions=partitions,
            where=where,
            buckets=buckets,
            max_bytes=max_bytes,
            dry_run=dry_run,
            order_strategy=order_strategy,
            order_by=order_by,
            partition_idle_time=partition_idle_time,
        )

    def rescale(
        self,
        *,
        bucket_num: int | None = None,
        partition: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
    ) -> CommitResult:
        """As `Table.rescale`, by tasks of Spark."""
        return rescale(self._spark, self, bucket_num=bucket_num, partition=partition, where=where)


# --- sql describe --------------------------------------------------------------------------------
# SHOW CREATE TABLE and DESCRIBE for attached tables, as Spark shows tables of its own.
#
# Types have the names that they have in `spark_bridge.sql`: Spark's, and Paimon's for a type that
# Spark lacks, such as BINARY(3).

_MICROS = 6
_BARE = re.compile(r"[+-]?\d+(\.\d+)?|true|false", re.IGNORECASE)
"""Default values that need no quotes, if they are no strings."""
_STRINGS = {Root.CHAR, Root.VARCHAR}
_COLUMNS = ("col_name", "data_type", "comment")


def create_statement(table: Table, database: str) -> str:
    """The CREATE TABLE statement that makes an equal table through `spark_bridge.sql`."""
    schema = table.schema
    keys = ",".join(schema.primary_keys)
    lines = [_column(field) for field in schema.fields]
    properties = _options(table)
    if any("," in name or name != name.strip() for name in schema.primary_keys):
        listed = ", ".join(map(quoted, schema.primary_keys))
        lines.append(f"PRIMARY KEY ({listed}) NOT ENFORCED")
    elif keys:
        properties["primary-key"] = keys
    parts = [
        f"CREATE TABLE {quoted(database)}.{quoted(_name(table))} (\n  "
        + ",\n  ".join(lines)
        + ")\nUSING paimon"
    ]
    if schema.partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(quoted, schema.partition_keys))})")
    if schema.comment:
        parts.append(f"COMMENT {spelled_string(schema.comment)}")
    if properties:
        pairs = (
            f"  {spelled_string(key)} = {spelled_string(value)}"
            for key, value in sorted(properties.items())
        )
        parts.append("TBLPROPERTIES (\n" + ",\n".join(pairs) + ")")
    return "\n".join(parts)


def described(table: Table, database: str, *, extended: bool) -> pa.Table:
    """The rows of DESCRIBE TABLE: columns and partition keys; with `extended`, also the table."""
    schema = table.schema
    columns = {
        field.name: (field.name, _shown(field), field.description or None)
        for field in schema.fields
    }
    rows: list[tuple[str, str, str | None]] = list(columns.values())
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), (f"# {_COLUMNS[0]}", *_COLUMNS[1:])]
        rows += [columns[key] for key in schema.partition_keys]
    if extended:
        keys = {"primary-key": ",".join(schema.primary_keys)} if schema.primary_keys else {}
        properties = sorted({**_options(table), **keys}.items())
        facts = {
            "": "",
            "# Detailed Table Information": "",
            "Catalog": "spark_catalog",
            "Database": database,
            "Table": _name(table),
            "Type": "MANAGED",
            "Provider": "paimon",
            "Comment": schema.comment or "",
            "Table Properties": f"[{','.join(f'{key}={value}' for key, value in properties)}]",
            "Location": table.path,
        }
        rows += [(name, value, "") for name, value in facts.items()]
    return pa.table(
        {
            name: pa.array([row[place] for row in rows], pa.string())
            for place, name in enumerate(_COLUMNS)
        }
    )


def _name(table: Table) -> str:
    return table.identifier.rpartition(".")[2]


def _options(table: Table) -> dict[str, str]:
    options: Mapping[str, str] = table.schema.stated_options
    return {key: value for key, value in options.items() if key != "path"}


def _column(field: Field) -> str:
    default = ""
    if field.default_value is not None:
        is_string = isinstance(field.type, Atomic) and field.type.root in _STRINGS
        bare = not is_string and _BARE.fullmatch(field.default_value)
        value = field.default_value if bare else spelled_string(field.default_value)
        default = f" DEFAULT {value}"
    comment = f" COMMENT {spelled_string(field.description)}" if field.description else ""
    return f"{quoted(field.name)} {_spelled(field.type)}{default}{comment}"


def _spelled(kind: DataType) -> str:
    """The type as `spark_bridge.sql` reads it."""
    return _bare(kind) + ("" if kind.nullable else " NOT NULL")


def _bare(kind: DataType) -> str:
    match kind:
        case Atomic(root=Root.VARBINARY, length=length) if length == LENGTH_MAX:
            return "BINARY"
        case Atomic(root=Root.TIMESTAMP_LTZ, precision=digits):
            return "TIMESTAMP" if digits == _MICROS else f"TIMESTAMP_LTZ({digits})"
        case Atomic(root=Root.TIMESTAMP, precision=digits):
            return (
                "TIMESTAMP_NTZ" if digits == _MICROS else f"TIMESTAMP({digits}) WITHOUT TIME ZONE"
            )
        case Array(element=element):
            return f"ARRAY<{_spelled(element)}>"
        case Multiset(element=element):
            return f"MULTISET<{_spelled(element)}>"
        case Map(key=key, value=value):
            return f"MAP<{_spelled(key)}, {_spelled(value)}>"
        case Row(fields=fields):
            return f"STRUCT<{', '.join(map(_nested, fields))}>"
        case _:
            return str(with_nullable(kind, nullable=True))


def _nested(field: Field) -> str:
    comment = f" COMMENT {spelled_string(field.description)}" if field.description else ""
    return f"{quoted(field.name)}: {_spelled(field.type)}{comment}"


def _shown(field: Field) -> str:
    """The type as Spark's DESCRIBE shows it."""
    kind = field.type
    if isinstance(kind, Atomic) and kind.root in _STRINGS and kind.length != LENGTH_MAX:
        return _bare(kind).lower()
    return str(to_spark(kind, column=field.name).simpleString())
