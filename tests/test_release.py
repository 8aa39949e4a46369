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


def test_changelog_and_version_agree() -> None:
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), lakecore.__version__)


@pytest.mark.parametrize(
    ("heads", "version"),
    [
        ([], "1.2.0"),
        (["## [1.2.0] - unreleased"], "1.2.0"),
        (["## [1.1.0] - 2026-01-01"], "1.2.0"),
        (["## 1.2.0"], "1.2.0"),
        (["## [Unreleased]", "## [1.2.0] - today"], "1.3.0.dev0"),
    ],
)
def test_a_version_without_its_dated_section_is_refused(heads: list[str], version: str) -> None:
    with pytest.raises(release.ReleaseError, match="CHANGELOG"):
        release.check_changelog("\n".join(["# Changelog", *heads]), version)


def test_what_a_checkout_lacks_for_a_release_is_said() -> None:
    dated = "## [1.2.0] - 2026-01-02\n\n- first\n"
    before, empty = f"## [Unreleased]\n\n- news\n\n{dated}", f"## [Unreleased]\n\n{dated}"

    assert release.check_changelog(dated, "1.2.0") == []
    assert release.check_changelog(empty, "1.2.0") == []
    assert "need a version" in release.check_changelog(before, "1.2.0")[0]
    assert "between two releases" in release.check_changelog(before, "1.3.0.dev0")[0]
    assert "[project.urls]" in release.check_urls({})[0]
    assert release.check_urls({"urls": {"Repository": "x"}}) == []


def test_a_tag_is_refused_while_something_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.0] - 2026-01-02\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "__version__", "1.2.0")
    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")

    assert release.main() == 1
    assert "no [project.urls]" in capsys.readouterr().out


def test_an_sbom_lists_lakecore_and_what_it_needs() -> None:
    names = ("lakecore", "duckdb", "polars", "pyarrow")
    parts = [{"name": name, "version": "1"} for name in names]
    release.check_parts({"components": parts})
    with pytest.raises(release.ReleaseError, match="polars"):
        release.check_parts({"components": [each for each in parts if each["name"] != "polars"]})


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


def test_a_release_has_its_parts_and_its_pages() -> None:
    jobs = _yaml(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    writing = {name for name, job in jobs.items() if "write" in str(job.get("permissions"))}
    files, pages = (str(jobs[name]["steps"][-1]) for name in ("attach", "docs"))

    assert writing == {"publish", "attach", "docs"}
    assert {jobs[name]["needs"] for name in ("attach", "docs")} == {"publish"}
    assert re.search(r"gh release create.* dist/\* sbom/\*", files)
    assert "make docs-version ARGS=--push" in pages
    assert "mike>=" in str(_project()["optional-dependencies"]["docs"])


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
