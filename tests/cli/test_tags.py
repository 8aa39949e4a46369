"""`lakecore tag` and `lakecore branch`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    place = tmp_path / "shop.db" / "orders"
    session = lc.connect(tmp_path)
    session.create_database("shop")
    table = session.create_table(
        "shop.orders", {"id": "INT NOT NULL"}, primary_keys=["id"], options={"bucket": "1"}
    )
    for number in range(3):
        table.write([{"id": number}])
    return place


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code of the program, and what it wrote to its two outputs."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    assert isinstance(exited.value.code, int | None)
    return exited.value.code or 0, out, err


def test_tags_are_made_listed_and_renamed(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "tag", "create", path, "a", "--snapshot", 2)[1] == "a: snapshot 2\n"
    made = run(capfd, "tag", "create", path, "b", "--time-retained", "1 d", "--json")[1]
    assert made == '{"tag":"b","snapshot_id":3,"retained_seconds":86400.0}\n'
    assert run(capfd, "tag", "create", path, "c", "--timestamp", "2001-01-01")[1].endswith("1\n")
    assert run(capfd, "tag", "create", path, "a", "--replace")[1] == "a: snapshot 3\n"
    assert run(capfd, "tag", "rename", path, "c", "first")[1] == "first: snapshot 1\n"

    listed = run(capfd, "tag", "list", path, "--csv")[1].splitlines()
    assert [line.split(",")[:2] for line in listed[1:]] == [["first", "1"], ["a", "3"], ["b", "3"]]
    assert "retained_seconds" in run(capfd, "tag", "list", path)[1]


def test_tags_are_deleted_after_a_question(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = lc.open_table(path)
    table.create_tag("a", time_retained="0 s")
    table.create_tag("b")

    code, _, err = run(capfd, "tag", "delete", path, "b")
    assert (code, "add --yes" in err) == (1, True)
    assert "nothing was deleted" in run(capfd, "tag", "delete", path, "b", "--dry-run")[1]
    assert len(table.tags()) == 2
    assert '"name":"b","snapshot_id":3' in run(capfd, "tag", "delete", path, "b", "-y", "--json")[1]
    dry = run(capfd, "tag", "expire", path, "--dry-run")[1]
    assert dry == "a\ndry run: nothing was changed\n"
    assert run(capfd, "tag", "expire", path)[0] == 1
    assert run(capfd, "tag", "expire", path, "--yes")[1] == "a\n"
    assert run(capfd, "tag", "expire", path)[1] == "no tag is due\n"
    assert table.tags() == ()


def test_branches_from_the_first_to_the_fast_forward(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = lc.open_table(path)
    table.create_tag("t", snapshot_id=2)

    assert run(capfd, "branch", "create", path, "b", "--tag", "t")[1] == "b: snapshot 2\n"
    assert run(capfd, "branch", "create", path, "empty")[1] == "empty: no snapshot\n"
    assert run(capfd, "branch", "rename", path, "empty", "e")[1] == "e: no snapshot\n"
    listed = run(capfd, "branch", "list", path, "--csv")[1]
    assert listed.splitlines()[1:] == ["b,0,2,2", "e,0,,"]
    table.branch("b").write([{"id": 9}])

    assert run(capfd, "branch", "delete", path, "e")[0] == 1
    assert "nothing was changed" in run(capfd, "branch", "delete", path, "e", "--dry-run")[1]
    assert run(capfd, "branch", "delete", path, "e", "--yes")[1] == "e: no snapshot\n"
    code, _, err = run(capfd, "branch", "fast-forward", path, "b")
    assert (code, "delete 1 snapshots and 0 tags" in err) == (1, True)
    dry = run(capfd, "branch", "fast-forward", path, "b", "--dry-run")[1]
    done = run(capfd, "branch", "fast-forward", path, "b", "--yes")[1]
    assert dry == done + "dry run: nothing was changed\n"
    assert sorted(lc.open_table(path).to_polars()["id"]) == [0, 1, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tag", "create", "TABLE", "a", "--snapshot", "9"), "does not exist or has expired"),
        (("tag", "create", "TABLE", "a", "--time-retained", "soon"), "is not a duration"),
        (("tag", "delete", "TABLE", "a", "--yes"), "no such tag"),
        (("branch", "create", "TABLE", "main"), "main is the name of the table itself"),
        (("branch", "fast-forward", "TABLE", "b", "--yes"), "no such branch"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], message: str, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [path if each == "TABLE" else each for each in arguments]

    code, out, err = run(capfd, *given)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err
