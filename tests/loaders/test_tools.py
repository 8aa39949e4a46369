"""Every block of docs/tools.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
BLOCK = re.compile(r"^```(py3|ipython)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START, *SECTIONS = re.split(r"^##+ (?=.*\n\n)", PAGE, flags=re.MULTILINE)
RUNNABLE = {text.partition("\n")[0]: BLOCK.findall(text) for text in SECTIONS if BLOCK.search(text)}
AS_CELL = """from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell({!r}).raise_error()"""

SLOW_MACHINE = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180"}


def test_every_block_of_the_page_is_in_a_section() -> None:
    blocks = [each for found in RUNNABLE.values() for each in found]

    assert [*BLOCK.findall(START), *blocks] == BLOCK.findall(PAGE)
    assert len(RUNNABLE) >= 9


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_blocks_of_the_section_run(name: str, tmp_path: Path) -> None:
    blocks = [*BLOCK.findall(START), *RUNNABLE[name]]
    # A program of its own: tools keep state, threads and event loops.
    program = "\n".join(code for _, code in blocks)
    if any(kind == "ipython" for kind, _ in blocks):
        program = AS_CELL.format(program)
    if "tasks.prepare" in program:  # processes import the program that starts them
        tasks = blocks.pop(1)[1]
        (tmp_path / "tasks.py").write_text(tasks)
        program = f"if __name__ == '__main__':\n    exec({program.replace(tasks, '')!r})\n"
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **SLOW_MACHINE, "PREFECT_HOME": str(tmp_path / "prefect")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
