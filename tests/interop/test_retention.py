"""Expiry and rollback beside Java: on the same history, both leave the same files.

A history is played by both engines in turns, with compactions, overwrites, tags, branches and
consumers. In between, one engine expires main and each branch of the table, and the other does so
in a copy, in turns: the names of all files must be the same. Java then reads every snapshot that is
left, and the history goes on. `make interop HISTORIES=300` plays more of them.
"""

from __future__ import annotations

import os
import random
import shutil
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.format.metadata import encode_consumer
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "n": "INT", "v": "STRING"}
OURS = LakecoreEngine()
STEADY = {"snapshot.num-retained.min": "1000"}
"""Nothing expires by itself."""
LONG = {"changelog.num-retained.min": "100000"}
"""Changelogs outlive their snapshots."""

KINDS: Mapping[str, dict[str, Any]] = {
    "keyed": {"options": {"bucket": "2"}},
    "partitioned": {"options": {"bucket": "1"}, "partitions": ["p"]},
    "dynamic": {"options": {"bucket": "-1"}},
    "input": {"options": {"bucket": "1", "changelog-producer": "input"}},
    "lookup": {"options": {"bucket": "1", "changelog-producer": "lookup"}},
    "full-compaction": {"options": {"bucket": "1", "changelog-producer": "full-compaction"}},
    "vectors": {"options": {"bucket": "1", "deletion-vectors.enabled": "true"}, "ours": False},
    "append": {"options": {}, "keys": []},
    "empty directories": {
        "options": {"bucket": "1", "snapshot.clean-empty-directories": "true"},
        "partitions": ["p"],
    },
}


DEEDS = (
    *["write"] * 4,
    *["compact"] * 3,
    *["write on a branch"] * 3,
    *["tag", "branch", "overwrite", "untag"],
)

HISTORIES = int(os.environ.get("HISTORIES") or 27)
"""How many random histories are played; the kinds of tables take turns."""


class History:
    """A table, and what happens to it by chance."""

    def __init__(self, path: Path, kind: Mapping[str, Any], java: PeerEngine, seed: int) -> None:
        self.path, self.java = path, java
        self.ours: bool = kind.get("ours", True)
        self.keyed = kind.get("keys") != []
        self.chance = random.Random(seed)
        self.turn = 0
        self.branches: dict[str, str] = {}  # each with its tag
        lc.open_table(
            path,
            create=True,
            schema=dict(COLUMNS),
            primary_keys=kind.get("keys", ["id", "p"]),
            partition_keys=kind.get("partitions", []),
            options={**STEADY, **kind["options"]},
        )

    @property
    def table(self) -> Table:
        return lc.open_table(self.path)

    @property
    def lines(self) -> tuple[str | None, ...]:
        """Main, which is None, and the branches."""
        return (None, *self.branches)

    def rows(self, count: int) -> tuple[tuple[str, Row], ...]:
        keys = self.chance.sample(range(12), count)
        return tuple(("+I", [key, "ab"[key % 2], self.turn, f"v{key}"]) for key in keys)

    def step(self) -> None:
        """One thing that happens."""
        self.turn += 1
        engines: list[LakecoreEngine | PeerEngine] = [self.java, *([OURS] if self.ours else [])]
        writer = self.chance.choice(engines)
        match self.chance.choice(DEEDS):
            case "compact" if self.keyed:
                writer.compact(self.path, full=self.chance.random() < 0.6)
            case "overwrite" if self.ours:
                rows = self.rows(3)
                self.table.overwrite([dict(zip(COLUMNS, row, strict=True)) for _, row in rows])
            case "tag":
                self.table.create_tag(f"t{self.turn}")
            case "untag":
                # Only the tag: what a deletion removes besides has changed between versions.
                tags = {f"tag-{name}" for name in self.tags()} - {
                    f"tag-{name}" for name in self.branches.values()
                }
                if tags:
                    (self.path / "tag" / self.chance.choice(sorted(tags))).unlink()
            case "branch" if self.tags() and len(self.branches) < 2:
                name, tag = f"b{self.turn}", self.chance.choice(self.tags())
                of = self.table.context.history.tag(tag).snapshot.id
                there = (self.path / "snapshot" / f"snapshot-{of}").exists()
                # Java 1.4 makes no branch of a tag whose snapshot has expired.
                if there and self.chance.random() < 0.5:
                    self.java.manage(self.path, "createBranch", name, tag)
                else:
                    self.table.create_branch(name, tag)
                self.branches[name] = tag
            case "write on a branch" if self.branches:
                self.write_on(self.chance.choice(sorted(self.branches)), writer)
            case _:
                writer.write(self.path, self.rows(5))

    def tags(self) -> list[str]:
        """The names of the tags of main."""
        found = (self.path / "tag").glob("tag-*")
        return sorted(each.name.removeprefix("tag-") for each in found)

    def write_on(self, branch: str, writer: LakecoreEngine | PeerEngine) -> None:
        """Write some rows on a branch."""
        rows = self.rows(5)
        if writer is OURS:
            lc.open_table(self.path, branch=branch).write(
                [dict(zip(COLUMNS, row, strict=True)) for _, row in rows]
            )
        else:
            self.java.write_on(self.path, rows, branch=branch)

    def consume(self) -> None:
        """Put a consumer somewhere, or nowhere."""
        file = self.path / "consumer" / "consumer-c"
        file.unlink(missing_ok=True)
        ids = self.table.context.history.snapshot_ids()
        if self.chance.random() < 0.5:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(encode_consumer(self.chance.choice(ids)))


