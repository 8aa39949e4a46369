"""Tags and branches: what one of lakecore and Java makes is right for the other."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TYPES = {"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
COLUMNS = tuple(Column(key, parse_type(kind)) for key, kind in TYPES.items())


def keyed(name: str, **options: str) -> Case:
    return Case(
        name=name,
        columns=COLUMNS,
        commits=(),
        primary_keys=("p", "id"),
        partition_keys=("p",),
        options={"bucket": "1", **{k.replace("_", "-"): v for k, v in options.items()}},
    )


def put(path: Path, *rows: tuple[int, int, str], branch: str | None = None) -> None:
    lc.open_table(path, branch=branch).write([dict(zip(TYPES, row, strict=True)) for row in rows])


def java_rows(*rows: tuple[int, int, str]) -> tuple[tuple[str, list[Any]], ...]:
    return tuple(("+I", [*row]) for row in rows)


def held(path: Path, branch: str | None = None, **at: Any) -> list[list[Any]]:
    table = lc.open_table(path, branch=branch)
    return sorted([*row] for row in table.scan(**at).collect().rows())


def by_java(java: PeerEngine, path: Path, **options: str) -> list[list[Any]]:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return sorted([*row] for row in java.read(path, stated))


def files(path: Path, *folders: str) -> dict[str, Any]:
    """The metadata files below some folders, with the parsed content of those of tags."""
    found = {}
    for folder in folders:
        for file in sorted((path / folder).rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                text = file.read_text()
                parsed = json.loads(text) if text.startswith("{") else text
                if isinstance(parsed, dict):
                    parsed.pop("tagCreateTime", None)
                    parsed.pop("uuid", None)  # Java 1.4 leaves it out of tags
                found[str(file.relative_to(path))] = parsed
    return found


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_OLD])
def test_both_make_the_same_tags_and_branches(
    version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, theirs, ours = peers(version), tmp_path / "j.db" / "t", tmp_path / "l.db" / "t"
    LakecoreEngine().create(theirs, keyed("t"))
    for number in (1, 2, 3):
        put(theirs, (number, 1, "a"))
    shutil.copytree(theirs, ours)

    java.manage(theirs, "createTag", "one", 1)
    java.manage(theirs, "createTag", "two", 2, "PT36H")
    renames = version != limits.JAVA_OLD
    java.manage(theirs, "createTag", "now" if renames else "three")
    if renames:
        java.manage(theirs, "renameTag", "now", "three")
    java.manage(theirs, "createTag", "gone")
    java.manage(theirs, "deleteTag", "gone")
    java.manage(theirs, "createBranch", "b", "two")
    java.manage(theirs, "createBranch", "empty")
    java.manage(theirs, "createBranch", "dropped")
    java.manage(theirs, "deleteBranch", "dropped")
    table = lc.open_table(ours)
    table.create_tag("one", snapshot_id=1)
    table.create_tag("two", snapshot_id=2, time_retained="36 h")
    table.create_tag("now")
    table.rename_tag("now", "three")
    table.create_tag("gone")
    table.delete_tag("gone")
    table.create_branch("b", tag="two")
    table.create_branch("empty")
    table.create_branch("dropped")
    table.delete_branch("dropped")

    made = [files(path, "tag", "branch") for path in (ours, theirs)]
    assert {*made[0]} == {*made[1]}
    if version != limits.JAVA_OLD:  # which states other fields
        assert made[0] == made[1]
    for path in (ours, theirs):
        assert by_java(java, path, scan__tag_name="two") == held(path, tag="two")
        assert by_java(java, path, branch="b") == held(path, "b") == [[1, 1, "a"], [2, 1, "a"]]
        assert by_java(java, path, branch="empty") == held(path, "empty") == []


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_NEW])
@pytest.mark.parametrize("maker", [limits.JAVA, limits.LAKECORE])
def test_both_write_on_a_branch_and_fast_forward(
    maker: str, version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(version), tmp_path / "d.db" / "t"
    LakecoreEngine().create(path, keyed("t"))
    put(path, (1, 1, "a"))
    put(path, (1, 2, "a"))
    if maker == limits.JAVA:
        java.manage(path, "createTag", "t", 1)
        java.manage(path, "createBranch", "b", "t")
    else:
        table = lc.open_table(path)
        table.create_tag("t", snapshot_id=1)
        table.create_branch("b", tag="t")

    java.write_on(path, java_rows((2, 1, "java")), branch="b")
    put(path, (3, 1, "lakecore"), branch="b")
    java.write_on(path, java_rows((3, 1, "java"), (4, 1, "java")), branch="b")
    whole = [[1, 1, "a"], [2, 1, "java"], [3, 1, "java"], [4, 1, "java"]]
    assert held(path, "b") == by_java(java, path, branch="b") == whole
    assert held(path) == by_java(java, path) == [[1, 1, "a"], [1, 2, "a"]]

    other = tmp_path / "e.db" / "t"
    shutil.copytree(path, other)
    lc.open_table(path).fast_forward("b")
    java.manage(other, "fastForward", "b")
    for each in (path, other):
        assert held(each) == by_java(java, each) == whole
        put(each, (5, 1, "lakecore"))
        java.write_on(each, java_rows((6, 1, "java")))
        assert (
            held(each)
            == by_java(java, each)
            == [
                *whole,
                [5, 1, "lakecore"],
                [6, 1, "java"],
            ]
        )
        assert held(each, "b") == whole
    names = [{*files(each, "tag", "schema")} for each in (path, other)]
    assert names[0] == names[1]


def test_both_delete_the_same_files_with_a_tag(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, theirs = peers(limits.JAVA), tmp_path / "l.db" / "t", tmp_path / "j.db" / "t"
    LakecoreEngine().create(ours, keyed("t"))
    for number in range(1, 7):
        lc.open_table(ours).overwrite([{"p": 1, "id": 1, "v": f"v{number}"}])
        if number in {2, 3, 5}:
            lc.open_table(ours).create_tag(f"t{number}")
    lc.open_table(ours).expire_snapshots(retain_max=1, retain_min=1)
    shutil.copytree(ours, theirs)

    for name in ("t3", "t5", "t2"):
        lc.open_table(ours).delete_tag(name)
        java.manage(theirs, "deleteTag", name)
        left = [
            {*map(str, (f.relative_to(p) for f in p.rglob("*") if f.is_file()))}
            for p in (ours, theirs)
        ]
        visible = [{n for n in each if "/." not in n} for each in left]
        assert visible[0] == visible[1], name
    assert held(ours) == by_java(java, ours) == [[1, 1, "v6"]]


def test_both_read_the_same_rows_with_a_fallback_branch(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    LakecoreEngine().create(path, keyed("t"))
    lc.open_table(path).create_branch("b")
    put(path, (2, 1, "B"), (3, 1, "B"), branch="b")
    put(path, (3, 1, "BB"), (3, 2, "B"), (4, 1, "B"), branch="b")
    put(path, (1, 1, "M"), (2, 1, "M"))
    java.alter(path, [("set", "scan.fallback-branch", "b")])
    table = lc.open_table(path)

    def ours(**at: Any) -> list[list[Any]]:
        return sorted([*row] for row in table.scan(**at).collect().rows())

    assert ours() == by_java(java, path)
    assert len(ours()) == 5
    put(path, (3, 9, "M"))
    assert ours() == by_java(java, path)
    table.drop_partition({"p": 2})
    assert ours() == by_java(java, path)
    for name in ("files", "partitions", "buckets", "snapshots", "manifests"):
        rows: Any = java.peer.ask("system_table", path=str(path), name=name)
        assert len(rows["rows"]) == getattr(table.inspect, name)().height, name
    lc.open_table(path, branch="b").compact(full=True)
    catalog = lc.connect(tmp_path)
    for _ in range(2):
        optimized: Any = java.peer.ask("system_table", path=str(path), name="ro")
        assert len(optimized["rows"]) == catalog.get_table("d.t$ro").count()
        lc.open_table(path).compact(full=True)


def test_table_without_partitions_falls_back_as_a_whole(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    case = Case(
        name="t", columns=COLUMNS, commits=(), primary_keys=("id",), options={"bucket": "1"}
    )
    LakecoreEngine().create(path, case)
    lc.open_table(path).create_branch("b")
    put(path, (1, 1, "B"), branch="b")
    java.alter(path, [("set", "scan.fallback-branch", "b")])

    assert held(path) == by_java(java, path) == [[1, 1, "B"]]
    put(path, (1, 2, "M"))
    assert held(path) == by_java(java, path) == [[1, 2, "M"]]


DAY = int(datetime(2024, 3, 5, tzinfo=UTC).timestamp()) * 1000
PERIODS: tuple[dict[str, str], ...] = (
    {},
    {"tag.period-formatter": "without_dashes"},
    {"tag.creation-period": "hourly"},
    {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
    {"tag.creation-period": "two-hours"},
    {"tag.creation-period-duration": "90 min"},
)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(3)
def test_both_make_the_same_automatic_tags(
    seed: int, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    options = {"tag.automatic-creation": "watermark", **PERIODS[seed % len(PERIODS)]}
    drawn = {
        "tag.creation-delay": f"{chance.choice((5, 20, 59))} min",
        "tag.automatic-completion": "true",
        "tag.num-retained-max": str(chance.randint(1, 4)),
        "sink.watermark-time-zone": chance.choice(("Asia/Shanghai", "America/New_York", "+05:30")),
        "tag.default-time-retained": "400 d",
    }
    if chance.random() < 0.5:
        options |= {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    options |= {key: text for key, text in drawn.items() if chance.random() < 0.5}
    case = Case(name="t", columns=COLUMNS, commits=(), options=options)
    java, ours, theirs = peers(limits.JAVA), tmp_path / "l.db" / "t", tmp_path / "j.db" / "t"
    for path in (ours, theirs):
        LakecoreEngine().create(path, case)
    watermark = DAY
    step = 86_400_000 if seed % len(PERIODS) < 2 else 5_400_000
    for number in range(10):
        watermark += chance.choice((0, step // 7, step // 2, step, 2 * step, 5 * step))
        lc.open_table(ours).write([{"p": 1, "id": number, "v": "x"}], watermark=watermark)
        java.write_on(theirs, java_rows((1, number, "x")), watermark=watermark)

        made = [{t.name: t.snapshot_id for t in lc.open_table(p).tags()} for p in (ours, theirs)]
        assert made[0] == made[1], (number, options)
    assert made[0]
    for name in made[0]:
        assert by_java(java, ours, scan__tag_name=name) == held(ours, tag=name)


@pytest.mark.parametrize("options", [{}, {"tag.batch.customized-name": "last"}])
def test_both_move_the_tag_of_a_batch(
    options: dict[str, str], peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, ours, theirs = peers(limits.JAVA), tmp_path / "l.db" / "t", tmp_path / "j.db" / "t"
    stated = {"tag.automatic-creation": "batch", "tag.num-retained-max": "2", **options}
    case = Case(name="t", columns=COLUMNS, commits=(), options=stated)
    for path in (ours, theirs):
        LakecoreEngine().create(path, case)
    for number in range(4):
        put(ours, (1, number, "x"))
        java.write_on(theirs, java_rows((1, number, "x")))
        java.peer.ask("tag_batch", path=str(theirs))
        for path in (ours, theirs):
            lc.open_table(path).create_tag(f"by hand {number}")

    made = [{t.name: t.snapshot_id for t in lc.open_table(p).tags()} for p in (ours, theirs)]
    assert made[0] == made[1]
    assert len(made[0]) == 3
