"""Paimon's own connector for Spark, as statements: `python -m tests.spark.connector WAREHOUSE`.

Runs in the environment of `setup_peers --spark`. A line is a JSON list of SQL statements on the
catalog `p`; the answer is null, or the error. Rows come and go as Parquet files.
"""

from __future__ import annotations

import json
import os
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    "spark.sql.catalog.p": "org.apache.paimon.spark.SparkCatalog",
}


def main(warehouse: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[2]").appName("connector")
    settings = {
        **SETTINGS,
        "spark.jars": os.environ["PAIMON_SPARK_JAR"],
        "spark.sql.catalog.p.warehouse": warehouse,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        error = None
        try:
            for statement in json.loads(line):
                spark.sql(statement)
        except (PySparkException, Py4JError) as failure:
            error = str(failure)[:2000]
        answers.write(json.dumps(error) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
