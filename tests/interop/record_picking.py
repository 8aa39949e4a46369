"""Records what Java compacts: `python -m tests.interop.record_picking VERSION FILE [CLASSES]`.

Run in the peers' venv; one JVM, one version of Paimon. Random buckets, drawn from one seed, go
through Java's own levels, picking and compaction task, whose rewriter only takes notes. `FILE`
(below `tests/golden/picking/`) gets one JSON object a line:

- `options`: the table options, by their keys;
- `files`: the bucket as `tests/tables.py` shows it;
- `last_full`: "now" if a full compaction has just been, else null: long ago, or never;
- `pick`: the decision, null or output level and the numbers of the files as Java orders them; where
  `lookup-compact` is gentle, of that many picks in a row;
- `task`, `full_task`: what the compaction of that pick, and of a full one, does: upgrades `u3`,
  files merged and written anew `r0,1/2` (sections in key order), ending in `d` where delete rows
  are dropped. Null: no compaction.

CLASSES is a folder of newer classes that stand before those of the version.
"""

from __future__ import annotations

import json
import random
import re
import sys
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
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LOOKUP_TABLES = (
    {"changelog-producer": "lookup"},
    {"merge-engine": "first-row"},
    {"force-lookup": "true"},
    {"compaction.force-up-level-0": "true"},
    {"force-lookup": "true", "lookup-compact": "gentle"},
    {
        "force-lookup": "true",
        "lookup-compact": "gentle",
        "lookup-compact.max-interval": "6",
        "num-sorted-run.compaction-trigger": "2",
    },
)


def main(version: str, out: str, *classes: str) -> None:
    """Draw the cases, ask Java, write the file."""
    jpype.startJVM("-Xmx512m", classpath=[*classes, *map(str, jars(version))], convertStrings=True)
    chance = random.Random(5)
    lines = []
    for _ in range(CASES):
        options, files, last_full = draw_options(chance), draw_files(chance), None
        if "compaction.optimization-interval" in options and chance.random() < 0.6:
            last_full = "now"
        bucket = Bucket(options, files, last_full)
        case = {
            "options": options,
            "files": " | ".join(files),
            "last_full": last_full,
            "pick": bucket.pick(),
            "task": bucket.run(full=False),
            "full_task": bucket.run(full=True),
        }
        lines.append(json.dumps(case))
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_options(chance: random.Random) -> dict[str, str]:
    """Draw table options, most of them left as they are."""
    options = {"target-file-size": "100 b"}

    def perhaps(share: float, key: str, *texts: str) -> None:
        if chance.random() < share:
            options[key] = chance.choice(texts)

    perhaps(0.6, "num-sorted-run.compaction-trigger", "1", "2", "3", "4")
    perhaps(0.2, "num-levels", "2", "3", "4", "9")
    perhaps(0.4, "compaction.max-size-amplification-percent", "0", "25", "100", "10000")
    perhaps(0.3, "compaction.size-ratio", "0", "10", "50", "100")
    perhaps(0.1, "compaction.force-rewrite-all-files", "true")
    perhaps(0.1, "compaction.optimization-interval", "1 d")
    perhaps(0.1, "compaction.total-size-threshold", "50 b", "200 b", "500 b")
    perhaps(0.1, "compaction.incremental-size-threshold", "0 b", "50 b", "300 b")
    if chance.random() < 0.15:
        options |= {
            "compaction.offpeak.start.hour": "0",
            "compaction.offpeak.end.hour": "24",
            "compaction.offpeak-ratio": chance.choice(("10", "30", "200")),
        }
    if chance.random() < 0.35:
        options |= chance.choice(LOOKUP_TABLES)
    return options


def draw_files(chance: random.Random) -> list[str]:
    """Draw the files of a bucket: level 0 as it comes, the levels above without overlaps."""
    files: dict[str, None] = {}
    steady, spread = chance.choice((10, 60, 100)), chance.choice((1.0, 1.02, 2.0, 8.0))
    rising, swing = chance.random() < 0.5, chance.choice((1, 1, 20))

    def add(level: int, low: str, high: str) -> None:
        height = level + chance.random() if rising else (level + 1) * chance.random()
        size = round(steady * spread**height) + chance.choice((0, 0, 1))
        size *= chance.choice((1, swing))
        first = chance.randrange(40)
        last = first + chance.choice((0, 3, 9))
        deletes = chance.choice(("", "", "", " -1", " -?"))
        files[f"L{level} {low}-{high} {first}..{last}{deletes} @{size}"] = None

    for _ in range(chance.choice((0, 0, 1, 1, 2, 3, 4, 5, 6, 7))):
        low, high = sorted(chance.choices(LETTERS, k=2))
        add(0, low, high)
    for level in range(1, 7):
        if chance.random() < (0.5 if level in {4, 5} else 0.2):
            bounds = sorted(chance.sample(LETTERS, 2 * chance.choice((1, 1, 2, 4))))
            for low, high in zip(bounds[::2], bounds[1::2], strict=True):
                add(level, low, high)
    drawn = list(files)
    chance.shuffle(drawn)
    return drawn


