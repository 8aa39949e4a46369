"""Whatever a table names, and wherever its folders lead, no verb deletes a file outside of it."""

from __future__ import annotations

import json
import pickle
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.format import layout
from lakecore.format.layout import Layout
from lakecore.io.stores.guarded import guarded, unguarded
from lakecore.io.stores.local import LocalStore
from lakecore.table.commits import commit
from lakecore.table.commits.commit_change import delete_files
from property_tests.profile import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakecore import CommitMessage

NOW = datetime.now(UTC) + timedelta(days=1)
ROW = {"p": 1, "id": 9, "v": 1}


def _expire(table: lc.Table) -> object:
    table.compact(full=True)
    return table.expire_snapshots(retain_max=1, retain_min=1, older_than=NOW)


VERBS: dict[str, Callable[[lc.Table], object]] = {
    "rollback": lambda table: table.rollback_to(snapshot_id=1),
    "expire": _expire,
    "overwritten and expired": lambda table: (table.overwrite([ROW]), _expire(table)),
    "partition dropped and expired": lambda table: (table.drop_partition({"p": 1}), _expire(table)),
    "orphans": lambda table: table.remove_orphan_files(older_than=NOW, force=True),
    "purge": lambda table: table.purge_files(),
    "tag": lambda table: (table.create_tag("a"), _expire(table), table.delete_tag("a")),
    "branch": lambda table: (
        table.create_branch("b"),
        table.fast_forward("b"),
        table.delete_branch("b"),
    ),
}


def _made(path: Path, bucket: str = "1") -> lc.Table:
    table = lc.open_table(
        path,
        create=True,
        schema={"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "INT"},
        partition_keys=["p"],
        primary_keys=["p", "id"],
        options={"bucket": bucket, "changelog-producer": "input"},
    )
    table.write([{"p": 1, "id": 1, "v": 1}])
    table.write([{"p": 1, "id": 1, "v": 2}])
    return table


def _tried(verb: str, table: lc.Table) -> None:
    with suppress(LakecoreError):
        VERBS[verb](table)


# How metadata can name the victim, which is at VICTIM; the table's files are in BUCKET.
DOTS = "../../../victim/data"
NAMES = (DOTS, "VICTIM", "file:VICTIM")
PLACES = ("VICTIM", "file://VICTIM", "BUCKET/" + DOTS, "s3://bucket/x")


@dataclass(frozen=True)
class Named:
    """A field of the metadata that names a file: its values, and a message with one of them."""

    given: tuple[str, ...]
    message: Callable[[CommitMessage, str], CommitMessage]


def _data(message: CommitMessage, **changed: object) -> CommitMessage:
    (file,) = message.new_files
    return replace(message, new_files=(replace(file, **changed),))  # type: ignore[arg-type]


def _changelog(message: CommitMessage, **changed: object) -> CommitMessage:
    (file,) = message.changelog_files
    return replace(message, changelog_files=(replace(file, **changed),))  # type: ignore[arg-type]


def _index(message: CommitMessage, **changed: object) -> CommitMessage:
    (file,) = message.new_index_files
    return replace(message, new_index_files=(replace(file, **changed),))  # type: ignore[arg-type]


NAMED = {
    "data file": Named(NAMES, lambda message, name: _data(message, name=name)),
    "extra file": Named(NAMES, lambda message, name: _data(message, extra_files=(name,))),
    "data path": Named(PLACES, lambda message, path: _data(message, external_path=path)),
    "changelog file": Named(NAMES, lambda message, name: _changelog(message, name=name)),
    "changelog path": Named(PLACES, lambda message, path: _changelog(message, external_path=path)),
    "index file": Named(NAMES, lambda message, name: _index(message, name=name)),
    "index path": Named(PLACES, lambda message, path: _index(message, external_path=path)),
}


@contextmanager
def _blind() -> Iterator[None]:
    """No name and no path of the metadata is checked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "one_name", lambda name, _given="": name)
        patch.setattr(Layout, "external", lambda _, path: path)
        patch.setattr(commit, "check_files_are_there", lambda *_: None)
        yield


@pytest.mark.parametrize(
    ("turn", "named", "given"),
    [(turn, key, each) for key, named in NAMED.items() for turn, each in enumerate(named.given)],
)
def test_no_file_that_metadata_names_is_deleted_outside(
    tmp_path: Path, turn: int, named: str, given: str
) -> None:
    victim = tmp_path / "victim" / "data"
    victim.parent.mkdir()
    made = _made(tmp_path / "made", "-1" if named.startswith("index") else "1")
    with made.new_write() as writer:
        writer.write([ROW])
        (message,) = writer.prepare_commit()
    bucket = tmp_path / "made" / "p=1" / f"bucket-{message.bucket}"
    victim.write_bytes((bucket / message.new_files[0].name).read_bytes())
    step = sized(1, quick=3)  # the names of a field take all verbs together
    for verb in [*VERBS, "abort"][turn % step :: step]:
        path = tmp_path / "t"
        shutil.copytree(tmp_path / "made", path)
        table = lc.open_table(path)
        place = given.replace("VICTIM", str(victim)).replace("BUCKET", f"{path}/p=1/bucket-0")
        hostile = NAMED[named].message(message, place)
        if verb == "abort":
            with suppress(LakecoreError):
                delete_files(table.context, [hostile])
        else:
            with _blind():
                table.commit([hostile])
            _tried(verb, lc.open_table(path))
            assert victim.exists(), verb
            with _blind():  # only the guard of the store is left
                _tried(verb, lc.open_table(path))
        assert victim.exists(), verb
        shutil.rmtree(path)


@pytest.mark.parametrize(
    "key",
    [
        "baseManifestList",
        "deltaManifestList",
        "changelogManifestList",
        "indexManifest",
        "statistics",
    ],
)
@pytest.mark.parametrize("given", NAMES)
def test_no_file_that_a_snapshot_names_is_deleted_outside(
    tmp_path: Path, key: str, given: str
) -> None:
    victim = tmp_path / "victim" / "data"
    victim.parent.mkdir()
    made = _made(tmp_path / "made", "-1")
    made.analyze()
    for verb in VERBS:
        path = tmp_path / "t"
        shutil.copytree(tmp_path / "made", path)
        for file in sorted((path / "snapshot").glob("snapshot-*"))[1:]:
            snapshot = json.loads(file.read_text())
            if named := snapshot.get(key):
                folder = "statistics" if key == "statistics" else "manifest"
                shutil.copy(path / folder / named, victim)
            # From `manifest`, the victim is one directory nearer than from a bucket.
            name = given.replace("../../../", "../../").replace("VICTIM", str(victim))
            file.write_text(json.dumps(snapshot | {key: name}))
        _tried(verb, lc.open_table(path))
        assert victim.exists(), verb
        shutil.rmtree(path)


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_that_is_a_link_is_deleted_without_its_target(tmp_path: Path, verb: str) -> None:
    table = _made(tmp_path / "t", "-1")
    table.analyze()
    outside = tmp_path / "outside"
    outside.mkdir()
    for file in [each for each in (tmp_path / "t").rglob("*") if each.is_file()]:
        if file.name in {"LATEST", "EARLIEST"}:
            continue
        target = outside / f"{file.parent.name}-{file.name}"
        file.rename(target)
        file.symlink_to(target)
    before = set(outside.iterdir())

    _tried(verb, lc.open_table(table.path))

    assert set(outside.iterdir()) == before


@pytest.mark.parametrize(
    "linked", ["p=1", "p=1/bucket-0", "manifest", "snapshot", "schema", "tag", "branch"]
)
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
