"""Installs the servers and clients of this suite: `python -m tests.services.setup`.

They are kept in `services/` of the folder that `tests/interop/setup_peers.py` chooses. Each
`Kit` is a list of Maven's artifacts and, where it needs one, a small Java program; `tools.py` has
the others. All are built once, under a lock, and again when what they are made of has changed.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.interop.setup_peers import peers_home
from tests.services import tools

HERE = Path(__file__).parent
HADOOP = (
    "org.apache.hadoop:hadoop-client-api:3.3.6",
    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
)
DRIVERS = (
    "org.xerial:sqlite-jdbc:3.54.1.0",
    "org.postgresql:postgresql:42.7.7",
    "org.mariadb.jdbc:mariadb-java-client:3.5.3",
)
SMALL = (
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-nop:1.7.36",
    "commons-logging:commons-logging:1.2",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.lz4:lz4-java:1.8.0",
)


@dataclass(frozen=True)
class Kit:
    """A class path. `alone` are artifacts without what they depend on.

    `fetched` are copied without their descriptions, which name parents that nobody serves.
    """

    name: str
    alone: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # with what they depend on, but for `without`
    without: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    source: str | None = None


HIVE = Kit(
    name="hive-metastore",
    alone=(
        *HADOOP,
        "commons-cli:commons-cli:1.5.0",
        "commons-collections:commons-collections:3.2.2",
    ),
    whole=("org.apache.hive:hive-standalone-metastore:3.1.3",),
    without=(
        "com.github.joshelser:dropwizard-metrics-hadoop-metrics2-reporter",
        "jdk.tools:jdk.tools",
        "org.apache.hadoop:*",
    ),
    source="Launch.java",
)
PAIMON_HIVE = Kit(
    name="paimon-hive",
    alone=(
        "org.apache.paimon:paimon-hive-connector-3.1:1.2.0",
        "org.apache.hive:hive-exec:3.1.3",
        "org.apache.thrift:libfb303:0.9.3",
        "org.apache.thrift:libthrift:0.9.3",
        "commons-lang:commons-lang:2.6",
        "commons-collections:commons-collections:3.2.2",
        *HADOOP,
        *SMALL,
    ),
    source="JavaCatalog.java",
)
HIVE_VIEWS = replace(PAIMON_HIVE, name="paimon-hive-views", source="JavaViews.java")
HIVE_STATISTICS = replace(PAIMON_HIVE, name="paimon-hive-statistics", source="JavaStatistics.java")
PAIMON = Kit(
    name="paimon-1.4.2",
    alone=("org.apache.paimon:paimon-bundle:1.4.2", *HADOOP, *SMALL, *DRIVERS),
    source="JavaCatalog.java",
)
MOCK_SERVER = ("com.squareup.okhttp3:mockwebserver:4.12.0", "junit:junit:4.13.2")
REST_SERVERS = {
    "1.4.2": Kit(
        name="rest-server-1.4.2",
        alone=(
            "org.apache.paimon:paimon-bundle:1.4.2",
            "org.apache.paimon:paimon-core:1.4.2:tests",
            *HADOOP,
            *SMALL,
        ),
        whole=MOCK_SERVER,
        source="RestServer.java",
    ),
    "2.0.0": Kit(
        name="rest-server-2.0.0",
        alone=(*HADOOP, *SMALL),
        fetched=(
            "org.apache.paimon:paimon-core:2.0.0:jar:tests",
            "org.apache.paimon:paimon-flink-2.0:2.0.0",
        ),
        whole=MOCK_SERVER,
        source="RestServer.java",
    ),
}
"""Java's own REST server, which is in the jar of its tests."""
REST_RULES = {
    version: replace(kit, name=f"rest-rules-{version}", source="RestRules.java")
    for version, kit in REST_SERVERS.items()
}
"""The same servers, told which rows and values each table shows."""
ICEBERG_REST = Kit(
    name="iceberg-rest-1.10.1",
    alone=("org.apache.iceberg:iceberg-core:1.10.1:tests", "org.xerial:sqlite-jdbc:3.54.1.0"),
    whole=(
        "org.apache.iceberg:iceberg-core:1.10.1",
        "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.0.16",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
    source="IcebergRest.java",
)
"""Iceberg's own REST server, which is in the jar of its tests."""
MINI_HDFS = Kit(
    name="mini-hdfs",
    alone=(
        *HADOOP,
        "org.apache.hadoop:hadoop-client-minicluster:3.3.6",
        "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-simple:1.7.36",
        "ch.qos.reload4j:reload4j:1.2.25",
        "javax.xml.bind:jaxb-api:2.3.1",
        "commons-logging:commons-logging:1.2",
    ),
    source="MiniHdfs.java",
)
SECURE_HDFS = replace(
    MINI_HDFS,
    name="secure-hdfs",
    whole=("org.apache.kerby:kerb-simplekdc:1.0.1",),
    source="SecureHdfs.java",
)
"""HDFS that asks for Kerberos, and Apache Kerby, a server of Kerberos."""
KAFKA = Kit(
    name="kafka-4.1.2",
    whole=("org.apache.kafka:kafka_2.13:4.1.2", "org.slf4j:slf4j-nop:1.7.36"),
)
DEBEZIUM = Kit(
    name="debezium-3.4.0",
    whole=(
        "io.debezium:debezium-embedded:3.4.0.Final",
        "io.debezium:debezium-connector-mariadb:3.4.0.Final",
        "org.slf4j:slf4j-nop:2.0.17",
    ),
    source="Changes.java",
)
"""Debezium reads MariaDB and prints its events."""
PAIMON_VIEWS = Kit(
    name="paimon-views-2.0.0",
    alone=(*HADOOP, *SMALL, *DRIVERS),
    fetched=("org.apache.paimon:paimon-flink-2.0:2.0.0",),
    source="JavaViews.java",
)
"""The first version of Java whose JDBC catalog stores views."""
KITS = (
    *(HIVE, PAIMON_HIVE, HIVE_VIEWS, HIVE_STATISTICS, PAIMON, PAIMON_VIEWS),
    *REST_SERVERS.values(),
    *REST_RULES.values(),
    *(ICEBERG_REST, MINI_HDFS, SECURE_HDFS, KAFKA, DEBEZIUM),
)


def jars(kit: Kit) -> list[Path]:
    """The jars of a kit."""
    return sorted((_home(kit) / "lib").glob("*.jar"))


def classes(kit: Kit) -> Path:
    """Where the compiled program of a kit is."""
    return _home(kit) / "classes"


def set_up(kit: Kit) -> None:
    """Install a kit if it is missing. Safe to call from many processes at once."""
    home = _home(kit)
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{kit.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = "" if kit.source is None else (HERE / kit.source).read_text(encoding="utf-8")
        wanted = f"{kit!r}\n{source}"
        ready = home / "ready"
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            return
        sys.stderr.write(f"installing {kit.name} into {home}\n")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        (home / "pom.xml").write_text(_pom(kit), encoding="utf-8")
        _run(
            *("mvn", "-q", "-B", "-f", str(home / "pom.xml"), "dependency:copy-dependencies"),
            *("-DoutputDirectory=lib", "-DincludeScope=runtime"),
        )
        for artifact in kit.fetched:
            _run(
                *("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"),
                f"-DoutputDirectory={home / 'lib'}",
            )
        if kit.source is not None:
            _run(
                "javac",
                "-nowarn",
                "-cp",
                f"{home}/lib/*",
                "-d",
                str(classes(kit)),
                str(HERE / kit.source),
            )
        ready.write_text(wanted, encoding="utf-8")


def _home(kit: Kit) -> Path:
    return peers_home() / "services" / kit.name


def _pom(kit: Kit) -> str:
    everything = _exclusions(("*:*",))
    dependencies = "".join(
        [
            *(_dependency(each, everything) for each in kit.alone),
            *(_dependency(each, _exclusions(kit.without)) for each in kit.whole),
        ]
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>tests</groupId><artifactId>{kit.name}</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _dependency(coordinate: str, exclusions: str) -> str:
    group, artifact, version, *classifier = coordinate.split(":")
    chosen = "".join(f"<classifier>{each}</classifier>" for each in classifier)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{chosen}{exclusions}</dependency>"
    )


def _exclusions(names: tuple[str, ...]) -> str:
    parts = (name.split(":") for name in names)
    return (
        "<exclusions>"
        + "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
            for group, artifact in parts
        )
        + "</exclusions>"
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        message = f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}"
        raise SystemExit(message)


if __name__ == "__main__":
    for each in KITS:
        set_up(each)
    tools.fake_gcs_server()
    tools.azurite()