def files(path: Path) -> set[str]:
    """The names of all that is in a table, directories too; checksums of local stores aside."""
    return {
        found.relative_to(path).as_posix() for found in path.rglob("*") if ".crc" not in found.name
    }


def states(
    path: Path, read: Callable[..., list[Row]], branch: str | None = None
) -> dict[str, list[str]]:
    """The rows of every snapshot and tag of main or a branch."""
    table = lc.open_table(path, branch=branch)
    named = {
        f"snapshot {n}": ("scan.snapshot-id", str(n)) for n in table.context.history.snapshot_ids()
    }
    named |= {f"tag {tag.name}": ("scan.tag-name", tag.name) for tag in table.tags()}
    on = {} if branch is None else {"branch": branch}
    return {
        name: sorted(map(repr, read(path, {**on, **dict([option])})))
        for name, option in named.items()
    }


def by_lakecore(path: Path, options: Mapping[str, str]) -> list[Row]:
    """The rows as lakecore reads them, on a branch if the options name one."""
    stated = dict(options)
    table = lc.open_table(path, branch=stated.pop("branch", None)).copy(stated)
    return [[*row] for row in table.to_polars().rows()]


def states_of_all(
    history: History, read: Callable[..., list[Row]]
) -> dict[tuple[str | None, str], list[str]]:
    """The rows of every snapshot and tag of main and the branches."""
    return {
        (line, name): rows
        for line in history.lines
        for name, rows in states(history.path, read, line).items()
    }


def shared_changelogs(history: History) -> set[str]:
    """The files of the changelogs of snapshots that two lines (main or a branch) have in common."""
    found: set[str] = set()
    main = history.table.context
    branches = [lc.open_table(history.path, branch=name).context for name in history.branches]
    for one, other in combinations([context.history for context in (main, *branches)], 2):
        for number in {*one.snapshot_ids()} & {*other.snapshot_ids()}:
            snapshot = other.snapshot(number)
            name = snapshot.changelog_manifest_list
            if name is None or one.snapshot(number).changelog_manifest_list != name:
                continue
            if not main.store.exists(main.layout.manifest(name)):
                continue  # Java has deleted it
            paths = [main.layout.manifest(name)]
            for manifest in main.history.manifest_list(name, snapshot.changelog_manifest_list_size):
                paths.append(main.layout.manifest(manifest.name))
                for entry in main.history.manifest(manifest):
                    place = main.partitions.path(entry.partition)
                    paths.append(main.layout.data_file(place, entry.bucket, entry.file))
            root = main.layout.root.rstrip("/") + "/"
            found |= {path.removeprefix(root) for path in paths}
    return found


def hints(path: Path) -> dict[str, str]:
    """The hints of the earliest snapshot, of main and the branches."""
    return {
        found.relative_to(path).as_posix(): found.read_text() for found in path.rglob("EARLIEST")
    }


