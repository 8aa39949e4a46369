"""Settings of a Spark session that a job of the bridge changes while it runs, and then restores.

If the platform does not allow a change, the setting stays as it is: the changes only save time.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql.types import BooleanType, DatetimeType, NumericType, StringType, StructType

from lakecore import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

VERSION_MIN = (4, 1)
"""The first version with `repartitionById` and `applyInArrow` on iterators."""

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BY_ROWS = {_RECORDS: "1024", _BYTES: str(2**31 - 1)}
"""A batch for Python ends after some rows. With an additional limit in bytes, Spark computes the
size of the batch again for each row, which costs a quarter of the conversion time."""
BY_BYTES = {_RECORDS: "100000"}
"""Spark's own limit of bytes ends a batch, so that rows may have any size."""
_TEXTS_MAX = 16
GROUPS = {
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Adaptive execution would put the groups of all buckets into one task. The result of a group must
have exactly the Arrow types of its schema, and the outcome has no large types."""

_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_TASKS_PER_CORE = 8
"""Spark estimates uncompressed rows. If the shuffle compresses them to a quarter, two tasks per
core result."""
_TASK_BYTES_MIN = 4 << 20
_TASK_BYTES_UNKNOWN = 16 << 20
_TASK_BYTES_MAX = 64 << 20

_SMALL = (NumericType, DatetimeType, BooleanType, StringType)

_DESCRIPTION = "spark.job.description"
_GROUP = "spark.jobGroup.id"


def require_version(spark: SparkSession) -> None:
    """Raise Unsupported for a Spark that is too old, InvalidRequest if `spark` is no session."""
    version = getattr(spark, "version", None)
    if not isinstance(version, str) or not hasattr(spark, "catalog"):
        raise InvalidRequest(
            "the first argument is the Spark session", given=f"a {type(spark).__name__}"
        )
    if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
        raise Unsupported("spark_bridge needs Spark 4.1 or newer", version=version)


def transfer(spark: SparkSession, schema: StructType) -> Mapping[str, str]:
    """Settings for how the JVM cuts rows of these columns into batches for Python.

    The settings limit the bytes of a batch, because binaries, nested values and many strings may
    have any size. A limit that the user has set is kept.
    """
    types = [field.dataType for field in schema.fields]
    texts = sum(isinstance(each, StringType) for each in types)
    small = all(isinstance(each, _SMALL) for each in types) and texts <= _TEXTS_MAX
    return BY_ROWS if small and _of_user(spark, _BYTES) is None else BY_BYTES


def rebalanced(df: DataFrame, parallelism: int) -> Mapping[str, str]:
    """Settings for the task size of a rebalanced frame, in bytes of the shuffle.

    Every core gets a task, but no task is smaller than `_TASK_BYTES_MIN` or larger than Spark's own
    default. A size that the user has set is kept. Spark's estimate counts rows uncompressed; Spark
    Connect has no estimate.
    """
    if _of_user(df.sparkSession, _ADVISORY) is not None:
        return {}
    try:
        plan = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  Spark's only way
        size = int(plan.stats().sizeInBytes())
    except PySparkException:
        size = _TASK_BYTES_UNKNOWN * parallelism * _TASKS_PER_CORE
    share = size // (parallelism * _TASKS_PER_CORE)
    return {_ADVISORY: f"{min(max(share, _TASK_BYTES_MIN), _TASK_BYTES_MAX)}b"}


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session inside the `with` block.

    Concurrent jobs share the change: the last job to end restores the values from before the first.
    """
    with ExitStack() as undo:
        for key, value in wanted.items():
            with _CHANGING:
                held = _CHANGED.setdefault(spark, {})
                try:
                    found = held.get(key) or _Changed(spark.conf.get(key, None))
                    spark.conf.set(key, value)
                except PySparkException:
                    continue
                found.jobs += 1
                held[key] = found
            undo.callback(_put_back, spark, key)
        yield


@dataclass(slots=True)
class _Changed:
    """The previous value of a setting, and the number of jobs that have changed it since."""

    before: str | None
    jobs: int = 0


_CHANGING = Lock()
_CHANGED: WeakKeyDictionary[SparkSession, dict[str, _Changed]] = WeakKeyDictionary()


def _put_back(spark: SparkSession, key: str) -> None:
    with _CHANGING:
        changed = _CHANGED[spark][key]
        changed.jobs -= 1
        if changed.jobs:
            return
        del _CHANGED[spark][key]
        if changed.before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, changed.before)


def _of_user(spark: SparkSession, key: str) -> str | None:
    """The value of a setting without the changes of running jobs."""
    with _CHANGING:
        changed = _CHANGED.get(spark, {}).get(key)
        return spark.conf.get(key, None) if changed is None else changed.before


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a classic session; None under Spark Connect."""
    try:
        return spark.sparkContext
    except PySparkException:
        return None


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Name the jobs that start inside the block in Spark's UI: by tag, group and description.

    Under Spark Connect, only tags are set.
    """
    tag = text.replace(",", " ")
    context = context_of(spark)
    with ExitStack() as undo:
        spark.addTag(tag)
        undo.callback(spark.removeTag, tag)
        if context is not None:
            for key, value in ((_GROUP, text), (_DESCRIPTION, text)):
                before = context.getLocalProperty(key)
                # Keep the user's own group, by which the user cancels jobs.
                if key == _GROUP and before is not None:
                    continue
                context.setLocalProperty(key, value)
                undo.callback(context.setLocalProperty, key, before)
        yield
