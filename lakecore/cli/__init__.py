"""Commands over the verbs of a session and a table. `main` is the program `lakecore`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakecore.cli.output import INTERRUPTED
from lakecore.deferred import deferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cli.app import main as run_program
else:
    run_program = deferred("lakecore.cli.app", "main")

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its code.

    The program is imported by the call, so that Ctrl-C during the imports shows no traceback.
    """
    try:
        run_program(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(INTERRUPTED) from None
