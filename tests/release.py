"""What a release must pass: `python -m tests.release`, or `make release-check`.

Builds the sdist, and the wheel from it, into dist/; looks at what they hold; and installs the wheel
in an environment of its own, without the checkout, where the command, the demo and the code of the
README must work. The changelog must have a dated section of the version. Prints each step; ends
with 1 at the first that fails. Where the tag of a release is built, [project.urls] must be stated.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore import __version__
from tests.test_readme import python_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BUILD = ("build>=1.3", "twine>=6.2")
PACKAGES = ("lakecore", "spark_bridge", "pyspark_lakecore", "pytest_lakecore")
WANTED_IN_WHEEL = (
    *(
        "lakecore/py.typed",
        "lakecore/cli/__init__.py",
        "lakecore/dbt/paimon.sql",
        "lakecore/testing/golden.tar.xz",
    ),
    *("spark_bridge/__init__.py", "pytest_lakecore/__init__.py"),
)
WANTED_IN_SDIST = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "Makefile")
WHEEL_BYTES_MAX = 4_000_000


class ReleaseError(Exception):
    """A step of the check failed; the message says why."""


def main() -> int:
    """Returns 0 if a release of this checkout can be published."""
    try:
        check_changelog((ROOT / "CHANGELOG.md").read_text(), __version__)
        print(f"changelog: version {__version__} has a dated section")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        print(check_urls(project, of_tag=os.environ.get("GITHUB_REF_TYPE") == "tag"))
        with tempfile.TemporaryDirectory() as scratch:
            wheel = _built(Path(scratch))
            _try_installed(wheel, Path(scratch))
    except ReleaseError as error:
        print(f"FAILED: {error}")
        return 1
    print(f"version {__version__} can be released: {DIST}")
    return 0


def check_changelog(text: str, version: str) -> None:
    """Raise if the newest version of a changelog is another one, or has no date."""
    heads = [
        line for line in re.findall(r"^## (.*)$", text, re.MULTILINE) if line != "[Unreleased]"
    ]
    if (
        not heads
        or re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", heads[0]) is None
    ):
        found = heads[0] if heads else "none"
        raise ReleaseError(
            f"the newest version in CHANGELOG.md is {found!r}; wanted is '[{version}] - YYYY-MM-DD'"
        )


def check_urls(project: Mapping[str, object], *, of_tag: bool) -> str:
    """What there is to say of [project.urls]. Raises for a tag if the table lacks them."""
    if project.get("urls"):
        return "addresses: stated"
    said = "pyproject.toml has no [project.urls]; state Repository, Documentation and Changelog"
    if of_tag:
        raise ReleaseError(said)
    return f"addresses: {said} before a tag"


def strangers(names: list[str]) -> list[str]:
    """The files of a wheel that are of no package and not about the wheel."""
    return [
        name for name in names if name.split("/")[0] not in PACKAGES and ".dist-info/" not in name
    ]


def _built(scratch: Path) -> Path:
    shutil.rmtree(DIST, ignore_errors=True)
    python = _environment(scratch / "build", *BUILD)
    _run("build", python, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run("metadata", python, "-m", "twine", "check", "--strict", wheel, sdist)
    names = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lacking = [*({*WANTED_IN_WHEEL} - {*names}), *({*WANTED_IN_SDIST} - inside)]
    if strangers(names) or lacking or wheel.stat().st_size > WHEEL_BYTES_MAX:
        raise ReleaseError(
            f"contents: too much {strangers(names)[:5]}, lacking {lacking}, "
            f"wheel of {wheel.stat().st_size} bytes (at most {WHEEL_BYTES_MAX})"
        )
    print(f"contents: {len(names)} files in {wheel.name}, {len(inside)} in {sdist.name}")
    return wheel


def _try_installed(wheel: Path, scratch: Path) -> None:
    python = _environment(scratch / "bare", f"{wheel}[demo]")
    command, home = python.parent / "lakecore", scratch / "home"
    home.mkdir()
    _run("dependencies", python, "-m", "pip", "check")
    said = _run("command", command, "--version", cwd=home)
    if __version__ not in said:
        raise ReleaseError(f"command: `lakecore --version` of the wheel says {said!r}")
    blocks = [code for _, code in python_blocks((ROOT / "README.md").read_text())]
    (home / "readme.py").write_text("\n".join(blocks))
    _run("README", python, "readme.py", cwd=home)
    _run("demo", command, "demo", cwd=home)


def _environment(folder: Path, *packages: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run("install", python, "-m", "pip", "install", "--quiet", *packages)
    return python


def _run(step: str, *command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{step}: {' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    print(f"{step}: ok")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
