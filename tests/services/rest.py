"""Java's REST server, and the Java client, for the tests."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class RuledServer:
    """Java's REST server, told which rows and values each table shows."""

    process: subprocess.Popen[str]
    options: dict[str, str]

    def tell(self, *command: str) -> list[str]:
        """The lines that the program prints for a command of `RestRules.java`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join(command) + "\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline().rstrip("\n")) != "end":
            assert self.process.poll() is None, "the server ended"
            lines.append(line)
        return lines

    def rule(self, *command: str) -> None:
        """Tell the server a rule."""
        assert self.tell(*command) == []


@contextmanager
def ruled_rest_server(version: str, folder: Path) -> Iterator[RuledServer]:
    """Java's REST server in that version, with Java's client in one process."""
    kit = setup.REST_RULES[version]
    setup.set_up(kit)
    path = ":".join([str(setup.classes(kit)), *map(str, setup.jars(kit))])
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path, "RestRules"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, str(folder / "data"), WAREHOUSE, PASSWORD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            options = {
                "metastore": "rest",
                "uri": process.stdout.readline().strip(),
                "warehouse": WAREHOUSE,
                "token.provider": "bear",
                "token": PASSWORD,
            }
            yield RuledServer(process, options)
        finally:
            process.terminate()


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