class Bucket:
    """One bucket in Java."""

    def __init__(
        self, options: dict[str, str], files: Sequence[str], last_full: str | None
    ) -> None:
        """Make Java's files and read the options as Java does."""
        texts = jpype.JClass("java.util.HashMap")()
        for key, text in options.items():
            texts.put(key, text)
        self._options = _class("CoreOptions").fromMap(texts)
        self._last_full = last_full
        self._numbers = {name: number for number, name in enumerate(files)}
        self._files = jpype.JClass("java.util.ArrayList")()
        for name in files:
            self._files.add(_file(name))
        self._keys = jpype.JProxy(
            "java.util.Comparator", {"compare": lambda a, b: a.getInt(0) - b.getInt(0)}
        )

    def pick(self) -> list[Any] | None:
        """Return the decision; of a gentle look-up, those of many picks."""
        strategy, interval = self._strategy()
        levels = self._levels()
        picks = []
        for _ in range(1 if interval is None else interval + 1):
            found = strategy.pick(levels.numberOfLevels(), levels.levelSortedRuns())
            unit = found.get() if found.isPresent() else None
            # Nothing is picked of an empty bucket too; the caller leaves it at that.
            if unit is not None and unit.files().isEmpty():
                unit = None
            picks.append(
                None
                if unit is None
                else [int(unit.outputLevel()), [self._number(file) for file in unit.files()]]
            )
        return picks[0] if interval is None else picks

    def run(self, *, full: bool) -> list[str] | None:
        """Return what a compaction does."""
        notes: list[str] = []

        def rewrite(level: int, drops: bool, sections: Java) -> Java:  # noqa: FBT001  Java's order
            texts = [
                ",".join(map(str, sorted(self._number(f) for run in section for f in run.files())))
                for section in sections
            ]
            notes.append(f"r{'/'.join(texts)}>{level}{'d' if drops else ''}")
            return _class("compact.CompactResult")()

        def upgrade(level: int, file: Java) -> Java:
            notes.append(f"u{self._number(file)}>{level}")
            return _class("compact.CompactResult")()

        rewriter = jpype.JProxy(
            PAIMON + "mergetree.compact.CompactRewriter",
            {"rewrite": rewrite, "upgrade": upgrade, "close": lambda: None},
        )
        executor = jpype.JClass("java.util.concurrent.Executors").newSingleThreadExecutor()
        strategy, _ = self._strategy()
        options = self._options
        compaction = _class("mergetree.compact.MergeTreeCompactManager")(
            executor,
            self._levels(),
            strategy,
            self._keys,
            options.compactionFileSize(True),
            options.numSortedRunStopTrigger(),
            rewriter,
            *(None, None, False, options.needLookup(), None),
            options.forceRewriteAllFiles(),
            False,
        )
        compaction.triggerCompaction(full)
        ran = compaction.getCompactionResult(True).isPresent()
        executor.shutdown()
        assert ran or not notes
        return notes if ran else None

    def _strategy(self) -> tuple[Java, int | None]:
        options = self._options
        early = _class("mergetree.compact.EarlyFullCompaction").create(options)
        if self._last_full == "now":
            early.updateLastFullCompaction()
        universal = _class("mergetree.compact.UniversalCompaction")(
            options.maxSizeAmplificationPercent(),
            options.sortedRunSizeRatio(),
            options.numSortedRunCompactionTrigger(),
            early,
            _class("mergetree.compact.OffPeakHours").create(options),
        )
        forced = _class("mergetree.compact.ForceUpLevel0Compaction")
        if options.needLookup():
            gentle = str(options.lookupCompact().name()) == "GENTLE"
            interval = int(options.lookupCompactMaxInterval()) if gentle else None
            boxed = None if interval is None else jpype.JClass("java.lang.Integer")(interval)
            return forced(universal, boxed), interval
        if options.toConfiguration().getBoolean("compaction.force-up-level-0", False):
            return forced(universal, None), None
        return universal, None

    def _levels(self) -> Java:
        return _class("mergetree.Levels")(self._keys, self._files, self._options.numLevels())

    def _number(self, file: Java) -> int:
        return self._numbers[str(file.fileName())]


def _file(name: str) -> Java:
    match = re.fullmatch(r"L(\d) (\w)-(\w) (\d+)\.\.(\d+)(?: -(\d+|\?))? @(\d+)", name)
    assert match, name
    level, low, high, first, last, deletes, size = match.groups()
    row = _class("data.BinaryRow")
    integer, long = jpype.JClass("java.lang.Integer"), jpype.JClass("java.lang.Long")
    stats = _class("stats.SimpleStats").EMPTY_STATS
    return _class("io.DataFileMeta").create(
        name,
        int(size),
        10,
        row.singleColumn(integer(ord(low))),
        row.singleColumn(integer(ord(high))),
        *(stats, stats, int(first), int(last), 0, int(level)),
        jpype.JClass("java.util.ArrayList")(),
        _class("data.Timestamp").fromEpochMillis(0),
        None if deletes == "?" else long(int(deletes or 0)),
        *(None, None, None, None, None, None),
    )


def _class(name: str) -> Java:
    return jpype.JClass(PAIMON + name)


if __name__ == "__main__":
    main(*sys.argv[1:])
