from __future__ import annotations

import numpy as np
import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.plan.bucketing import (
    BUCKETS_MAX,
    DynamicBucketRule,
    HashIndexState,
    assign_dynamic,
)


def hashes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def rule(target: int, buckets_max: int | None = None, initial: int = 1) -> DynamicBucketRule:
    return DynamicBucketRule(
        target_row_count=target, buckets_max=buckets_max, initial_buckets=initial
    )


def test_buckets_fill_one_after_another() -> None:
    assigned = assign_dynamic(HashIndexState(), hashes(9, 8, 7, 6, 5, 4, 3), rule(3))

    assert assigned.buckets.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert {b: sorted(h.tolist()) for b, h in assigned.new_hashes.items()} == {
        0: [7, 8, 9],
        1: [4, 5, 6],
        2: [3],
    }


def test_equal_hashes_share_a_bucket_and_count_once() -> None:
    assigned = assign_dynamic(HashIndexState(), hashes(5, 5, -1, 5, 2), rule(2))

    assert assigned.buckets.tolist() == [0, 0, 0, 0, 1]
    assert assigned.state.counts[:3].tolist() == [2, 1, -1]


def test_known_hashes_keep_their_bucket_and_full_buckets_stay_full() -> None:
    known = HashIndexState.of({0: hashes(1, 2, 3), 4: hashes(10)})

    assigned = assign_dynamic(known, hashes(3, 50, 10, 51, 52, 53), rule(3))

    assert assigned.buckets.tolist() == [0, 4, 4, 4, 1, 1]
    assert sorted(assigned.new_hashes) == [1, 4]
    assert sorted(assigned.state.hashes_of(4).tolist()) == [10, 50, 51]


def test_what_was_assigned_is_known_afterwards() -> None:
    state = HashIndexState()
    seen: dict[int, int] = {}
    generator = np.random.default_rng(7)
    for _ in range(30):
        batch = generator.integers(-500, 500, 40).astype(np.int32)
        assigned = assign_dynamic(state, batch, rule(25))
        for value, bucket in zip(batch.tolist(), assigned.buckets.tolist(), strict=True):
            assert seen.setdefault(value, bucket) == bucket
        state = assigned.state

    filled = state.counts[state.counts >= 0]
    assert filled.sum() == len(seen)
    assert filled.max() <= 25
    assert all(
        sorted(state.hashes_of(b).tolist()) == sorted(v for v, own in seen.items() if own == b)
        for b in range(len(filled))
    )


def test_nothing_new_leaves_the_state_as_it_is() -> None:
    known = HashIndexState.of({0: hashes(1, 2)})

    assigned = assign_dynamic(known, hashes(2, 1), rule(1))

    assert assigned.state is known
    assert assigned.new_hashes == {}
    assert assign_dynamic(known, hashes(), rule(1)).buckets.tolist() == []


def test_the_state_given_is_not_changed() -> None:
    known = HashIndexState.of({0: hashes(1)})

    assign_dynamic(known, hashes(2, 3), rule(2))

    assert known.counts[:2].tolist() == [1, -1]
    assert known.hashes_of(0).tolist() == [1]


def test_past_the_most_buckets_hashes_spread_over_all() -> None:
    assigned = assign_dynamic(HashIndexState(), hashes(*range(100)), rule(10, buckets_max=2))

    assert set(assigned.buckets.tolist()) == {0, 1}
    assert assigned.state.counts[:2].tolist() == [50, 50]


def test_initial_buckets_grow_side_by_side() -> None:
    assigned = assign_dynamic(HashIndexState(), hashes(0, 1, 2, 3, 4, -5), rule(2, initial=2))

    assert assigned.buckets.tolist() == [0, 1, 0, 1, 2, 3]


def test_buckets_beyond_the_format_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="too many dynamic buckets"):
        assign_dynamic(HashIndexState(), np.arange(32_768, dtype=np.int32), rule(1))


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_rule_must_be_positive(bad: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidRequest, match="must be positive"):
        rule(*bad)


def test_index_of_an_impossible_bucket_is_corrupt() -> None:
    with pytest.raises(CorruptTable, match="no dynamic bucket"):
        HashIndexState.of({32_768: hashes(1)})


def test_bucket_numbers_end_at_the_limit_of_the_format() -> None:
    every = np.arange(BUCKETS_MAX + 1, dtype=np.int32)
    full = assign_dynamic(HashIndexState(), every[:BUCKETS_MAX], rule(1))
    assert full.buckets.max() == BUCKETS_MAX - 1 == 32_766

    with pytest.raises(InvalidRequest, match="too many dynamic buckets"):
        assign_dynamic(full.state, every, rule(1))
    for most in (BUCKETS_MAX, 40_000):
        spread = assign_dynamic(full.state, every, rule(1, buckets_max=most))
        assert 0 <= spread.buckets[-1] < BUCKETS_MAX
