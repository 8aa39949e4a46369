"""The pictures by the names of their files in docs/img."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pictures.commit import commit
from tests.pictures.figures import layers, speed
from tests.pictures.growth import growth
from tests.pictures.tables import bucket, engines, read, snapshots

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PICTURES: dict[str, Callable[[Path], str]] = {
    "bucket": bucket,
    "merge-engines": engines,
    "commit": commit,
    "snapshots": snapshots,
    "read": read,
    "layers": layers,
    "speed": speed,
    "growth": growth,
}
