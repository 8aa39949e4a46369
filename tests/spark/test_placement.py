"""How many tasks the buckets go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from spark_bridge.placement import TASKS_PER_CORE, owner_of, parallelism
from tests.tables import new_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Conf:
    """The settings of a session, and nothing else of it."""

    texts: dict[str, str]

    @property
    def conf(self) -> Conf:
        return self

    def get(self, key: str, default: str) -> str:
        return self.texts.get(key, default)


@pytest.mark.parametrize(
    ("texts", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[2,4]"}, 2),
        ({"spark.master": "local-cluster[2,3,1024]"}, 6),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, 5),
        ({"spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.executor.instances": "5", "spark.dynamicAllocation.enabled": "true"}, 2),
        ({"spark.sql.shuffle.partitions": "200"}, 100),
        ({"spark.master": "local[*]", "spark.sql.shuffle.partitions": "200"}, 100),
        ({"spark.default.parallelism": "9", "spark.master": "local[2]"}, 9),
    ],
)
def test_parallelism_is_what_the_settings_tell(texts: dict[str, str], tasks: int) -> None:
    assert parallelism(cast("SparkSession", Conf(texts))) == tasks


@pytest.mark.parametrize(
    ("partitioned", "buckets", "tasks"),
    [(False, 1, 1), (False, 8, 8), (False, 500, 2 * TASKS_PER_CORE), (True, 1, 4), (True, 8, 8)],
)
def test_a_bucket_is_a_task_up_to_a_bound(
    spark: SparkSession, *, partitioned: bool, buckets: int, tasks: int
) -> None:
    columns = {"p": "INT NOT NULL", "id": "INT NOT NULL"}
    partitions = ["p"] if partitioned else []
    table = new_table(columns, keys=("p", "id"), partitions=partitions, bucket=str(buckets))
    df = spark.createDataFrame([(1, 2)], "p int, id int")

    assert owner_of(df, table.context).tasks == tasks
    assert owner_of(df, table.context, 3).tasks == 3
