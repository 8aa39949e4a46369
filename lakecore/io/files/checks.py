"""How often the checksums of a data file are compared with its bytes."""

from __future__ import annotations

from enum import Enum


class Checks(Enum):
    """How often checksums are verified: NEVER, ONCE in this process for each file, or ALWAYS."""

    NEVER = "never"
    ONCE = "once"
    ALWAYS = "always"
