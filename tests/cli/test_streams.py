"""`lakecore stream` and `lakecore consumer`."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
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


def test_rows_are_printed_snapshot_by_snapshot(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, grid, _ = run(capfd, "stream", path, "--from", 2, "--until", "latest")
    _, lines, _ = run(capfd, "stream", path, "--from", 1, "--until", 2, "--json")
    _, rows, _ = run(capfd, "stream", path, "--from", 1, "--until", "latest", "--csv")

    assert grid.index("snapshot 2") < grid.index("snapshot 3")
    assert lines == '{"_row_kind":"+I","id":0}\n{"_row_kind":"+I","id":1}\n'
    assert rows == "_row_kind,id\n+I,0\n+I,1\n+I,2\n"


def test_start_is_a_snapshot_a_tag_a_time_or_a_mode(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = lc.open_table(path)
    table.create_tag("second", snapshot_id=2)
    until = ("--until", "latest", "--json")

    _, tagged, _ = run(capfd, "stream", path, "--from", "second", *until)
    assert tagged.count("\n") == 2
    _, early, _ = run(capfd, "stream", path, "--from", "2001-01-01", *until)
    assert early.count("\n") == 3
    _, latest, _ = run(capfd, "stream", path, "--mode", "latest", *until)
    assert latest == ""
    _, full, _ = run(capfd, "stream", path, "--from", 2, "--mode", "from-snapshot-full", *until)
    assert full.count("\n") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "nosuch"), "--from must be a snapshot id, a tag or a time"),
        (("--until", "soon"), "--until must be a snapshot id, or latest"),
        (("--from", "9", "--until", "latest"), "there is no such snapshot yet"),
        (("--poll", "often"), "poll is not a valid duration"),
        (("--consumer", "a/b"), "leads out of its directory"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], message: str, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "stream", path, *arguments)

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err


def test_more_rows_than_a_grid_shows_are_noted(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lc.open_table(path).write([{"id": number} for number in range(30)])

    _, out, err = run(capfd, "stream", path, "--from", 4, "--until", "latest")
    assert (out.count("+I"), "the first 20 rows" in err) == (20, True)


def test_what_is_printed_is_recorded(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    follow = ("stream", path, "--until", "latest", "--json", "--consumer", "c")

    _, first, _ = run(capfd, *follow, "--from", 2)
    lc.open_table(path).write([{"id": 7}])
    _, then, _ = run(capfd, *follow, "--from", 2)
    assert (first.count("\n"), then) == (2, '{"_row_kind":"+I","id":7}\n')
    _, listed, _ = run(capfd, "consumer", "list", path, "--csv")
    assert listed.splitlines()[1].startswith("c,5,0,")


def test_consumers_are_moved_and_deleted_after_a_question(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    table = lc.open_table(path)
    assert run(capfd, "consumer", "reset", path, "c", "--next", 2)[:2] == (0, "c: none -> 2\n")

    code, _, err = run(capfd, "consumer", "reset", path, "c", "--next", 1)
    assert (code, "add --yes" in err) == (1, True)
    code, _, err = run(capfd, "consumer", "clear", path)
    assert (code, "add --yes" in err) == (1, True)
    dry = run(capfd, "consumer", "reset", path, "c", "--delete", "--dry-run")
    assert dry[1] == "c: 2 -> none\ndry run: nothing was changed\n"
    assert [each.next_snapshot for each in table.consumers()] == [2]

    _, out, _ = run(capfd, "consumer", "reset", path, "c", "--next", 1, "--yes", "--json")
    assert out == '{"consumer_id":"c","before":2,"next_snapshot":1}\n'
    assert run(capfd, "consumer", "clear", path, "-y")[1] == "c\n"
    assert table.consumers() == ()
    code, _, err = run(capfd, "consumer", "reset", path, "c", "--delete", "--yes")
    assert (code, "no such consumer" in err) == (1, True)


@pytest.mark.parametrize("flags", [(), ("--next", "1", "--delete")])
def test_reset_needs_to_know_what_to_do(
    flags: tuple[str, ...], path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(capfd, "consumer", "reset", path, "c", *flags)[0] == 2


def test_interrupt_ends_an_endless_stream_with_the_code_of_a_shell(path: Path) -> None:
    program = [sys.executable, "-c", "from lakecore.cli import main; main()"]
    arguments = ["stream", str(path), "--json", "--from", "3", "--consumer", "c"]
    with subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '{"_row_kind":"+I","id":2}\n'
        lc.open_table(path).write([{"id": 8}])
        assert process.stdout.readline() == '{"_row_kind":"+I","id":8}\n'
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert (process.returncode, err) == (130, "")
    (consumer,) = lc.open_table(path).consumers()
    assert consumer.next_snapshot in {4, 5}  # the interrupt may come before the last record
