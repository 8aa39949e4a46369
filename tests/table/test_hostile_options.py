"""Whatever the options of a table name, its verbs leave everything outside of it as it is."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import LakecoreError
from tests.options.test_places import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROW = {"p": 1, "id": 9, "v": 1, "b": b"x"}
VERBS: dict[str, Callable[[lc.Table], object]] = {
    "write": lambda table: table.write([ROW]),
    "read": lambda table: table.to_polars(),
    "stream": lambda table: table.changes().collect(),
    "compact": lambda table: table.compact(full=True),
    "mark": lambda table: table.mark_partition_done({"p": 1}),
    "tag": lambda table: (table.create_tag("a"), table.delete_tag("a")),
    "branch": lambda table: (table.create_branch("b"), table.delete_branch("b")),
    "drop partition": lambda table: table.drop_partition({"p": 2}),
    "expire": lambda table: table.expire_snapshots(retain_max=1, retain_min=1),
    "orphans": lambda table: table.remove_orphan_files(force=True),
    "rollback": lambda table: table.rollback_to(snapshot_id=2),
    "purge": lambda table: table.purge_files(),
}
# In a key, # stands for a name that makes the option count in this table.
FOR_NAME = {
    "fields.#": "fields.v",
    "file-index.#.columns": "file-index.bloom-filter.columns",
    "file-index.#": "file-index.bloom-filter.v.fpp",
}
# Options that count only with another one.
WITH = {
    "partition.mark-done-action.http.url": {"partition.mark-done-action": "http-report"},
    "partition.mark-done-action.http.params": {"partition.mark-done-action": "http-report"},
    "tag.batch.customized-name": {"tag.automatic-creation": "batch"},
    "blob-external-storage-path": {
        "blob-descriptor-field": "b",
        "blob-external-storage-field": "b",
    },
    "file.compression.per.level": {"file.suffix.include.compression": "true"},
}
VALUES = ("../../victim", "VICTIM", "http://127.0.0.1:PORT/x")


@pytest.fixture(scope="module")
def calls() -> Iterator[tuple[int, list[object]]]:
    """A port, and who has connected to it."""
    found: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, address = server.accept()
                    found.append(address)
                    connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], found
        server.shutdown(socket.SHUT_RDWR)


def _made(path: Path, options: dict[str, str]) -> str:
    """A table whose newest schema has these options, as another engine may have stored them."""
    blobs = {"blob-descriptor-field": "b"} if "blob-descriptor-field" in options else {}
    table = lc.open_table(
        path,
        create=True,
        schema={"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "INT", "b": "BYTES"},
        partition_keys=["p"],
        primary_keys=["p", "id"],
        options={"bucket": "1", **blobs},
    )
    table.write([ROW | {"b": None}])
    table.write([ROW | {"p": 2, "b": None}])
    (file,) = (path / "schema").glob("schema-*")
    schema = json.loads(file.read_text())
    schema["options"] |= options
    file.write_text(json.dumps(schema))
    return str(path)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("key", sorted(listed()[0] - {"path"}))
def test_no_verb_leaves_the_table(
    tmp_path: Path, key: str, calls: tuple[int, list[object]]
) -> None:
    port, callers = calls
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "data").write_bytes(b"kept")
    pattern = next((each for each in FOR_NAME if key.startswith(each)), "#")
    named = key.replace(pattern, FOR_NAME.get(pattern, "x"))
    for place, value in enumerate(VALUES):
        text = value.replace("VICTIM", str(victim)).replace("PORT", str(port))
        path = tmp_path / "tables" / str(place)
        if key.endswith("per.level"):
            text = f"0:{text}"
        _made(path, WITH.get(key, {}) | {named: text})
        for verb in VERBS.values():
            with suppress(LakecoreError):
                verb(lc.open_table(path))

    assert _contents(victim) == {f"{victim}/data": b"kept"}
    assert {each.name for each in tmp_path.iterdir()} == {"victim", "tables"}
    assert {each.name for each in (tmp_path / "tables").iterdir()} == set(
        map(str, range(place + 1))
    )
    assert callers == []
