from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import spark_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_runs_python(spark: SparkSession) -> None:
    rows = spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()

    assert sorted(row.id for row in rows) == [0, 1, 2]


def test_import_of_the_bridge_alone_loads_no_pyspark() -> None:
    code = "import sys, spark_bridge; print('pyspark' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_public_names_are_listed() -> None:
    assert set(spark_bridge.__all__) <= set(dir(spark_bridge))
