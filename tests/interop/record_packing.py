"""Records what Java packs: `python -m tests.interop.record_packing VERSION FILE`.

Run in the peers' venv; one JVM, one version of Paimon. Files of random sizes, drawn from one seed,
go through Java's own coordinator (tables without buckets) and compact manager (buckets in order),
whose rewriter only takes notes. `FILE` (below `tests/golden/packing/`) gets one JSON object a line:

- `options`: the table options, by their keys;
- `sizes`: the bytes of each file, no two alike, by sequence number;
- `small`: the groups that are packed of a partition without buckets, each sorted;
- `picks`: those of a bucket in order, pick after pick, in the order they are written in;
- `full`: what a full compaction of a bucket in order writes anew, or null.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jpype

from tests.interop.setup_peers import jars

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Objects of the JVM: JPype knows their classes only at run time.
    Java = Any

CASES = 300
PAIMON = "org.apache.paimon."


def main(version: str, out: str) -> None:
    """Draw the cases, ask Java, write the file."""
    jpype.startJVM("-Xmx512m", classpath=[*map(str, jars(version))], convertStrings=True)
    chance = random.Random(7)
    lines = []
    with tempfile.TemporaryDirectory(prefix="lakecore-packing-") as scratch:
        for number in range(CASES):
            options, sizes = draw_options(chance), draw_sizes(chance)
            table = _table(f"{scratch}/{number}", options)
            case = {
                "options": options,
                "sizes": sizes,
                "small": small(table, sizes),
                "picks": picks(table, sizes, chance),
                "full": full(table, sizes),
            }
            lines.append(json.dumps(case))
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_options(chance: random.Random) -> dict[str, str]:
    """Draw table options, most of them left as they are."""
    options = {"target-file-size": "1000 b", "source.split.open-file-cost": "0 b"}
    if chance.random() < 0.7:
        options["compaction.min.file-num"] = chance.choice(("2", "3", "4", "8"))
    if chance.random() < 0.5:
        options["source.split.open-file-cost"] = chance.choice(("1 b", "100 b", "900 b"))
    if chance.random() < 0.1:
        options["compaction.force-rewrite-all-files"] = "true"
    return options


def draw_sizes(chance: random.Random) -> list[int]:
    """Draw the files of a bucket, their sizes about one size, or about very different ones."""
    count = chance.choice((0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 40))
    middle = chance.choice((10, 100, 400, 700, 1000))
    spread = chance.choice((1.2, 2.0, 10.0))
    sizes: dict[int, None] = {}
    while len(sizes) < count:
        sizes[round(middle * spread ** chance.uniform(-1, 1)) + len(sizes)] = None
    found = list(sizes)
    chance.shuffle(found)
    return found


def small(table: Java, sizes: Sequence[int]) -> list[list[int]]:
    """Return the groups of the coordinator of tables without buckets."""
    coordinator = _class("append.AppendCompactCoordinator")(table, False)
    row = _class("data.BinaryRow").EMPTY_ROW
    _call(coordinator, "notifyNewFiles", row, _files(sizes))
    tasks = _call(coordinator, "compactPlan")
    groups = [sorted(int(str(file.fileName())) for file in task.compactBefore()) for task in tasks]
    return sorted(groups)


def picks(table: Java, sizes: Sequence[int], chance: random.Random) -> list[list[int]]:
    """Return pick after pick of a bucket in order, whose files come in any order."""
    shuffled = list(enumerate(sizes))
    chance.shuffle(shuffled)
    notes: list[list[int]] = []
    manager = _manager(table, _list(_file(number, size) for number, size in shuffled), notes)
    while True:
        before = len(notes)
        manager.triggerCompaction(False)
        manager.getCompactionResult(True)
        if len(notes) == before:
            return notes


def full(table: Java, sizes: Sequence[int]) -> list[int] | None:
    """Return what a full compaction of a bucket in order takes."""
    notes: list[list[int]] = []
    manager = _manager(table, _files(sizes), notes)
    if sizes:
        manager.triggerCompaction(True)
        manager.getCompactionResult(True)
    return notes[0] if notes else None


def _manager(table: Java, files: Java, notes: list[list[int]]) -> Java:
    def rewrite(taken: Java) -> Java:
        notes.append([int(str(file.fileName())) for file in taken])
        return _list(())

    options = table.coreOptions()
    return _class("append.BucketedAppendCompactManager")(
        jpype.JClass("java.util.concurrent.Executors").newSingleThreadExecutor(
            jpype.JProxy("java.util.concurrent.ThreadFactory", {"newThread": _daemon})
        ),
        files,
        None,
        options.compactionMinFileNum(),
        options.targetFileSize(False),
        options.compactionFileSize(False),
        options.forceRewriteAllFiles(),
        jpype.JProxy(
            PAIMON + "append.BucketedAppendCompactManager$CompactRewriter", {"rewrite": rewrite}
        ),
        None,
    )


def _daemon(task: Java) -> Java:
    thread = jpype.JClass("java.lang.Thread")(task)
    thread.setDaemon(True)
    return thread


def _table(path: str, options: dict[str, str]) -> Java:
    io, where = _class("fs.local.LocalFileIO").create(), _class("fs.Path")(path)
    builder = _class("schema.Schema").newBuilder().column("a", _class("types.DataTypes").INT())
    texts = jpype.JClass("java.util.HashMap")()
    for key, text in options.items():
        texts.put(key, text)
    _class("schema.SchemaManager")(io, where).createTable(builder.options(texts).build())
    return _class("table.FileStoreTableFactory").create(io, where)


def _call(target: Java, name: str, *arguments: Java) -> Java:
    """Call a method that is there for Java's own tests."""
    methods = target.getClass().getDeclaredMethods()
    method = next(each for each in methods if str(each.getName()) == name)
    method.setAccessible(True)
    return method.invoke(target, jpype.JArray(jpype.JClass("java.lang.Object"))(arguments))


def _files(sizes: Sequence[int]) -> Java:
    return _list(_file(number, size) for number, size in enumerate(sizes))


def _list(items: Any) -> Java:
    found = jpype.JClass("java.util.ArrayList")()
    for item in items:
        found.add(item)
    return found


def _file(number: int, size: int) -> Java:
    row = _class("data.BinaryRow").EMPTY_ROW
    stats = _class("stats.SimpleStats").EMPTY_STATS
    return _class("io.DataFileMeta").create(
        str(number),
        size,
        10,
        *(row, row, stats, stats, 10 * number, 10 * number + 9, 0, 0),
        jpype.JClass("java.util.ArrayList")(),
        _class("data.Timestamp").fromEpochMillis(0),
        jpype.JClass("java.lang.Long")(0),
        *(None, None, None, None, None, None),
    )


def _class(name: str) -> Java:
    return jpype.JClass(PAIMON + name)


if __name__ == "__main__":
    main(*sys.argv[1:])
