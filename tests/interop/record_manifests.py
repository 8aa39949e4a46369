"""Records how Java merges manifests: `python -m tests.interop.record_manifests VERSION FILE`.

Run in the peers' venv; one JVM, one version of Paimon. Random manifests, drawn from one seed, are
written by Java and go through its own merger. `FILE` (below `tests/golden/manifests/`) gets one
JSON object a line:

- `target`, `count_min`, `threshold`: the options of the merge, in bytes and manifests;
- `manifests`: of each its bytes, and its entries: `+3.f1` adds file `f1` to partition 3, `-3.f1`
  deletes it, `+.f1` is of a table without partitions;
- `full`: whether Java merged in full;
- `result`: the manifests after it, in order: the number of one that stays, or the entries of a new
  one.
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

CASES = 200
PAIMON = "org.apache.paimon."


def main(version: str, out: str) -> None:
    """Draw the cases, ask Java, write the file."""
    jpype.startJVM("-Xmx512m", classpath=[*map(str, jars(version))], convertStrings=True)
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        tables = {
            partitioned: Table(f"{folder}/{partitioned}", partitioned=partitioned)
            for partitioned in (False, True)
        }
        lines = []
        for _ in range(CASES):
            partitioned = chance.random() < 0.6
            drawn = draw_manifests(chance, partitioned=partitioned)
            lines.append(json.dumps(tables[partitioned].case(chance, drawn)))
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_manifests(chance: random.Random, *, partitioned: bool) -> list[list[str]]:
    """Draw the entries of some manifests: files that are added, and some deleted later."""
    live: list[str] = []
    manifests = []
    share = chance.choice((0.0, 0.0, 0.1, 0.5))
    wide = chance.choice((1, 3, 40))
    for number in range(chance.choice((0, 1, 2, 4, 6, 9, 14))):
        entries: list[str] = []
        first = chance.randrange(40)
        for _ in range(chance.choice((1, 1, 2, 8, 30, 90))):
            if live and chance.random() < share:
                entries.append("-" + live.pop(chance.randrange(len(live))))
                continue
            partition = str(first + chance.randrange(wide)) if partitioned else ""
            noise = chance.getrandbits(chance.choice((16, 64)))
            name = f"{partition}.{number}-{len(entries)}-{noise:x}"
            entries.append("+" + name)
            live.append(name)
        manifests.append(entries)
    return manifests


class Table:
    """One table in Java, of which only the manifests are used."""

    def __init__(self, path: str, *, partitioned: bool) -> None:
        """Create it."""
        schema = _class("schema.Schema").newBuilder().column("p", _class("types.DataTypes").INT())
        if partitioned:
            schema = schema.column("v", _class("types.DataTypes").INT()).partitionKeys("p")
        io = _class("fs.local.LocalFileIO").create()
        where = _class("fs.Path")(path)
        manager = _class("schema.SchemaManager")(io, where)
        manager.createTable(schema.option("manifest.target-file-size", "1 gb").build())
        store = _class("table.FileStoreTableFactory").create(io, where).store()
        self._partitioned = partitioned
        self._file = store.manifestFileFactory().create()
        self._type = store.partitionType()

    def case(self, chance: random.Random, drawn: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Write the manifests, merge them, and say what came of it."""
        written = [self._written(entries) for entries in drawn]
        sizes = [int(manifest.fileSize()) for manifest in written]
        # Most have a header of some kilobytes: options are drawn from among the sizes.
        size = chance.choice(sizes) if sizes else 5_000
        target = round(size * chance.choice((0.5, 0.9, 1, 1.01, 1.3, 2, 5)))
        threshold = round(size * chance.choice((0.1, 1, 2, 3, 6, 1000)))
        count_min = chance.choice((2, 3, 5, 30))
        metas = jpype.JClass("java.util.ArrayList")()
        for manifest in written:
            metas.add(manifest)
        merger = _class("operation.ManifestFileMerger")
        made = jpype.JClass("java.util.ArrayList")()
        full = merger.tryFullCompaction(
            metas, made, self._file, target, threshold, self._type, None
        ).isPresent()
        merged = merger.merge(metas, self._file, target, count_min, threshold, self._type, None)
        names = [str(manifest.fileName()) for manifest in written]
        return {
            "target": target,
            "count_min": count_min,
            "threshold": threshold,
            "manifests": [
                {"size": size, "entries": " ".join(entries)}
                for size, entries in zip(sizes, drawn, strict=True)
            ],
            "full": bool(full),
            "result": [
                names.index(str(each.fileName()))
                if str(each.fileName()) in names
                else self._entries(each)
                for each in merged
            ],
        }

    def _written(self, entries: Sequence[str]) -> Java:
        made = jpype.JClass("java.util.ArrayList")()
        for entry in entries:
            made.add(self._entry(entry))
        (manifest,) = self._file.write(made)
        return manifest

    def _entry(self, text: str) -> Java:
        partition, _, name = text[1:].partition(".")
        row = _class("data.BinaryRow")
        integer = jpype.JClass("java.lang.Integer")
        stats = _class("stats.SimpleStats").EMPTY_STATS
        file = _class("io.DataFileMeta").create(
            name,
            *(100, 10, row.EMPTY_ROW, row.EMPTY_ROW, stats, stats, 0, 9, 0, 0),
            jpype.JClass("java.util.ArrayList")(),
            _class("data.Timestamp").fromEpochMillis(0),
            jpype.JClass("java.lang.Long")(0),
            *(None, None, None, None, None, None),
        )
        kind = _class("manifest.FileKind")
        return _class("manifest.ManifestEntry").create(
            kind.ADD if text[0] == "+" else kind.DELETE,
            row.singleColumn(integer(int(partition))) if self._partitioned else row.EMPTY_ROW,
            *(0, 1),
            file,
        )

    def _entries(self, manifest: Java) -> str:
        return " ".join(
            f"{'+' if str(entry.kind().name()) == 'ADD' else '-'}"
            f"{entry.partition().getInt(0) if self._partitioned else ''}.{entry.file().fileName()}"
            for entry in self._file.read(manifest.fileName(), manifest.fileSize())
        )


def _class(name: str) -> Java:
    return jpype.JClass(PAIMON + name)


if __name__ == "__main__":
    main(*sys.argv[1:])
