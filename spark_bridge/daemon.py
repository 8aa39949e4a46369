"""The process from which Spark forks Python workers that have lakecore already imported.

Spark starts a daemon on each executor, which forks a worker for each core, and new workers after a
query that ended early (`limit`, `show`) has killed them. By default each worker imports lakecore,
Polars and PyArrow for itself, which takes 1 to 3 seconds of a core. With the setting

    spark.python.daemon.module = spark_bridge.daemon

the daemon imports them once, and the workers share them.

INVARIANT: the daemon runs no query. A forked process has none of the threads of its parent, so a
pool of Polars that the daemon had started would hang in every worker (`lakecore/forks.py`).
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

PRELOADED = (
    "spark_bridge.task",
    "spark_bridge.read_job",
    "spark_bridge.change_job",
    "spark_bridge.compact_tasks",
    "spark_bridge.source",
    "spark_bridge.cdc_decode",
)
"""The modules of tasks; they import what the tasks need."""


def preload() -> None:
    """Import the modules, and exclude their objects from the workers' garbage collection."""
    for name in PRELOADED:
        import_module(name)
    gc.freeze()


if __name__ == "__main__":
    preload()
    manager()