CHANGELOG_HINT = "changelog/EARLIEST"


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.sampled(3)
def test_both_engines_leave_the_same_files(
    seed: int, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    kind = [*KINDS][seed % len(KINDS)]
    java = peers(limits.JAVA_NEW if seed // len(KINDS) % 3 == 2 else limits.JAVA)
    history = History(tmp_path / "d.db" / "t", KINDS[kind], java, seed)
    path, copy = history.path, tmp_path / "copy.db" / "t"
    java.write(path, history.rows(4))
    for turn in range(4):
        for _ in range(6):
            history.step()
        history.consume()
        before = states_of_all(history, by_lakecore)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        ours, theirs = (path, copy) if turn % 2 == seed % 2 else (copy, path)
        shared = shared_changelogs(history)
        for line in history.lines:
            retain = history.chance.randint(1, 4)
            java.peer.ask("expire", path=str(theirs), retain=retain, branch=line)
            table = lc.open_table(ours, branch=line)
            table.expire_snapshots(retain_max=retain, retain_min=retain, max_deletes=1000)

        # Java's expiry of one line deletes changelogs that another line still has.
        assert files(theirs) <= files(ours)
        assert files(ours) - files(theirs) <= shared
        assert hints(path) == hints(copy)
        left = states_of_all(history, java.read)
        assert left == {name: before[name] for name in left}
    java.write(path, history.rows(4))
    assert states_of_all(history, by_lakecore) == states_of_all(history, java.read)


@pytest.mark.parametrize("kind", ["keyed", "partitioned", "input", "lookup", "append"])
def test_both_engines_keep_and_expire_the_same_changelogs(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    history = History(tmp_path / "d.db" / "t", KINDS[kind], java, 5)
    path, copy = history.path, tmp_path / "copy.db" / "t"
    java.write(path, history.rows(4))
    for retain, changelogs in ((3, 6), (2, 5), (1, 4)):
        for _ in range(6):
            history.step()
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        before = states(path, OURS.read)

        java.peer.ask("expire", path=str(copy), retain=retain, changelogs=changelogs)
        table = history.table.copy(LONG)
        table.expire_snapshots(retain_max=retain, retain_min=retain, max_deletes=1000)
        table.expire_changelogs(retain_max=changelogs, retain_min=changelogs, max_deletes=1000)

        # Java 1.4.2 writes this hint also if no changelog expires.
        assert files(path) | {CHANGELOG_HINT} == files(copy) | {CHANGELOG_HINT}
        left = states(path, java.read)
        assert left == {name: before[name] for name in left}
    ids = [int(name.rpartition("-")[2]) for name in files(path) if "changelog/changelog-" in name]
    first = min(ids)
    ours, theirs = OURS.stream(path, first), java.stream(path, first, LONG)
    assert {n: sorted(map(repr, rows)) for n, rows in ours.items()} == {
        n: sorted(map(repr, rows)) for n, rows in theirs.items()
    }


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_NEW])
@pytest.mark.parametrize("kind", ["keyed", "dynamic", "input", "lookup", "vectors", "append"])
@pytest.mark.sampled(2)
def test_java_goes_on_after_a_rollback(
    kind: str, version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(version)
    history = History(tmp_path / "d.db" / "t", KINDS[kind], java, 3)
    path, copy = history.path, tmp_path / "copy.db" / "t"
    java.write(path, history.rows(4))
    for _ in range(10):
        history.step()
    shutil.copytree(path, copy)
    before = states(path, OURS.read)
    ids = history.table.context.history.snapshot_ids()
    target = ids[len(ids) // 2]

    java.roll_back(copy, target)
    history.table.rollback_to(target)

    # Java leaves the files of data and manifests; what it deletes, lakecore deletes, too.
    assert files(path) <= files(copy)
    kept = ("snapshot/", "tag/", "schema/", "changelog/", "consumer/")
    assert {f for f in files(path) if f.startswith(kept)} == {
        f for f in files(copy) if f.startswith(kept)
    }
    left = states(path, java.read)
    assert left == {name: before[name] for name in left}
    java.write(path, history.rows(4))
    assert OURS.read(path) == sorted(java.read(path), key=OURS.read(path).index)
    again = states(path, java.read)
    java.peer.ask("expire", path=str(path), retain=1)
    after = states(path, java.read)
    assert after == {name: again[name] for name in after}


def test_both_engines_expire_the_same_partitions(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    path, copy = tmp_path / "d.db" / "t", tmp_path / "copy.db" / "t"
    table = lc.open_table(
        path,
        create=True,
        schema={"id": "INT", "d": "STRING", "h": "STRING"},
        partition_keys=["d", "h"],
        options=STEADY,
    )
    days = ["2024-01-01", "2024-1-2", "20240103", "2999-01-01", "eu", None, "2024-13-45"]
    table.write([{"id": 1, "d": day, "h": hour} for day in days for hour in ("07", "23", None)])
    cases: list[dict[str, str]] = [
        {},
        {"partition.timestamp-formatter": "yyyyMMdd"},
        {"partition.timestamp-pattern": "$d $h:00:00"},
        {"partition.timestamp-pattern": "$d-$h", "partition.timestamp-formatter": "yyyy-M-d-HH"},
        {"partition.expiration-max-num": "2"},
        {"partition.expiration-strategy": "update-time"},
    ]
    for case in cases:
        options = {
            "partition.expiration-time": "30 d",
            "partition.expiration-check-interval": "0 s",
            **case,
        }
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        theirs = java.peer.ask("expire_partitions", path=str(copy), options=options)

        done = table.copy(options).expire_partitions(dry_run=True)

        assert [dict(each) for each in done.partitions] == theirs, case


def test_a_staged_write_of_spark_is_an_orphan_for_java(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = lc.open_table(
        tmp_path / "t", create=True, schema=dict(COLUMNS), primary_keys=["id", "p"]
    )
    table.write([{"id": 1, "p": "a", "n": 2, "v": "b"}])
    rows = table.to_arrow()
    staged = tmp_path / "t" / "manifest" / f"staged-{'0' * 64}"
    staged.write_bytes(b"of a driver that died")
    later = int(staged.stat().st_mtime * 1000) + 86_400_000

    java = peers(limits.JAVA).peer
    assert java.ask("remove_orphans", path=table.path, older_than_ms=later) == 1
    assert not staged.exists()
    assert lc.open_table(table.path).to_arrow().equals(rows)
