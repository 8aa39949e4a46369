"""Compaction comes to rest: when nobody writes, a full one has nothing to do the second time."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.model.files import DataFile
    from lakecore.table.handle import Table

TARGETS = {"1 b": 1, "2 kb": 2 << 10, "40 kb": 40 << 10, "1 mb": 1 << 20}
PACKING = st.fixed_dictionaries(
    {},
    optional={
        "compaction.min.file-num": st.sampled_from(["1", "2", "3", "5"]),
        "compaction.small-file-ratio": st.sampled_from(["0.1", "0.7", "1.0"]),
        "source.split.open-file-cost": st.sampled_from(["0 b", "10 kb"]),
    },
)
LEVELS = st.fixed_dictionaries(
    {},
    optional={
        "num-sorted-run.compaction-trigger": st.sampled_from(["1", "2", "5"]),
        "num-levels": st.sampled_from(["2", "3", "6"]),
        "compaction.size-ratio": st.sampled_from(["0", "50", "1000"]),
        "compaction.max-size-amplification-percent": st.sampled_from(["1", "200"]),
        "compaction.force-up-level-0": st.sampled_from(["true", "false"]),
        "compaction.optimization-interval": st.sampled_from(["1 ms", "1 h"]),
        "compaction.total-size-threshold": st.sampled_from(["1 kb", "10 mb"]),
        "compaction.incremental-size-threshold": st.sampled_from(["1 b", "10 mb"]),
        "compaction.small-file-ratio": st.sampled_from(["0.7"]),
        "changelog-producer": st.sampled_from(["none", "input", "lookup", "full-compaction"]),
        # Of first-row, level 0 is not read, and compaction changes what is.
        "merge-engine": st.sampled_from(["deduplicate", "partial-update", "aggregation"]),
    },
)
WRITES = st.lists(
    st.tuples(st.integers(1, 3_000), st.sampled_from(["alike", "apart"])), min_size=1, max_size=7
)


def rows(count: int, texts: str, seed: int) -> pa.Table:
    """Rows whose texts take nothing or all once encoded; keys are of 0 to 5000."""
    draw = Random(seed)
    return pa.table(
        {
            "id": pa.array(draw.sample(range(5_000), count), pa.int32()),
            "p": pa.array([n % 2 for n in range(count)], pa.int32()),
            "v": ["all is well, nothing to report"] * count
            if texts == "alike"
            else [draw.randbytes(20).hex() for _ in range(count)],
        }
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, int]:
    """A table with files of its own, and its target size."""
    keyed = draw(st.booleans())
    partitioned = draw(st.booleans())
    target = draw(st.sampled_from([*TARGETS]))
    options: dict[str, Any] = {
        **draw(LEVELS if keyed else PACKING),
        "target-file-size": target,
        "file.format": draw(st.sampled_from(["parquet", "orc", "avro"])),
        "write-only": "true",
    }
    if keyed or draw(st.booleans()):
        options |= {"bucket": draw(st.sampled_from(["1", "3"])), "bucket-key": "id"}
    table = new_table(
        {"id": "INT NOT NULL", "p": "INT NOT NULL", "v": "STRING"},
        keys=("id", "p") if keyed else (),
        partitions=("p",) if partitioned else (),
        **options,
    )
    for number, (count, texts) in enumerate(draw(WRITES)):
        table.write(rows(count, texts, number))
    return table.copy({"write-only": "false"}), TARGETS[target]


def live(table: Table) -> list[tuple[tuple[bytes, int], DataFile]]:
    """The live files, and the buckets they are in."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    return [((e.partition, e.bucket), e.file) for e in history.live_entries(snapshot)]


@given(drawn=tables(), max_bytes=st.none() | st.sampled_from([1, 50_000]))
def test_full_compaction_has_nothing_to_do_the_second_time(
    drawn: tuple[Table, int], max_bytes: int | None
) -> None:
    table, _ = drawn
    before = table.to_polars().sort("id", "p", "v")
    table.compact(full=True, max_bytes=max_bytes)

    assert table.compact(full=True).snapshot_ids == ()
    assert table.to_polars().sort("id", "p", "v").equals(before)


@given(drawn=tables())
def test_compaction_that_is_called_again_and_again_comes_to_rest(drawn: tuple[Table, int]) -> None:
    table, _ = drawn
    before = table.to_polars().sort("id", "p", "v")
    for _ in range(2 * len(live(table)) + 1):
        if not table.compact().snapshot_ids:
            break

    assert table.compact().snapshot_ids == ()
    assert table.to_polars().sort("id", "p", "v").equals(before)


@given(drawn=tables())
def test_small_and_full_compactions_in_turn_come_to_rest(drawn: tuple[Table, int]) -> None:
    table, _ = drawn
    for _ in range(2 * len(live(table)) + 1):
        if not (table.compact(full=True).snapshot_ids + table.compact().snapshot_ids):
            break

    assert table.compact(full=True).snapshot_ids == table.compact().snapshot_ids == ()


@given(drawn=tables())
def test_of_files_written_together_the_last_alone_is_below_the_target_size(
    drawn: tuple[Table, int],
) -> None:
    table, target_bytes = drawn
    for _ in range(2):
        below = Counter(
            (bucket, file.name.rsplit("-", 1)[0])
            for bucket, file in live(table)
            if file.size_bytes < target_bytes
        )

        assert all(count == 1 for count in below.values())

        table.compact(full=True)
