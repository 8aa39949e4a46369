"""`lakecore snapshot`, `lakecore expire` and `lakecore rollback`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "shop.db" / "orders"
    table = lc.open_table(
        place, create=True, schema={"id": "INT", "dt": "STRING"}, partition_keys=["dt"]
    )
    for number in range(3):
        table.write([{"id": number, "dt": f"2024-01-0{number + 1}"}])
    return place


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code of the program, and what it wrote to its two outputs."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    assert isinstance(exited.value.code, int | None)
    return exited.value.code or 0, out, err


def live(path: Path) -> tuple[int, ...]:
    return lc.open_table(path).context.history.snapshot_ids()


def test_snapshots_are_listed_with_tags_and_consumers(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = lc.open_table(path)
    table.create_tag("good", snapshot_id=2)
    table.reset_consumer("job", 3)

    _, out, _ = run(capfd, "snapshot", "list", path, "--json")

    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["snapshot_id"] for row in rows] == [1, 2, 3]
    assert [row["tags"] for row in rows] == [None, "good", None]
    assert [row["next_of_consumers"] for row in rows] == [None, None, "job"]
    assert "APPEND" in run(capfd, "snapshot", "list", path)[1]


@pytest.mark.parametrize("command", [("snapshot", "expire"), ("expire", "snapshots")])
def test_snapshots_expire_after_a_question(
    command: tuple[str, str], path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    what = (*command, path, "--retain-min", 1, "--older-than", "2100-01-01")

    code, _, err = run(capfd, *what)
    assert (code, "expire 2 snapshots?" in err) == (1, True)
    assert "nothing was deleted" in run(capfd, *what, "--dry-run")[1]
    assert live(path) == (1, 2, 3)

    _, out, _ = run(capfd, *what, "--yes", "--json")
    assert json.loads(out)["snapshots_expired"] == 2
    assert live(path) == (3,)

    _, out, _ = run(capfd, *what)
    assert ("snapshots" in out, "dry run" in out) == (True, False)
    assert run(capfd, *what)[0] == 0  # there is nothing left to ask about


def test_changelogs_expire_after_a_question(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep = ("-o", "changelog.num-retained.min=100")
    expire = ("--retain-min", 1, "--older-than", "2100-01-01", "--yes")
    run(capfd, "snapshot", "expire", path, *keep, *expire)
    assert lc.open_table(path).context.history.changelog_ids() == (1, 2)

    assert run(capfd, "expire", "changelogs", path, "--all")[0] == 1
    _, out, _ = run(capfd, "expire", "changelogs", path, "--all", "--yes", "--csv")

    assert out.splitlines()[0].startswith("changelogs_expired,")
    assert lc.open_table(path).context.history.changelog_ids() == ()


def test_partitions_expire_after_a_question(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    what = ("expire", "partitions", path, "--expiration-time", "30 d", "--max-expires", 2)

    assert "drop 2 partitions?" in run(capfd, *what)[2]
    _, out, _ = run(capfd, *what, "--yes")

    assert "dt=2024-01-01" in out
    assert lc.open_table(path).to_arrow().to_pylist() == [{"id": 2, "dt": "2024-01-03"}]


def test_rollback_after_a_question(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "rollback", path, "--snapshot", 1)
    assert (code, "go back to snapshot 1, and remove 2 later ones?" in err) == (1, True)
    assert (
        json.loads(run(capfd, "rollback", path, "--snapshot", 1, "--dry-run", "--json")[1])[
            "snapshots_removed"
        ]
        == 2
    )

    assert run(capfd, "rollback", path, "--snapshot", 1, "-y")[0] == 0

    assert live(path) == (1,)
    assert lc.open_table(path).count() == 1


def test_errors_are_one_line(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for what, message in (
        (("rollback", path), "name the target of the rollback"),
        (("rollback", path, "--snapshot", 9), "does not exist or has expired"),
        (("snapshot", "expire", path, "--retain-max", 0), "retain_max is a whole number"),
        (("expire", "partitions", path), "set how long"),
        (("expire", "snapshots", path, "--older-than", "soon"), "timestamp"),
    ):
        code, _, err = run(capfd, *what)
        assert (code, len(err.splitlines()), message in err) == (1, 1, True), err
