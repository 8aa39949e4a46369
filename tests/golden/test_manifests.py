"""Java Paimon's merging of manifests, on hundreds of sequences of them, is ours.

`manifests/java-VERSION.jsonl`, a case a line, is what `tests/interop/record_manifests.py` wrote and
explains. Manifests have the sizes they had in Java, times `SCALE`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.format.avro_container import Frame, assemble
from lakecore.format.binary_row import serialize_row
from lakecore.format.manifest_files import encode_manifest
from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.files import EMPTY_ROW
from lakecore.model.manifest import FileKind, ManifestFile, fold
from lakecore.table.commits.commit_manifests import ManifestWriter
from tests.tables import entry, files, new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.table.context import TableContext

CASES = [
    json.loads(line)
    for path in sorted((Path(__file__).parent / "manifests").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
# An empty manifest of ours is larger than one of Java's.
SCALE = 3


def parsed(words: str, context: TableContext) -> list[ManifestEntry]:
    (file,) = files("L0 a-m")
    fields = context.schema.partition_fields
    found = []
    for word in words.split():
        partition, _, name = word[1:].partition(".")
        found.append(
            entry(
                replace(file, name=name),
                FileKind.ADD if word[0] == "+" else FileKind.DELETE,
                partition=serialize_row([pa.array([int(partition)], pa.int32())], [fields[0].type])
                if partition
                else EMPTY_ROW,
            )
        )
    return found


def stored(
    number: int, size_bytes: int, entries: Sequence[ManifestEntry], context: TableContext
) -> ManifestFile:
    """A manifest of exactly that size, and its line in a list."""
    frame = Frame(encode_manifest(entries, "zstd"), "")
    blocks = list(frame.blocks())
    bare = len(assemble({**frame.metadata, "padding": bytes(1000)}, frame.sync, blocks)) - 1000
    data = assemble({**frame.metadata, "padding": bytes(size_bytes - bare)}, frame.sync, blocks)
    assert len(data) == size_bytes
    name = f"manifest-{number}"
    context.store.put(context.layout.manifest(name), data)
    fields = context.schema.partition_fields
    stats = StatsCollector(fields, [StatsMode(StatsKind.FULL)] * len(fields))
    stats.update(context.partitions.values([each.partition for each in entries]))
    deleted = sum(each.kind is FileKind.DELETE for each in entries)
    return ManifestFile(
        name=name,
        size_bytes=size_bytes,
        added_count=len(entries) - deleted,
        deleted_count=deleted,
        schema_id=0,
        partition_stats=stats.finish(),
    )


def text(entries: Sequence[ManifestEntry], context: TableContext) -> list[str]:
    partitions = context.schema.partition_keys
    return [
        ("+" if each.kind is FileKind.ADD else "-")
        + (str(context.partitions.values([each.partition])[0][0]) if partitions else "")
        + f".{each.file.name}"
        for each in entries
    ]


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.sampled(3)
def test_manifests_are_merged_as_java_merges_them(number: int) -> None:
    case: dict[str, Any] = CASES[number]
    partitioned = any(manifest["entries"][1] != "." for manifest in case["manifests"])
    context = new_table(
        {"p": "INT", "v": "INT"},
        keys=(),
        partitions=["p"] if partitioned else [],
        manifest__target_file_size=f"{SCALE * case['target']} b",
        manifest__merge_min_count=str(case["count_min"]),
        manifest__full_compaction_threshold_size=f"{SCALE * case['threshold']} b",
    ).context
    given = [
        stored(at, SCALE * each["size"], parsed(each["entries"], context), context)
        for at, each in enumerate(case["manifests"])
    ]
    names = [manifest.name for manifest in given]
    found = ManifestWriter(context).merged(given)
    kept = [names.index(each.name) for each in found if each.name in names]
    java_kept = [each for each in case["result"] if isinstance(each, int)]
    written = [
        word
        for each in found
        if each.name not in names
        for word in text(context.history.manifest(each), context)
    ]
    java_written = [
        word for each in case["result"] if isinstance(each, str) for word in each.split()
    ]

    if case["full"]:
        # NOTE: of a manifest that Java leaves as it is we make a new one where a remainder before
        # it is too small to stand alone.
        taken_in = sorted(set(java_kept) - set(kept))
        assert set(kept) <= set(java_kept)
        assert all(at > 0 and at - 1 not in kept for at in taken_in)
        java_written += [
            word
            for at in taken_in
            for word in text(parsed(case["manifests"][at]["entries"], context), context)
        ]
        assert all(each.deleted_count == 0 for each in found)
    else:
        assert kept == java_kept
    assert sorted(written) == sorted(java_written)
    before = fold(context.history.entries(given))
    assert set(fold(context.history.entries(found))) == set(before)


def test_cases_are_of_every_kind() -> None:
    whole = [case for case in CASES if case["manifests"]]
    changed = [case for case in whole if any(isinstance(each, str) for each in case["result"])]
    both = [case for case in changed if any(isinstance(each, int) for each in case["result"])]

    for full in (False, True):
        assert sum(case["full"] is full for case in changed) > 30
        assert sum(case["full"] is full for case in both) > 5
    assert len(whole) - len(changed) > 20
