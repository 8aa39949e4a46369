"""Java's catalogs as peers: one process a call, which runs a list of verbs (`JavaCatalog.java`)."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.services.setup import classes, jars, set_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.services.setup import Kit

MINUTES = 4
# Paimon's memory segments reach into java.nio.
OPENED = ("java.base/java.nio", "java.base/java.lang", "java.base/sun.nio.ch")


def command(kit: Kit, options: Mapping[str, str], *verbs: str) -> list[str]:
    """The command that runs these verbs on the catalog of the options."""
    set_up(kit)
    return [
        *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
        *("-cp", ":".join([str(classes(kit)), *map(str, jars(kit))])),
        (kit.source or "JavaCatalog.java").removesuffix(".java"),
        *(f"{key}={text}" for key, text in options.items()),
        "--",
        *verbs,
    ]


def java(kit: Kit, options: Mapping[str, str], *verbs: str) -> list[str]:
    """What Java's catalog answers to each verb. Its failure is this test's."""
    done = subprocess.run(
        command(kit, options, *verbs),
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=MINUTES * 60,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-6000:]}"
    return done.stdout.splitlines()[-len(verbs) :]
