"""`lakecore version` and `lakecore demo`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore import __version__
from lakecore.cli.arguments import Form, Format, Verbs, flag, switch
from lakecore.cli.printing import say
from lakecore.deferred import deferred

if TYPE_CHECKING:
    from lakecore.demo import play
else:
    play = deferred("lakecore.demo", "play")

commands = Verbs()


@commands("version")
def version(form: Form) -> None:
    """Print the version."""
    texts = {
        Format.TABLE: __version__,
        Format.JSON: f'{{"version":"{__version__}"}}',
        Format.CSV: f"version\n{__version__}",
    }
    if form not in texts:
        raise typer.BadParameter("the version is text, JSON or CSV")
    say(texts[form])


@commands("demo")
def demo(
    path: Annotated[
        str | None, flag("DIRECTORY", "Directory of the warehouse. Default: a new one.")
    ] = None,
    *,
    keep: Annotated[bool, switch("Keep the table afterwards.", "--keep/--no-keep")] = True,
) -> None:
    """Show what lakecore does, with a year of real flights."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-demo-") if path is None else path
    made_here = path is None or not Path(warehouse).exists()
    try:
        play(warehouse, stays=keep)
    finally:
        if not keep and made_here:
            shutil.rmtree(warehouse, ignore_errors=True)
