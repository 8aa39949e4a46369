"""Every block of docs/tools.md runs: those of `HEAVY` in the environment of `make heavy-tools`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
BLOCK = re.compile(r"^```(py3|ipython)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START, *SECTIONS = re.split(r"^##+ (?=.*\n\n)", PAGE, flags=re.MULTILINE)
MODULE = re.compile(r"`(\w+\.py)`[^\n]*:\n\n```py3\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = {text.partition("\n")[0]: BLOCK.findall(text) for text in SECTIONS if BLOCK.search(text)}
MODULES = {text.partition("\n")[0]: MODULE.findall(text) for text in SECTIONS}
HEAVY = {"Airflow", "PyTorch"}
HERE = sorted(RUNNABLE.keys() & HEAVY if find_spec("airflow") else RUNNABLE.keys() - HEAVY)
AS_CELL = """from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell({!r}).raise_error()"""

SETTINGS = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
}


def test_every_block_of_the_page_is_in_a_section() -> None:
    blocks = [each for found in RUNNABLE.values() for each in found]

    assert [*BLOCK.findall(START), *blocks] == BLOCK.findall(PAGE)
    assert len(RUNNABLE) >= 10
    assert RUNNABLE.keys() >= HEAVY


@pytest.mark.parametrize("name", HERE)
def test_the_blocks_of_the_section_run(name: str, tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    for file, code in MODULES[name]:
        (modules / file).write_text(code)
    own = [each for each in RUNNABLE[name] if each[1] not in dict(MODULES[name]).values()]
    blocks = [*BLOCK.findall(START), *own]
    # A program of its own: tools keep state, threads and event loops.
    program = "\n".join(code for _, code in blocks)
    if any(kind == "ipython" for kind, _ in blocks):
        program = AS_CELL.format(program)
    if MODULES[name]:  # processes import the program that starts them
        program = f"if __name__ == '__main__':\n    exec({program!r})\n"
    (tmp_path / "program.py").write_text(program)
    places = {
        "PYTHONPATH": str(modules),
        "AIRFLOW__CORE__DAGS_FOLDER": str(modules),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PREFECT_HOME": str(tmp_path / "prefect"),
    }
    programs = [["-m", "airflow", "db", "migrate"]] if name == "Airflow" else []
    for each in [*programs, ["program.py"]]:
        done = subprocess.run(
            [sys.executable, *each],
            cwd=tmp_path,
            env={**os.environ, **SETTINGS, **places},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
