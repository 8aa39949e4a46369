"""Opening, writing, planning and expiring a table of a million live files, by its metadata alone.

`python -m bench scale [files=NUMBER partitions=NUMBER buckets=NUMBER runs=NUMBER]`: the manifests
are made by the engine's own encoder, with names and statistics as a writer would state them; the
data files do not exist. Each step runs in a process of its own, on a copy of the table's metadata.
Its time and memory count from the moment the libraries are loaded. The limits are those of a
million files.
"""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from rich.table import Table as Shown

import lakecore
from bench.child import peak_mib
from bench.report import console
from lakecore.format import metadata
from lakecore.format.layout import manifest_list_name, manifest_name
from lakecore.format.manifest_files import ENTRY_SCHEMA, decode_manifest, encode_entries
from lakecore.model.files import CommitMessage, Stats
from lakecore.model.manifest import ManifestEntry, ManifestFile
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.plan.predicate import Compare, Op
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.reads.scan import ScanContext, plan_scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.files import DataFile
    from lakecore.plan.predicate import Predicate
    from lakecore.table.handle import Table
    from lakecore.table.reads.scan import ScanPlan

SETTINGS = {"files": 1_000_000, "partitions": 100, "buckets": 100, "runs": 1}
TAGS = 30
TOUCHED = 7
"""The partition that the steps touch."""
TOUCHED_ALONE = Compare("pt", Op.EQ, pa.scalar(TOUCHED, pa.int32()))
PARTITIONS_A_MANIFEST = 3
ROWS_OF_FILE = 100_000
SCHEMA = {
    "pt": "INT NOT NULL",
    "id": "BIGINT NOT NULL",
    **{f"n{number}": "BIGINT" for number in range(6)},
    "price": "DOUBLE",
    "city": "STRING",
    "note": "STRING",
    "at": "TIMESTAMP(6)",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A step on a table, and its limits: seconds, and MB above the libraries."""

    title: str
    table: str
    seconds_max: float | None = None
    mb_max: float | None = None


STEPS: Mapping[str, Step] = {
    "write": Step("open + first write", "keyed", 1, 200),
    "compaction": Step("compaction commit, new handle", "keyed", 0.5),
    "compaction_again": Step("compaction commit, the next one", "keyed", 0.5),
    "plan_one": Step("plan of one partition", "keyed", 1),
    "plan_one_again": Step("plan of one partition, again", "keyed"),
    "plan_all": Step("full plan", "keyed", 6, 1_000),
    "expire": Step("expiry after a commit", "keyed", 0.3),
    "expire_tagged": Step(f"expiry after a commit, {TAGS} tags", "tagged", 1),
    "partitions": Step("list of partitions", "keyed"),
    "count": Step("count(), append table", "append"),
}


def run(words: list[str]) -> bool:
    """Measure with settings such as `files=100000`; whether every limit was kept."""
    settings = SETTINGS | {word.partition("=")[0]: int(word.partition("=")[2]) for word in words}
    runs = settings.pop("runs")
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None))
    try:
        make(home, **settings)
        took = {name: [_ran(home, name) for _ in range(runs)] for name in STEPS}
    finally:
        shutil.rmtree(home)
    title = ", ".join(f"{value:,} {name}" for name, value in settings.items())
    shown = Shown(title=title, title_justify="left", title_style="bold")
    for column in ("", "s", "limit", "CPU s", "MB", "limit", "kept"):
        shown.add_column(column, justify="left" if column == "" else "right")
    kept = [_row(shown, STEPS[name], each) for name, each in took.items()]
    console.print(shown)
    return all(kept)


def _row(shown: Shown, step: Step, runs: list[Mapping[str, float]]) -> bool:
    seconds, cpu, mb = (median(run[key] for run in runs) for key in ("seconds", "cpu", "mb"))
    kept = seconds <= (step.seconds_max or seconds) and mb <= (step.mb_max or mb)
    limits = [f"{each:g}" if each else "" for each in (step.seconds_max, step.mb_max)]
    has_limit = any(limits)
    mark = "" if not has_limit else "[green]yes[/]" if kept else "[red]no[/]"
    shown.add_row(
        step.title, f"{seconds:.3f}", limits[0], f"{cpu:.3f}", f"{mb:.0f}", limits[1], mark
    )
    return kept


def _ran(home: Path, name: str) -> Mapping[str, float]:
    """What a step took in a process of its own."""
    copy = home / "copy"
    # Files of a table never change: a copy of the directories with links to them is enough.
    shutil.copytree(home / STEPS[name].table, copy, copy_function=_link)
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", name, str(copy), str(home)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    shutil.rmtree(copy)
    found: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _link(source: str, target: str) -> None:
    is_hint = source.endswith(("LATEST", "EARLIEST"))
    shutil.copyfile(source, target) if is_hint else Path(target).hardlink_to(source)


# --- the steps -----------------------------------------------------------------------------------


def main(name: str, path: str, home: str) -> None:
    """Do a step in this process, and print what it took for the parent to read."""
    touched: list[ManifestEntry] = pickle.loads((Path(home) / "touched").read_bytes())
    _warm_up()
    act = _prepared(name, path, touched)
    before = peak_mib(reset=True)
    began, worked = time.perf_counter(), time.process_time()
    act()
    answer = {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - worked,
        "mb": peak_mib() - before,
    }
    print(json.dumps(answer))


def _warm_up() -> None:
    """Load all modules that the steps need, by a small table."""
    with tempfile.TemporaryDirectory() as directory:
        table = _created(Path(directory) / "small", ["pt", "id"], 2)
        for _ in range(2):
            table.write(_rows(10))
            plan(table, TOUCHED_ALONE)
            table.expire_snapshots(retain_max=1, retain_min=1)
        table.inspect.partitions()
        table.count()


def _prepared(name: str, path: str, touched: list[ManifestEntry]) -> Callable[[], object]:
    """The step as a function; what it needs beforehand is done."""
    if name == "write":
        rows = _rows(10)
        return lambda: lakecore.open_table(path).write(rows)
    if name == "compaction":
        return lambda: replace_file(lakecore.open_table(path), touched[-1])
    table = lakecore.open_table(path)
    match name:
        case "compaction_again":
            replace_file(table, touched[-2])
            return lambda: replace_file(table, touched[-1])
        case "plan_one":
            return lambda: plan(table, TOUCHED_ALONE)
        case "plan_one_again":
            plan(table, TOUCHED_ALONE)
            return lambda: plan(table, TOUCHED_ALONE)
        case "plan_all":
            return lambda: plan(table, None)
        case "partitions":
            return table.inspect.partitions
        case "count":
            return table.count
    replace_file(table, touched[-1])
    keep = len(table.context.history.snapshot_ids()) - 1

    def expire() -> None:
        done = table.expire_snapshots(retain_max=keep, retain_min=1)
        assert done.snapshots_expired == 1, done

    return expire


def plan(table: Table, predicate: Predicate | None) -> ScanPlan:
    """Plan a read of the latest snapshot."""
    context = table.context
    scan = ScanContext(
        history=context.history,
        schema=context.schema,
        options=context.options,
        partitions=context.partitions,
    )
    return plan_scan(scan, context.history.latest_snapshot(), predicate)


def _rows(count: int) -> pa.Table:
    random = np.random.default_rng(3)
    numbers = {f"n{number}": random.integers(0, 1 << 40, count) for number in range(6)}
    return pa.table(
        {
            "pt": np.full(count, TOUCHED, np.int32),
            "id": np.arange(count),
            **numbers,
            "price": random.random(count),
            "city": [f"city of the number {number:04d}" for number in range(count)],
            "note": [f"a note of the number {number:04d}" for number in range(count)],
            "at": pa.array(random.integers(0, 10**15, count), pa.timestamp("us")),
        }
    )


def replace_file(table: Table, entry: ManifestEntry) -> None:
    """Commit a compaction that replaces this file by another one of the same keys."""
    latest = table.context.history.latest_snapshot()
    assert latest is not None
    message = CommitMessage(
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        compact_before=(entry.file,),
        compact_after=(replace(entry.file, name=f"data-after-{entry.file.name[5:]}"),),
        base_snapshot_id=latest.id,
        base_snapshot_uuid=latest.uuid,
    )
    commit(table.context, CommitRequest(messages=[message], user="bench"))


# --- the tables ----------------------------------------------------------------------------------


def make(home: Path, files: int, partitions: int, buckets: int) -> None:
    """The tables `keyed`, `tagged` and `append`, and entries of the touched partition."""
    keyed = _created(home / "keyed", ["pt", "id"], buckets)
    sample = _sample_file(keyed)
    random = np.random.default_rng(7)
    manifests: list[ManifestFile] = []
    touched: list[ManifestEntry] = []
    for first in range(0, partitions, PARTITIONS_A_MANIFEST):
        held = range(first, min(first + PARTITIONS_A_MANIFEST, partitions))
        frames = [_entries(sample, pt, files // partitions, buckets, random) for pt in held]
        manifests.append(_put_manifest(keyed, len(manifests), pl.concat(frames), buckets))
        if TOUCHED in held:
            (some,) = encode_entries(frames[TOUCHED - first][: TAGS + 10], "zstd", 1 << 40)
            touched = decode_manifest(some.data, "the touched partition")
    append = _created(home / "append", [], buckets)
    shutil.copytree(
        home / "keyed/manifest", home / "append/manifest", dirs_exist_ok=True, copy_function=_link
    )
    _publish(append, manifests, files)
    _publish(keyed, manifests, files)
    replace_file(keyed, touched[0])
    shutil.copytree(home / "keyed", home / "tagged", copy_function=_link)
    replace_file(keyed, touched[1])
    tagged = lakecore.open_table(home / "tagged")
    for number in range(TAGS):
        replace_file(tagged, touched[number + 1])
        tagged.create_tag(f"tag-{number}")
    tagged.expire_snapshots(retain_max=1, retain_min=1)
    replace_file(tagged, touched[TAGS + 1])
    (home / "touched").write_bytes(pickle.dumps(touched))


def _created(path: Path, primary_keys: list[str], buckets: int) -> Table:
    return lakecore.open_table(
        path,
        create=True,
        schema=SCHEMA,
        partition_keys=["pt"],
        primary_keys=primary_keys,
        options={
            "bucket": str(buckets),
            "write-only": "true",
            "snapshot.num-retained.min": "1",
            **({} if primary_keys else {"bucket-key": "id"}),
        },
    )


def _sample_file(table: Table) -> DataFile:
    """A file as a writer describes it; it is not committed."""
    writer = table.new_write()
    writer.write(_rows(1_000))
    return writer.prepare_commit()[0].new_files[0]


def _put_manifest(table: Table, number: int, entries: pl.DataFrame, buckets: int) -> ManifestFile:
    """Write these entries, which are in order of partition, as one manifest."""
    (manifest,) = encode_entries(entries, "zstd", 1 << 40)
    name = manifest_name("base", number)
    table.context.store.put(table.context.layout.manifest(name), manifest.data)
    low, high = entries["_PARTITION"][0], entries["_PARTITION"][-1]
    return ManifestFile(
        name=name,
        size_bytes=len(manifest.data),
        added_count=entries.height,
        deleted_count=0,
        schema_id=0,
        partition_stats=Stats(min_values=low, max_values=high, null_counts=(0,)),
        bucket_min=0,
        bucket_max=buckets - 1,
        level_min=5,
        level_max=5,
    )


def _entries(
    sample: DataFile, pt: int, count: int, buckets: int, random: np.random.Generator
) -> pl.DataFrame:
    """The entries of a partition: each bucket holds files of disjoint keys, on level 5."""
    at = np.arange(count)
    first = at // buckets * ROWS_OF_FILE * 10
    unique = random.integers(0, 1 << 62, (count, 2)).tolist()
    varied: dict[str, object] = {
        "_FILE_NAME": [f"data-{high:016x}{low:016x}-0.parquet" for high, low in unique],
        "_BUCKET": at % buckets,
        "_FILE_SIZE": random.integers(100 << 20, 128 << 20, count),
        "_MIN_KEY": _keys(sample.key_min, first),
        "_MAX_KEY": _keys(sample.key_max, first + ROWS_OF_FILE * 10 - 1),
        "_MIN_SEQUENCE_NUMBER": first,
        "_MAX_SEQUENCE_NUMBER": first + ROWS_OF_FILE - 1,
        "_CREATION_TIME": 1_750_000_000_000 + random.integers(0, 1 << 32, count),
        "low": _varied(sample.value_stats.min_values, count, random),
        "high": _varied(sample.value_stats.max_values, count, random),
    }
    frame = pl.DataFrame(varied).with_columns(
        _VERSION=2,
        _KIND=0,
        _PARTITION=pl.lit(_partition_row(pt)),
        _TOTAL_BUCKETS=buckets,
        _ROW_COUNT=ROWS_OF_FILE,
        _KEY_STATS=_stats("_MIN_KEY", "_MAX_KEY", sample.key_stats),
        _VALUE_STATS=_stats("low", "high", sample.value_stats),
        _SCHEMA_ID=0,
        _LEVEL=5,
        _EXTRA_FILES=pl.lit(pl.Series([[]], dtype=pl.List(pl.String))).first(),
        _DELETE_ROW_COUNT=0,
        _FILE_SOURCE=1,
    )
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(of).alias(name)
        for name, of in ENTRY_SCHEMA.items()
    )


def _stats(low: str, high: str, sample: Stats) -> pl.Expr:
    counts = pl.Series([list(sample.null_counts or ())], dtype=pl.List(pl.Int64))
    return pl.struct(_MIN_VALUES=low, _MAX_VALUES=high, _NULL_COUNTS=pl.lit(counts).first())


def _partition_row(pt: int) -> bytes:
    """The serialized partition: one INT field."""
    return (1).to_bytes(4, "big") + bytes(8) + pt.to_bytes(8, "little")


def _keys(sample: bytes, ids: np.ndarray) -> list[bytes]:
    """Serialized keys of one BIGINT field each."""
    return [sample[:-8] + number.to_bytes(8, "little") for number in ids.tolist()]


def _varied(row: bytes, count: int, random: np.random.Generator) -> list[bytes]:
    """The serialized row so many times, with other low digits in its numbers."""
    rows = np.tile(np.frombuffer(row, np.uint8), (count, 1))
    numbers = list(SCHEMA).index("n0")
    start = 4 + 8 * ((len(SCHEMA) + 8 + 63) // 64)
    for field in range(numbers, numbers + 7):
        at = start + 8 * field
        rows[:, at : at + 4] = random.integers(0, 256, (count, 4), np.uint8)
    return [line.tobytes() for line in rows]


def _publish(table: Table, manifests: list[ManifestFile], files: int) -> None:
    """The first snapshot, of these manifests."""
    context = table.context
    lists = [metadata.encode_manifest_list(some) for some in (manifests, [])]
    names = [manifest_list_name("base", number) for number in range(2)]
    for name, data in zip(names, lists, strict=True):
        context.store.put(context.layout.manifest(name), data)
    rows = files * ROWS_OF_FILE
    snapshot = Snapshot(
        id=1,
        schema_id=0,
        uuid=context.ambient.new_uuid(),
        base_manifest_list=names[0],
        base_manifest_list_size=len(lists[0]),
        delta_manifest_list=names[1],
        delta_manifest_list_size=len(lists[1]),
        commit_user="bench",
        commit_identifier=1,
        commit_kind=CommitKind.COMPACT,
        time_ms=context.ambient.now_ms(),
        total_record_count=rows,
        delta_record_count=rows,
    )
    context.store.put(context.layout.snapshot(1), metadata.encode_snapshot(snapshot))


if __name__ == "__main__":
    main(*sys.argv[1:])
