from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import (
    AlreadyExists,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.stores import local
from lakecore.io.stores.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

STORE = LocalStore()

RACER = """
import sys
from lakecore.io.stores.local import LocalStore
store, (folder, name, count) = LocalStore(), sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    if store.put_if_absent(f"{folder}/snapshot/snapshot-{number}", name.encode()):
        print(number)
"""


def test_one_of_several_processes_wins_each_file(tmp_path: Path) -> None:
    count, racers = 60, 4
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(racer), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for racer in range(racers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = {
        int(number): str(racer)
        for racer, process in enumerate(processes)
        for number in process.communicate(timeout=60)[0].split()
    }

    assert all(process.returncode == 0 for process in processes)
    assert sorted(won) == list(range(count))
    for number, racer in won.items():
        assert STORE.read(f"{tmp_path}/snapshot/snapshot-{number}") == racer.encode()
    assert len(STORE.list(f"{tmp_path}/snapshot")) == count


def test_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EPERM))

    with pytest.raises(Unsupported, match="hard links"):
        STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"")
    assert STORE.list(str(tmp_path)) == ()


def test_link_that_an_io_error_interrupts_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.EIO))

    with pytest.raises(CommitUnknown, match="may or may not"):
        STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"")


def test_link_without_room_is_refused_for_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _failing(errno.ENOSPC))

    with pytest.raises(StorageError, match="No space left"):
        STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"")
    assert STORE.list(str(tmp_path)) == ()


def test_link_whose_reply_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: str, target: str) -> None:  # as a client of NFS that asks again
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)

    assert STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"ours")
    assert not STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"other")


def test_published_file_is_durable_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "link", "unlink"):
        monkeypatch.setattr(os, name, _noted(name, steps))

    STORE.put_if_absent(f"{tmp_path}/snapshot-1", b"")

    assert steps == ["fsync", "link", "unlink", "fsync"]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    for number in range(3):
        STORE.put_if_absent(f"{tmp_path}/{number}/snapshot", b"")
        STORE.put(f"{tmp_path}/{number}/hint", b"")
        with STORE.open_output(f"{tmp_path}/{number}/file") as sink:
            sink.write(b"bytes")

    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]  # noqa: PTH208
    assert not [each for each in links if str(tmp_path) in os.path.realpath(each)]


def test_output_and_its_new_directories_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "mkdir"):
        monkeypatch.setattr(os, name, _noted(name, steps))

    with STORE.open_output(f"{tmp_path}/a/b/file") as sink:
        sink.write(b"bytes")

    # each parent of a new directory; then the file, and the directory that holds it
    assert steps == ["mkdir", "fsync", "mkdir", "fsync", "fsync", "fsync"]


def test_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("/dev/full")

    with (
        pytest.raises(StorageError, match=r"No space left.*") as caught,
        STORE.open_output(f"{tmp_path}/file") as sink,
    ):
        sink.write(bytes(1 << 20))

    assert caught.value.facts["path"] == f"{tmp_path}/file"
    assert STORE.list(str(tmp_path)) == ()


def test_percent_signs_of_a_file_uri_stay(tmp_path: Path) -> None:
    STORE.put(f"file:{tmp_path}/dt=a%2Fb/file", b"bytes")

    assert (tmp_path / "dt=a%2Fb" / "file").read_bytes() == b"bytes"
    assert STORE.local_path(f"file://{tmp_path}/x") == f"{tmp_path}/x"
    assert STORE.local_path(f"file://localhost{tmp_path}/x") == f"{tmp_path}/x"


def test_relative_path_is_below_the_working_directory_of_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")

    assert store.put_if_absent("snapshot-1", b"1")
    store.put("w/a", b"2")
    with store.open_output("b") as sink:
        sink.write(b"3")
    store.rename_directory("w", "v")

    assert (tmp_path / "snapshot-1").read_bytes() == b"1"
    assert (tmp_path / "v" / "a").read_bytes() == b"2"
    assert (tmp_path / "b").read_bytes() == b"3"


def test_path_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot name a host"):
        STORE.read("file://server/share/file")
    with pytest.raises(InvalidRequest, match="empty"):
        STORE.read("")
    with pytest.raises(InvalidRequest, match="root"):
        STORE.delete_directory("/")


def test_file_in_the_place_of_a_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    for write in (STORE.put, STORE.put_if_absent):
        with pytest.raises(StorageError, match="file"):
            write(f"{tmp_path}/file/below", b"")


def test_bytes_go_to_the_disk_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []
    begin = local.begin_write_back

    def noted(descriptor: int, start: int, size_bytes: int) -> None:
        begun.append((start, size_bytes))
        begin(descriptor, start, size_bytes)

    monkeypatch.setattr(local, "begin_write_back", noted)
    part = os.urandom(3 << 20)
    with STORE.open_output(f"{tmp_path}/file") as out:
        for _ in range(5):
            out.write(part)

    assert begun == [(0, 6 << 20), (6 << 20, 6 << 20)]
    assert STORE.read(f"{tmp_path}/file") == part * 5


def test_linux_writes_back_without_waiting() -> None:
    assert (local._sync_file_range() is not None) is (sys.platform == "linux")  # noqa: SLF001


def _failing(number: int) -> object:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def _noted(name: str, steps: list[str]) -> object:
    call = getattr(os, name)

    def noted(*arguments: object) -> object:
        steps.append(name)
        return call(*arguments)

    return noted


def test_rename_that_loses_a_race_says_that_the_target_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    for number, error in (
        (errno.ENOTEMPTY, AlreadyExists),
        (errno.EEXIST, AlreadyExists),
        (errno.EXDEV, Unsupported),
        (errno.EBUSY, Unsupported),
        (errno.EIO, StorageError),
    ):
        monkeypatch.setattr(os, "rename", _failing(number))
        with pytest.raises(LakecoreError) as refusal:
            STORE.rename_directory(str(tmp_path / "t"), str(tmp_path / "u"))
        assert type(refusal.value) is error


@pytest.mark.parametrize(("failures", "renamed"), [(0, True), (3, True), (4, False)])
def test_rename_is_tried_again_while_others_remove_the_empty_parent(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, renamed: bool
) -> None:
    (tmp_path / "t").mkdir()
    left, rename = [FileNotFoundError()] * failures, os.rename

    def fails_first(source: str, target: str) -> None:
        if left:
            raise left.pop()
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_first)
    if renamed:
        STORE.rename_directory(str(tmp_path / "t"), str(tmp_path / "a" / "u"))
    else:
        with pytest.raises(NotFound):
            STORE.rename_directory(str(tmp_path / "t"), str(tmp_path / "a" / "u"))
    assert (tmp_path / "a" / "u").exists() is renamed


def test_copied_directory_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(os, "sync", _noted("sync", steps))
    STORE.put(str(tmp_path / "t" / "a"), b"x")
    (tmp_path / "u").mkdir()

    STORE.copy_directory(str(tmp_path / "t"), str(tmp_path / "u"))
    assert (tmp_path / "u" / "a").read_bytes() == b"x"
    assert steps == ["sync"]
