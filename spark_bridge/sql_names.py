"""Statements of Delta Lake, as other names for lakecore's verbs.

| statement | runs as |
|---|---|
| `DESCRIBE HISTORY t [LIMIT n]` | a query of `t$snapshots`, newest first |
| `DESCRIBE DETAIL t` | one row: name, path, keys, files, bytes, options |
| `OPTIMIZE t [WHERE condition] [ZORDER BY (columns)]` | a full compaction, or sorting |
| `VACUUM t [RETAIN n HOURS] [DRY RUN]` | expiry of snapshots, and removal of orphan files |
| `RESTORE t TO VERSION AS OF n`, `TO TIMESTAMP AS OF time` | a snapshot with the rows of then |
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed.sql import Kind, tokenize
from spark_bridge.attached_names import attached_table
from spark_bridge.bucket_sql import quoted
from spark_bridge.compact_buckets import compact
from spark_bridge.maintenance import expire_snapshots, remove_orphan_files
from spark_bridge.sql_query import chain_at, query
from spark_bridge.sql_strings import masked, require_plain
from spark_bridge.write_frame import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecore import Table

__all__ = ["by_other_name"]

_SKIPPED = {"TABLE"}


def by_other_name(spark: SparkSession, text: str) -> DataFrame | None:
    """The rows of one of these statements on an attached table; None for every other statement."""
    tokens = tokenize(masked(text))
    words = [token.word for token in tokens]
    _refuse(words)
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


def _refuse(words: Sequence[str]) -> None:
    """Raise Unsupported, with the way out, for what has no equivalent."""
    if words[0] == "INSERT" and any(pair == ("REPLACE", "WHERE") for pair in pairwise(words)):
        raise Unsupported(
            "REPLACE WHERE is not supported: replace partitions by INSERT OVERWRITE t PARTITION "
            "(...), or rows by MERGE with WHEN NOT MATCHED BY SOURCE"
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
