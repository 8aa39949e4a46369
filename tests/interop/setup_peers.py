"""Installs the peers: `python -m tests.interop.setup_peers` prints the folder that holds them.

With `--spark` it installs Paimon's own connector for Spark in their place, and a Spark for it.

The folder is `$LAKECORE_PEERS`, or `~/.cache/lakecore-peers`. In it:

- `venv/`: pypaimon, paimon-rust (as pypaimon's native path) and JPype; they pin old versions of
  libraries that lakecore uses, so they never share its environment;
- `jars/`: Java Paimon and the Hadoop client it needs, fetched by Maven;
- `spark-venv/`: the newest PySpark that the connector runs on, which is older than lakecore's;
- `lakes-venv/`: DuckLake, delta-rs and PyIceberg, for a benchmark, and readers of Iceberg.

Each part is built once, under a lock, and again when what it should hold has changed. A missing
Java, Maven or package is an error: a suite that skips its peers proves nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JAVA_ENGINES = {
    "1.4.2": "org.apache.paimon:paimon-bundle:1.4.2",
    "0.9.0": "org.apache.paimon:paimon-bundle:0.9.0",
    "2.0.0": "org.apache.paimon:paimon-flink-2.0:2.0.0",  # has all of Paimon, and needs no Flink
}
PACKAGES = ("pypaimon==2.1.0", "pypaimon-rust==0.4.0", "datafusion>=54,<55", "JPype1==1.7.1")
SPARK_PACKAGES = ("pyspark==3.5.7", "numpy<2", "pandas<3", "pyarrow", "setuptools")
LAKE_PACKAGES = (
    *("numpy", "polars", "pyarrow", "duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5"),
    *("duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5"),
    *("duckdb-extension-httpfs==1.5.5", "JPype1==1.7.1"),
    *("deltalake==1.6.6", "pyiceberg[sql-sqlite,hive,pyarrow,snappy]==0.12.0"),
)
SPARK_JAR = "org.apache.paimon:paimon-spark-3.5:0.9.0"
ICEBERG_JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0",  # has all of Iceberg, and Parquet
    "com.github.luben:zstd-jni:1.5.6-6",
)
SHARED_JARS = (
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-nop:1.7.36",
    "commons-logging:commons-logging:1.2",
    "org.lz4:lz4-java:1.8.0",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)


def peers_home() -> Path:
    """The folder that holds the peers."""
    chosen = os.environ.get("LAKECORE_PEERS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "lakecore-peers"


def python() -> Path:
    """The interpreter of the peers' own environment."""
    return peers_home() / "venv" / "bin" / "python"


def spark_python() -> Path:
    """The interpreter of the connector's environment."""
    return peers_home() / "spark-venv" / "bin" / "python"


def lakes_python() -> Path:
    """The interpreter of the environment of other lakes."""
    return peers_home() / "lakes-venv" / "bin" / "python"


def spark_jar() -> Path:
    """Paimon's connector for Spark."""
    return _jar(SPARK_JAR)


def jars(version: str) -> list[Path]:
    """The class path of Java Paimon in one version."""
    return [_jar(coordinate) for coordinate in (*SHARED_JARS, JAVA_ENGINES[version])]


def iceberg_spark_jar() -> Path:
    """Iceberg's runtime for Spark."""
    return _jar(ICEBERG_JARS[0])


def iceberg_jars() -> list[Path]:
    """The class path of Iceberg's own Java library."""
    return [_jar(coordinate) for coordinate in (*SHARED_JARS, *ICEBERG_JARS)]


def set_up() -> Path:
    """Install what is missing; return the folder. Safe to call from many processes at once."""
    home = peers_home()
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lock"):
        _require("java", "Java 17 or newer")
        _install_packages(home / "venv", PACKAGES)
        missing = [
            coordinate
            for coordinate in (*SHARED_JARS, *JAVA_ENGINES.values())
            if not _jar(coordinate).exists()
        ]
        for coordinate in dict.fromkeys(missing):
            _fetch_jar(coordinate)
    return home


def set_up_spark() -> Path:
    """Install the connector for Spark and what it runs on, if missing; return the folder."""
    home = peers_home()
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "spark-lock"):
        _require("java", "Java 17 or newer")
        _install_packages(home / "spark-venv", SPARK_PACKAGES)
        if not spark_jar().exists():
            _fetch_jar(SPARK_JAR)
    return home


def set_up_lakes() -> Path:
    """Install other lakes for a benchmark, if missing; return the folder."""
    home = peers_home()
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lakes-lock"):
        _install_packages(home / "lakes-venv", LAKE_PACKAGES)
    return home


def set_up_iceberg_spark() -> Path:
    """Install the Spark of the connector, and Iceberg's runtime for it; return the folder."""
    home = set_up_spark()
    with _locked(home / "lock"):
        if not iceberg_spark_jar().exists():
            _fetch_jar(ICEBERG_JARS[0])
    return home


def set_up_iceberg() -> Path:
    """Install the readers of Iceberg, if missing; return the folder."""
    home = set_up_lakes()
    with _locked(home / "lock"):
        for coordinate in (*SHARED_JARS, *ICEBERG_JARS):
            if not _jar(coordinate).exists():
                _fetch_jar(coordinate)
    return home


def _install_packages(home: Path, packages: Sequence[str]) -> None:
    wanted = "\n".join((sys.version, *packages))
    ready = home / "ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return
    _say(f"installing {', '.join(packages)} into {home}")
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip"]
    _run([*pip, "install", "--quiet", "--no-input", *packages])
    ready.write_text(wanted, encoding="utf-8")


def _jar(coordinate: str) -> Path:
    _, artifact, version = coordinate.split(":")
    return peers_home() / "jars" / f"{artifact}-{version}.jar"


def _fetch_jar(coordinate: str) -> None:
    _require("mvn", "Maven")
    _say(f"fetching {coordinate}")
    jar = _jar(coordinate)
    arriving = jar.parent / f"{jar.stem}.arriving"
    _run(
        [
            *("mvn", "-q", "-B", "dependency:copy"),
            f"-Dartifact={coordinate}",
            f"-DoutputDirectory={arriving}",
        ]
    )
    (arriving / jar.name).replace(jar)
    arriving.rmdir()


def _require(command: str, what: str) -> None:
    if shutil.which(command) is None:
        message = f"the interop suite needs {what}: no `{command}` on the path"
        raise SystemExit(message)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    if done.returncode != 0:
        message = f"failed with {done.returncode}: {' '.join(command)}\n{done.stdout}"
        raise SystemExit(message)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    sys.stderr.write(f"setup_peers: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.stdout.write(f"{set_up_spark() if '--spark' in sys.argv[1:] else set_up()}\n")
