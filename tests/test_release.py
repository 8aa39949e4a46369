"""A release's changelog and contents are checked, and the workflows are what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import lakecore
from tests import release

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_changelog_has_a_dated_section_of_the_version() -> None:
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), lakecore.__version__)


@pytest.mark.parametrize(
    "heads", [[], ["## [1.2.0] - unreleased"], ["## [1.1.0] - 2026-01-01"], ["## 1.2.0"]]
)
def test_a_version_without_its_dated_section_is_refused(heads: list[str]) -> None:
    with pytest.raises(release.ReleaseError, match="CHANGELOG"):
        release.check_changelog("\n".join(["# Changelog", *heads]), "1.2.0")


def test_unreleased_changes_stand_above_the_version() -> None:
    release.check_changelog("## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n", "1.2.0")


def test_a_tag_needs_the_addresses_of_the_project() -> None:
    assert "no [project.urls]" in release.check_urls({}, of_tag=False)
    with pytest.raises(release.ReleaseError, match="Repository"):
        release.check_urls({}, of_tag=True)
    assert release.check_urls({"urls": {"Repository": "x"}}, of_tag=True) == "addresses: stated"


def test_files_of_no_package_are_strangers_in_a_wheel() -> None:
    names = ["lakecore/a.py", "tests/test_a.py", "lakecore-1.dist-info/METADATA", "conftest.py"]

    assert release.strangers(names) == ["tests/test_a.py", "conftest.py"]


def test_the_version_is_written_once() -> None:
    assert "version" in _project()["dynamic"]
    assert "version" not in _project()


def test_each_workflow_runs_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]
    for path in WORKFLOWS:
        named = re.findall(r"make ([a-z-]+)|(\.ci/run)", path.read_text())
        assert named
        assert {target for target, _ in named if target} <= targets


def test_only_the_publishing_job_may_ask_for_an_identity() -> None:
    jobs = _yaml(ROOT / ".github" / "workflows" / "release.yml")["jobs"]

    assert [name for name, job in jobs.items() if "id-token" in str(job)] == ["publish"]
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "build"


def test_each_form_asks_for_what_it_needs() -> None:
    assert [path.stem for path in FORMS] == ["bug", "config", "wish"]
    for path in FORMS:
        if path.stem != "config":
            assert {"name", "description", "body"} <= _yaml(path).keys()


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def _yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found
