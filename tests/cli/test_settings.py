"""Profiles, variables and flags: which one decides, and that no message shows a secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main
from lakecore.cli.settings import PROFILE, settings
from lakecore.errors import InvalidRequest, NotFound
from lakecore.memory import process_budget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = """
[profile.default]
warehouse = "by-default"

[profile.prod]
warehouse = "by-profile"
memory = "96 mb"
s3.endpoint = "http://minio:9000"
"s3.secret-key" = "hunter2hunter2"
commit.single-writer = true
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of the machine, and the memory budget as before."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("CONFIG", "PROFILE", "WAREHOUSE", "MEMORY"):
        monkeypatch.delenv(f"LAKECORE_{name}", raising=False)
    before = process_budget().size_bytes
    token = PROFILE.set(None)
    yield
    PROFILE.reset(token)
    process_budget().set_size(before)


def write(tmp_path: Path, text: str = FILE) -> None:
    place = tmp_path / "config" / "lakecore"
    place.mkdir(parents=True)
    (place / "config.toml").write_text(text)


def test_without_file_and_variables_nothing_is_set() -> None:
    assert settings().warehouse is None
    assert settings().options == {}


def test_order_is_named_profile_variable_profile_of_a_variable_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    assert settings().warehouse == "by-default"
    monkeypatch.setenv("LAKECORE_PROFILE", "prod")
    assert settings().warehouse == "by-profile"
    monkeypatch.setenv("LAKECORE_WAREHOUSE", "by-variable")
    assert settings().warehouse == "by-variable"
    PROFILE.set("prod")

    assert settings().warehouse == "by-profile"


def test_profile_has_options_and_memory(tmp_path: Path) -> None:
    write(tmp_path)
    PROFILE.set("prod")
    found = settings()

    assert found.options == {
        "s3.endpoint": "http://minio:9000",
        "s3.secret-key": "hunter2hunter2",
        "commit.single-writer": "true",
    }
    assert process_budget().size_bytes == 96 << 20
    assert "hunter2" not in repr(found)


def test_memory_of_a_variable_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECORE_MEMORY", "much")

    with pytest.raises(InvalidRequest, match="LAKECORE_MEMORY is a size such as '2 gb'"):
        settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profile.prod", "not valid TOML"),
        ("warehouse = 'x'", r"tables \[profile.NAME\] only. .*found=\[warehouse\]"),
        ("profile.prod = 3", r"a profile is a table"),
        ("[profile.prod]\nwarehouse = ['x']", "a value of a profile is a text, a number"),
    ],
)
def test_wrong_files_are_errors(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text)

    with pytest.raises(InvalidRequest, match=message):
        settings()


def test_unknown_profiles_and_files_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    PROFILE.set("prd")
    with pytest.raises(NotFound, match=r"profile=prd .*known=\[default, prod\]"):
        settings()
    monkeypatch.setenv("LAKECORE_CONFIG", str(tmp_path / "nowhere.toml"))
    with pytest.raises(NotFound, match="no configuration file"):
        settings()


def test_profile_may_follow_the_command_and_a_flag_comes_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        lc.connect(tmp_path / name, create=True).create_database(name)
        lc.connect(tmp_path / name).create_table(f"{name}.t", {"id": "INT"})
    write(tmp_path, f"[profile.one]\nwarehouse = '{tmp_path / 'one'}'\n")
    seen = []
    for arguments in (
        ["--profile", "one", "tables", "--json"],
        ["tables", "--json", "--profile=one"],
        ["tables", "-w", str(tmp_path / "two"), "--json", "--profile", "one"],
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        seen.append(json.loads(capfd.readouterr().out)["table"])

    assert seen == ["one.t", "one.t", "two.t"]
