"""How often the checksums of a data file are compared with its bytes."""

from __future__ import annotations

from enum import Enum


class Checks(Enum):
    """NEVER, at the first read of a file in this process (ONCE), or at each read (ALWAYS)."""

    NEVER = "never"
    ONCE = "once"
    ALWAYS = "always"
