"""Keys that move between partitions: the table equals the model, whatever is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakecore.memory import Budget
from lakecore.options import MergeEngine
from lakecore.plan.bucketing import NOWHERE, moves_of
from lakecore.table.writes.cross_partition import UNKNOWN, KeyIndex
from lakecore.testing import Model, assert_same_rows
from tests.tables import new_table, reopened

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=14)


@given(
    rows=ROWS,
    before=st.lists(st.integers(NOWHERE, 2), min_size=5, max_size=5),
    engine=st.sampled_from(MergeEngine),
)
def test_moves_are_those_of_one_row_after_another(
    rows: list[tuple[int, int]], before: list[int], engine: MergeEngine
) -> None:
    moves = moves_of(
        np.array([key for key, _ in rows]),
        np.array([partition for _, partition in rows]),
        np.array(before),
        engine,
    )
    place = dict(enumerate(before))
    expected: list[tuple[int, int, bool]] = []
    for number, (key, partition) in enumerate(rows):
        old = place[key]
        if old in (NOWHERE, partition):
            expected.append((number, partition, False))
            place[key] = partition
        elif engine is MergeEngine.DEDUPLICATE:
            expected += [(number, old, True), (number, partition, False)]
            place[key] = partition
        elif engine is not MergeEngine.FIRST_ROW:
            expected.append((number, old, False))

    found = zip(moves.rows.tolist(), moves.partitions.tolist(), moves.deletes.tolist(), strict=True)
    assert list(found) == expected
    stays = np.concatenate([moves.new_partitions, before])
    assert stays[moves.stays].tolist() == moves.partitions.tolist()
    assert stays[moves.last].tolist() == [place[key] for key in range(5)]


@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=30), min_size=1, max_size=8),
    large=st.booleans(),
)
def test_index_of_keys_equals_a_dict(batches: list[list[int]], *, large: bool) -> None:
    # Few hashes for many keys, and almost no memory unless `large`.
    index, model = KeyIndex(Budget(1 << 30 if large else 1)), dict[bytes, int]()
    try:
        for number, batch in enumerate(batches):
            names = sorted({f"k{each}".encode() for each in batch})
            keys = pa.array(names, pa.large_binary())
            hashes = np.array([(each[-1] - 50) * 2**25 for each in names], np.int32)
            found = index.find(hashes, keys)
            assert found.tolist() == [model.get(name, UNKNOWN) for name in names]
            places = np.arange(len(names)) + 100 * number
            new = np.flatnonzero(found == UNKNOWN)
            old = np.flatnonzero(found != UNKNOWN)
            index.add(hashes[new], keys.take(pa.array(new)), places[new])
            index.move(hashes[old], keys.take(pa.array(old)), places[old])
            if not large:
                index._make_room(always=True)  # noqa: SLF001 - the files, as with many keys
            model.update(zip(names, places.tolist(), strict=True))
            assert len(index) == len(model)
    finally:
        index.close()


@dataclass(frozen=True)
class Step:
    """One write of rows (key, partition, kind), or a compaction."""

    rows: tuple[tuple[int, str, str], ...]
    compacts: bool


STEPS = st.lists(
    st.builds(
        Step,
        rows=st.lists(
            st.tuples(
                st.integers(0, 6), st.sampled_from("abc"), st.sampled_from(("+I", "+I", "-D"))
            ),
            min_size=1,
            max_size=8,
        ).map(tuple),
        compacts=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(
    steps=STEPS,
    engine=st.sampled_from(("deduplicate", "partial-update", "first-row")),
    vectors=st.booleans(),
)
def test_a_key_is_in_one_partition(steps: list[Step], engine: str, *, vectors: bool) -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING"}
    table = new_table(
        columns,
        keys=["id"],
        partitions=["p"],
        bucket="-1",
        merge_engine=engine,
        dynamic_bucket__target_row_num="2",
        deletion_vectors__enabled=str(vectors and engine == "deduplicate").lower(),
    )
    model, homes = Model(table.schema), dict[int, str]()
    with table.new_stream_write("loader") as writer:
        for number, step in enumerate(steps, 1):
            rows: list[dict[str, Any]] = [
                {
                    "id": key,
                    "v": f"{number}.{at}",
                    "p": part,
                    "_row_kind": kind if engine == "deduplicate" else "+I",
                }
                for at, (key, part, kind) in enumerate(step.rows)
            ]
            writer.write(rows)
            writer.prepare_commit(number)
            writer.commit(number)
            if step.compacts:
                reopened(table).compact(full=True)
            if engine == "partial-update":
                # A key stays in its first partition.
                rows = [{**row, "p": homes.setdefault(row["id"], row["p"])} for row in rows]
            model.write(rows)
            assert_same_rows(reopened(table), model)
