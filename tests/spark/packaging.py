"""Lakecore shipped with the job: `python -m tests.spark.packaging DIRECTORY`.

The workers are kept from the checkout, so what they import is what was shipped. Prints where a
worker found lakecore, and whether a write went through.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

import spark_bridge
from tests.spark.conftest import CONF, ROOT
from tests.spark.frames import held, table_at

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = pl.DataFrame({"id": [1, 2, 3], "v": ["a", "b", "c"], "n": [1, 2, 3]})


def zipped(home: Path) -> Path:
    """The packages as one file, as the guide makes it."""
    target = home / "lakecore.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in ("lakecore", "spark_bridge", "pyspark_lakecore"):
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    return target


def main(home: Path) -> None:
    # The driver has found its modules; the workers look in this variable.
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(home)
    builder = SparkSession.builder.master("local[1]").appName("lakecore packaging")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", str(home / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.addArtifacts(str(zipped(home)), pyfile=True)

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lakecore

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [lakecore.__file__]})

    found = spark.range(1).mapInArrow(where, "path string").collect()[0].path
    table = table_at(home / "t", bucket="2")
    df = spark.createDataFrame(ROWS.to_arrow(compat_level=pl.CompatLevel.oldest()))
    spark_bridge.write(df, table)
    sys.stdout.write(json.dumps({"path": found, "rows": held(table)}) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
