"""A verb of Java Paimon, timed from outside: its process is started and warm."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.spark_engines import cpu_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report import Figures
    from tests.interop.columns import Json
    from tests.interop.engines import PeerEngine


def by_java(figures: Figures, java: PeerEngine, verb: str, path: Path, **given: Json) -> Json:
    """Add a run of the contender `java`; what the verb returned."""
    worked = cpu_seconds(java.peer.pid)
    began = time.perf_counter()
    answer = java.peer.ask(verb, path=str(path), **given)
    figures.add("java", time.perf_counter() - began, cpu_seconds(java.peer.pid) - worked)
    return answer
