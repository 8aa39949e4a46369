"""What a release must pass: `python -m tests.release`, or `make release-check`.

Builds the sdist, and the wheel from it, into dist/; looks at what they hold; and installs the wheel
in an environment of its own, without the checkout and without extras, where the command and the
code of the README must work, and with its extra the demo. Lists the parts of that environment in a
CycloneDX SBOM beside the packages, in sbom/. Prints each step; ends with 1 at the first that fails.

Between two releases the version ends with `.dev0`. What such a checkout lacks for a release is
said, and is an error where a tag is built: a version with a dated section in the changelog, nothing
above that section, and [project.urls].
"""

from __future__ import annotations

import json
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
from typing import TYPE_CHECKING, Any

from lakecore import __version__
from tests.test_readme import python_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SBOM = ROOT / "sbom"
BUILD = ("build>=1.3", "cyclonedx-bom>=7", "twine>=6.2")
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
    of_tag = os.environ.get("GITHUB_REF_TYPE") == "tag"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        changelog = (ROOT / "CHANGELOG.md").read_text()
        lacking = [*check_changelog(changelog, __version__), *check_urls(project)]
        require_nothing(lacking if of_tag else [])
        with tempfile.TemporaryDirectory() as scratch:
            wheel = _built(Path(scratch))
            _try_installed(wheel, Path(scratch))
    except ReleaseError as error:
        print(f"FAILED: {error}")
        return 1
    print(f"the packages of version {__version__} are in {DIST}, and work")
    print("\n".join(f"before a tag: {each}" for each in lacking) or "they can be released")
    return 0


def check_changelog(text: str, version: str) -> list[str]:
    """What the changelog lacks for a release of this version.

    Raises if its newest version is neither this one nor, for `.dev0`, an earlier one with a date.
    """
    unreleased, *sections = re.split(r"^## (?!\[Unreleased\])", text, flags=re.MULTILINE)
    head = sections[0].partition("\n")[0] if sections else "none"
    found = re.fullmatch(r"\[([0-9.]+)\] - \d{4}-\d\d-\d\d", head)
    if found is None or (found[1] == version) == is_between(version):
        raise ReleaseError(
            f"the newest version in CHANGELOG.md is {head!r}; wanted is '[{version}] - YYYY-MM-DD',"
            " or an earlier one if the version ends with .dev0"
        )
    if is_between(version):
        return [f"{version} is between two releases; see step 1 and 2 of RELEASE.md"]
    news = unreleased.partition("## [Unreleased]")[2].strip()
    return [f"CHANGELOG.md has changes above {version}; they need a version"] if news else []


def require_nothing(lacking: list[str]) -> None:
    """Raise if something lacks."""
    if lacking:
        raise ReleaseError("; ".join(lacking))


def is_between(version: str) -> bool:
    """Whether the version is that of a checkout between two releases."""
    return version.endswith(".dev0")


def check_urls(project: Mapping[str, object]) -> list[str]:
    """What [project.urls] lacks."""
    said = "pyproject.toml has no [project.urls]; state Repository, Documentation and Changelog"
    return [] if project.get("urls") else [said]


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
    python = _environment(scratch / "bare", str(wheel))
    command, home = python.parent / "lakecore", scratch / "home"
    home.mkdir()
    _run("dependencies", python, "-m", "pip", "check")
    said = _run("command", command, "--version", cwd=home)
    if __version__ not in said:
        raise ReleaseError(f"command: `lakecore --version` of the wheel says {said!r}")
    blocks = [code for _, code in python_blocks((ROOT / "README.md").read_text())]
    (home / "readme.py").write_text("\n".join(blocks))
    _run("README", python, "readme.py", cwd=home)
    SBOM.mkdir(exist_ok=True)
    parts = SBOM / f"lakecore-{__version__}.cdx.json"
    builder = scratch / "build" / "bin" / "python"
    _run("SBOM", builder, "-m", "cyclonedx_py", "environment", "--output-file", parts, python)
    check_parts(json.loads(parts.read_text()))
    _run("install", python, "-m", "pip", "install", "--quiet", f"{wheel}[demo]")
    _run("demo", command, "demo", cwd=home)


def check_parts(sbom: Mapping[str, Any]) -> None:
    """Raise unless an SBOM lists lakecore and its largest dependencies, each with a version."""
    listed = {part["name"] for part in sbom["components"] if part.get("version")}
    if lacking := {"lakecore", "duckdb", "polars", "pyarrow"} - listed:
        raise ReleaseError(f"SBOM: lacks {sorted(lacking)}")


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
