"""Java's REST server, and the Java client, for the tests."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.services import setup
from tests.services.servers import PASSWORD, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

WAREHOUSE = "wh"


@contextmanager
def java_rest_server(version: str, folder: Path) -> Iterator[dict[str, str]]:
    """The options of a client of Java's REST server in that version."""
    kit = setup.REST_SERVERS[version]
    setup.set_up(kit)
    path = ":".join([str(setup.classes(kit)), *map(str, setup.jars(kit))])
    address = folder / "address"
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path, "RestServer"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(folder / "data"), WAREHOUSE, PASSWORD, str(address)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            eventually(address.read_text, f"Java's REST server {version}")
            yield {
                "metastore": "rest",
                "uri": address.read_text(),
                "warehouse": WAREHOUSE,
                "token.provider": "bear",
                "token": PASSWORD,
            }
        finally:
            process.terminate()
            process.wait(30)


def java(options: Mapping[str, str], *verbs: str) -> list[str]:
    """What Java's client prints for each verb of `JavaCatalog.java`."""
    setup.set_up(setup.PAIMON)
    path = ":".join([str(setup.classes(setup.PAIMON)), *map(str, setup.jars(setup.PAIMON))])
    done = subprocess.run(
        [
            *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path, "JavaCatalog"),
            *(f"{key}={text}" for key, text in options.items()),
            "--",
            *verbs,
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
