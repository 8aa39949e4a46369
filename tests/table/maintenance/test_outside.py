"""Whatever a table names, and wherever its folders lead, no verb deletes a file outside of it."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.format import layout
from lakecore.format.layout import Layout
from lakecore.io.stores.guarded import guarded, unguarded
from lakecore.io.stores.local import LocalStore
from lakecore.table.commits.message_files import delete_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore import CommitMessage
    from lakecore.model.files import DataFile

NOW = datetime.now(UTC) + timedelta(days=1)
ROW = {"id": 9, "v": 1}


def _expire(table: lc.Table) -> object:
    table.compact(full=True)
    return table.expire_snapshots(retain_max=1, retain_min=1, older_than=NOW)


VERBS: dict[str, Callable[[lc.Table], object]] = {
    "rollback": lambda table: table.rollback_to(snapshot_id=1),
    "expire": _expire,
    "overwritten and expired": lambda table: (table.overwrite([ROW]), _expire(table)),
    "orphans": lambda table: table.remove_orphan_files(older_than=NOW, force=True),
    "purge": lambda table: table.purge_files(),
    "tag": lambda table: (table.create_tag("a"), _expire(table), table.delete_tag("a")),
    "branch": lambda table: (
        table.create_branch("b"),
        table.fast_forward("b"),
        table.delete_branch("b"),
    ),
}


def _made(path: Path) -> lc.Table:
    table = lc.open_table(
        path,
        create=True,
        schema={"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    table.write([{"id": 1, "v": 1}])
    table.write([{"id": 1, "v": 2}])
    return table


def _tried(verb: str, table: lc.Table) -> None:
    with suppress(LakecoreError):
        VERBS[verb](table)


NAMED: dict[str, Callable[[DataFile, str], DataFile]] = {
    "external path": lambda file, victim: replace(file, external_path=victim),
    "name with dots": lambda file, _: replace(file, name="../../victim/data"),
    "absolute name": lambda file, victim: replace(file, name=victim),
    "extra file": lambda file, _: replace(file, extra_files=("../../victim/data",)),
}


@pytest.mark.parametrize("named", NAMED)
def test_no_file_that_metadata_names_is_deleted_outside(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim" / "data"
    victim.parent.mkdir()
    for place, verb in enumerate([*VERBS, "abort"]):
        table = _made(tmp_path / f"t{place}")
        with table.new_write() as writer:
            writer.write([ROW])
            (message,) = writer.prepare_commit()
        (file,) = message.new_files
        victim.write_bytes((tmp_path / f"t{place}/bucket-0" / file.name).read_bytes())
        hostile: CommitMessage = replace(message, new_files=(NAMED[named](file, str(victim)),))
        if verb == "abort":
            with suppress(LakecoreError):
                delete_files(table.context, [hostile])
        else:
            with monkeypatch.context() as blind:
                blind.setattr(layout, "one_name", lambda name, _given="": name)
                blind.setattr(Layout, "external", lambda _, path: path)
                with suppress(InvalidRequest):
                    table.commit([hostile])
            _tried(verb, lc.open_table(table.path))
        assert victim.exists(), verb


@pytest.mark.parametrize("linked", ["bucket-0", "manifest", "snapshot", "schema", "tag", "branch"])
def test_nothing_is_deleted_through_a_linked_folder(tmp_path: Path, linked: str) -> None:
    for place, verb in enumerate(VERBS):
        table = _made(tmp_path / f"t{place}")
        table.create_tag("old", snapshot_id=1)
        table.create_branch("old", tag="old")
        home = tmp_path / "home" / str(place)
        home.parent.mkdir(exist_ok=True)
        (tmp_path / f"t{place}" / linked).rename(home)
        (tmp_path / f"t{place}" / linked).symlink_to(home)
        before = {each for each in home.rglob("*") if each.name not in {"LATEST", "EARLIEST"}}

        _tried(verb, lc.open_table(table.path))

        assert before <= set(home.rglob("*")), verb


def test_the_store_of_a_table_deletes_in_its_places_only(tmp_path: Path) -> None:
    where = Layout(root=f"{tmp_path}/t", external_roots=(f"file:{tmp_path}/other",))
    store = pickle.loads(pickle.dumps(guarded(LocalStore(), where)))
    assert isinstance(unguarded(store), LocalStore)
    for path in ("t/x", "t/p=a/x", "other/y"):
        store.put(f"{tmp_path}/{path}", b"")
        store.delete(f"{tmp_path}/{path}")
        assert not store.exists(f"{tmp_path}/{path}")
    (tmp_path / "out").mkdir()
    (tmp_path / "other" / "link").symlink_to(tmp_path / "out")
    for path in ("t", "tt/x", "t/../out", "t//x", "", "other/link/x", "out", "other/../out"):
        for delete in (store.delete, store.delete_directory):
            with pytest.raises(InvalidRequest, match="nothing is deleted"):
                delete(f"{tmp_path}/{path}")
    store.remove_empty_directory(f"{tmp_path}/out")
    with pytest.raises(InvalidRequest, match="nothing is deleted"):
        store.rename_directory(f"{tmp_path}/t/p=a", f"{tmp_path}/out/p=a")
    assert (tmp_path / "out").exists()
