"""Laws of compaction, on buckets of sets of keys: whatever is flushed and picked, nothing is lost.

A file is its keys, each with a sequence number and whether the row deletes. After each flush the
bucket is compacted until nothing is picked, and now and then in full; then

- levels are disjoint (or `level_runs` raises), and the newer of two rows of a key lies before;
- a read finds what a dict holds that saw the same rows: deletions hide what they should;
- picking has come to an end, with no more runs than the trigger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.universal import CompactionPolicy, Moment, Rewrite, pick, pick_full, unit_steps
from lakecore.model.files import DataFile
from lakecore.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.lsm.universal import CompactionUnit

KEYS = 30
PICKS_MAX = 20

Rows = dict[int, tuple[int, bool]]
"""By key, the sequence number of its row, and whether the row deletes."""

options = st.fixed_dictionaries(
    {
        "num-sorted-run.compaction-trigger": st.sampled_from(["1", "2", "3", "5"]),
        "target-file-size": st.sampled_from(["1 b", "4 b", "100 b"]),
    },
    optional={
        "num-levels": st.sampled_from(["2", "3", "9"]),
        "compaction.size-ratio": st.sampled_from(["0", "100"]),
        "compaction.max-size-amplification-percent": st.sampled_from(["0", "50", "10000"]),
        "compaction.total-size-threshold": st.sampled_from(["5 b", "20 b"]),
        "compaction.incremental-size-threshold": st.sampled_from(["0 b", "9 b"]),
        "compaction.force-up-level-0": st.just("true"),
        "compaction.force-rewrite-all-files": st.just("true"),
    },
)
flushes = st.tuples(
    st.one_of(  # all over, or side by side
        st.dictionaries(st.integers(1, KEYS), st.booleans(), min_size=1, max_size=8),
        st.builds(
            lambda first, deletions: {first + place: one for place, one in enumerate(deletions)},
            st.integers(1, KEYS - 4),
            st.lists(st.booleans(), min_size=1, max_size=5),
        ),
    ),
    st.sampled_from([False, False, False, True]),  # and a full compaction
)


@dataclass(slots=True)
class Bucket:
    """The files of a bucket and their rows."""

    policy: CompactionPolicy
    rows: dict[str, Rows] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    numbers: int = 0

    def runs(self) -> tuple[SortedRun, ...]:
        files = list(self.files.values())
        return level_runs(files, *self.ranks(files))

    def ranks(self, files: Sequence[DataFile]) -> tuple[np.ndarray, np.ndarray]:
        lows = [min(self.rows[file.name]) for file in files]
        highs = [max(self.rows[file.name]) for file in files]
        return np.array(lows, np.int64), np.array(highs, np.int64)

    def write(self, rows: Rows, level: int, keys_max: int) -> None:
        """Files of at most so many keys."""
        keys = sorted(rows)
        for at in range(0, len(keys), keys_max):
            part = {key: rows[key] for key in keys[at : at + keys_max]}
            self.numbers += 1
            name = f"{self.numbers:04}"
            self.rows[name] = part
            self.files[name] = DataFile(
                name=name,
                size_bytes=len(part),
                row_count=len(part),
                sequence_min=min(sequence for sequence, _ in part.values()),
                sequence_max=max(sequence for sequence, _ in part.values()),
                schema_id=0,
                level=level,
                delete_row_count=sum(deletes for _, deletes in part.values()),
            )

    def compact(self, unit: CompactionUnit) -> None:
        for step in unit_steps(unit, *self.ranks(unit.files), self.policy):
            if not isinstance(step, Rewrite):
                self.files[step.file.name] = replace(step.file, level=unit.level_output)
                continue
            merged = newest(self.rows[file.name] for file in step.files)
            for file in step.files:
                del self.files[file.name], self.rows[file.name]
            if unit.drops_deletions:
                merged = {key: row for key, row in merged.items() if not row[1]}
            self.write(merged, unit.level_output, 3)


def newest(parts: Iterable[Rows]) -> Rows:
    """The newest row of each key."""
    found: Rows = {}
    for rows in parts:
        for key, row in rows.items():
            found[key] = max(row, found.get(key, row))
    return found


def live(rows: Rows) -> dict[int, int]:
    """The rows that a read gives."""
    return {key: sequence for key, (sequence, deletes) in rows.items() if not deletes}


@given(
    options=options,
    loaded=st.booleans(),
    history=st.lists(flushes, max_size=25),
    anyway=st.booleans(),
)
def test_any_history_of_compactions_leaves_the_newest_rows(
    options: Mapping[str, str],
    history: list[tuple[dict[int, bool], bool]],
    *,
    loaded: bool,
    anyway: bool,
) -> None:
    policy = replace(CompactionPolicy.of(parse_options(options)), low_levels_anyway=anyway)
    bucket = Bucket(policy)
    wanted: Rows = {key: (key, False) for key in range(1, KEYS) if loaded}
    bucket.write(wanted, policy.level_max([]), 3)
    for number, (deletions, full) in enumerate(history, 2):
        flushed = {
            key: (number * KEYS + place, deletes)
            for place, (key, deletes) in enumerate(sorted(deletions.items()))
        }
        wanted |= flushed
        bucket.write(flushed, 0, KEYS)
        picks = 0
        while (unit := pick(bucket.runs(), policy, Moment(now_ms=0, hour=0))) is not None:
            picks += 1
            assert picks < PICKS_MAX
            assert len(unit.runs) > 1 or unit.runs[0].level == 0
            bucket.compact(unit)
            assert_newest_first(bucket)
        assert len(bucket.runs()) <= policy.trigger
        assert live(newest(bucket.rows.values())) == live(wanted)
        whole = pick_full(bucket.runs(), policy) if full else None
        if whole is not None:
            bucket.compact(whole)
            assert {file.level for file in bucket.files.values()} <= {whole.level_output}
            assert live(newest(bucket.rows.values())) == live(wanted)
            assert not any(deletes for rows in bucket.rows.values() for _, deletes in rows.values())


def assert_newest_first(bucket: Bucket) -> None:
    """Whether the rows of each key lie from the newest to the oldest."""
    seen: Rows = {}
    for run in bucket.runs():
        for file in run.files:
            rows = bucket.rows[file.name]
            assert all(row < seen.get(key, (row[0] + 1, True)) for key, row in rows.items())
            seen |= rows
