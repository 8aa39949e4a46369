"""One Spark session for all tests here; what needs another master runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

# Without PySpark there is nothing to collect: `make spark` installs it, and runs these tests.
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Much code runs a few times: compiling it well, and many threads of a collector, cost more."""
CONF = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine starts Python slowly
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": "/nonexistent",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)
            # PySpark warns of pandas 3, which neither it nor lakecore uses here.
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def spark_environment() -> dict[str, str]:
    """The environment in which Python workers find this interpreter and this checkout."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def answer_of(module: str, home: Path) -> Any:
    """What `python -m tests.spark.MODULE HOME` said in its last line, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.spark.{module}", str(home)],
        cwd=ROOT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores, where a task has three attempts."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    home = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,3]").appName("lakecore tests")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    session = (
        builder.config("spark.python.daemon.module", "spark_bridge.daemon")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -Xss4m {QUICK_JVM}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
