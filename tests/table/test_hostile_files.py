"""Files of a table that somebody replaced by what is no file, and names that lead elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "root:x:0:0"


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def filled(home: Path, **options: str) -> lc.Table:
    table = lc.open_table(
        home / "t",
        create=True,
        schema={"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", **options},
    )
    for number in range(2):
        table.write([{"id": number, "v": "a"}])
    return table


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    # The name of a socket is short, so it is bound elsewhere.
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{short}/s")
        shutil.move(f"{short}/s", path)


def directory(path: Path) -> None:
    path.mkdir()


FILES = {
    "schema": "schema/schema-0",
    "snapshot": "snapshot/snapshot-2",
    "manifest list": "manifest/manifest-list-*",
    "manifest": "manifest/manifest-[0-9a-f]*-0",
    "data file": "bucket-0/data-*",
}
READS: dict[str, Callable[[lc.Table], object]] = {
    "to_polars": lambda table: table.to_polars(),
    "to_arrow": lambda table: table.to_arrow(),
    "scan": lambda table: table.scan().collect(),
    "delete": lambda table: table.delete("v = 'a'"),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize("make", [pipe, device, unix_socket, directory])
@pytest.mark.parametrize("what", [*FILES])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], what: str
) -> None:
    filled(tmp_path)
    for path in (tmp_path / "t").glob(FILES[what]):
        path.unlink()
        make(path)

    for name, read in READS.items():
        with no_longer_than(30), pytest.raises(lc.LakecoreError) as caught:
            read(lc.open_table(tmp_path / "t"))
        assert isinstance(caught.value, lc.CorruptTable | lc.NotFound | lc.StorageError), name


def test_pipe_is_not_written_to(tmp_path: Path) -> None:
    table = filled(tmp_path)
    os.mkfifo(tmp_path / "t" / "f")

    with no_longer_than(30):
        for _ in range(2):
            with (
                pytest.raises(lc.LakecoreError),
                table.context.store.open_output(f"{table.path}/f"),
            ):
                pytest.fail("a pipe was opened")
    assert not (tmp_path / "t" / "f").exists() or stat.S_ISFIFO(
        (tmp_path / "t" / "f").stat().st_mode
    )


@pytest.mark.parametrize("key", ["data-file.prefix", "changelog-file.prefix"])
@pytest.mark.parametrize("prefix", ["../../x", "/x/y", "a/b-", "a\\b", "a\0", "a\n", "x" * 161])
def test_prefix_of_file_names_is_no_path(tmp_path: Path, key: str, prefix: str) -> None:
    with pytest.raises(lc.InvalidRequest, match=key):
        filled(tmp_path, **{key: prefix})
    table = filled(tmp_path)
    with pytest.raises(lc.InvalidRequest, match=key):
        table.copy({key: prefix})
    with pytest.raises(lc.InvalidRequest, match=key):
        lc.open_table(table.path, options={key: prefix})


@pytest.mark.parametrize("folder", ["..", "../x", "/x", "a/../b", "file:x", "a\\b", "a\0b"])
def test_folder_of_data_files_is_inside_the_table(tmp_path: Path, folder: str) -> None:
    with pytest.raises(lc.InvalidRequest, match=r"data-file\.path-directory"):
        filled(tmp_path, **{"data-file.path-directory": folder})


@pytest.mark.parametrize("field", ["baseManifestList", "deltaManifestList", "indexManifest"])
@pytest.mark.parametrize("name", ["../../secret", "/{home}/secret", "a\\u0000b", "..", ""])
def test_snapshot_that_names_a_file_elsewhere_is_corrupt_and_shows_nothing_of_it(
    tmp_path: Path, field: str, name: str
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    filled(tmp_path)
    path = tmp_path / "t" / "snapshot" / "snapshot-2"
    text = path.read_text().rstrip().removesuffix("}")
    named = name.replace("/{home}", str(tmp_path))
    path.write_text(f'{text}, "{field}": "{named}"}}')

    for read in READS.values():
        with pytest.raises(lc.CorruptTable) as caught:
            read(lc.open_table(tmp_path / "t", options={"deletion-vectors.enabled": "false"}))
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("tag", ["../x", "a/../../snapshot/snapshot-1", "a\0b", "x" * 300])
def test_tag_and_branch_stay_inside(tmp_path: Path, tag: str) -> None:
    table = filled(tmp_path)

    with pytest.raises(lc.LakecoreError):
        table.to_polars(tag=tag)
    with pytest.raises(lc.LakecoreError):
        table.copy({"scan.tag-name": tag}).to_polars()
    with pytest.raises(lc.LakecoreError):
        lc.open_table(table.path, branch=tag)
    with pytest.raises(lc.LakecoreError):
        lc.open_table(table.path, options={"branch": tag})
