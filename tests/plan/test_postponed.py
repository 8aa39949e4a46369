"""The number of real buckets of a partition whose buckets are postponed."""

from __future__ import annotations

import pytest

from lakecore.options import parse_options
from lakecore.plan.splits import batch_count, compaction_count, rescaled_count

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size_bytes", "compacted", "batch"),
    [(0, 1, 1), (GIB, 1, 1), (GIB + 1, 2, 2), (3 * GIB, 3, 4), (5 * GIB, 5, 8)],
)
def test_bytes_decide_by_default(size_bytes: int, compacted: int, batch: int) -> None:
    plain = parse_options({"bucket": "-2"})

    assert compaction_count(10**9, size_bytes, plain) == compacted
    assert batch_count(10**9, size_bytes, plain) == batch


def test_rows_decide_before_bytes_and_a_stated_number_before_both() -> None:
    by_rows = parse_options({"bucket": "-2", "postpone.target-row-num-per-bucket": "10"})
    stated = parse_options({**by_rows.texts, "postpone.default-bucket-num": "7"})

    assert compaction_count(21, 9 * GIB, by_rows) == 3
    assert batch_count(21, 9 * GIB, by_rows) == 4
    assert (compaction_count(21, 0, stated), batch_count(21, 0, stated)) == (7, 7)


def test_a_batch_chooses_at_most_the_largest_number_allowed() -> None:
    texts = {
        "bucket": "-2",
        "postpone.target-row-num-per-bucket": "1",
        "postpone.batch-write-fixed-bucket.max-parallelism": "12",
    }

    assert [batch_count(rows, 0, parse_options(texts)) for rows in (8, 9, 100)] == [8, 12, 12]


def test_a_batch_rescales_only_what_is_far_too_small() -> None:
    texts = {
        "bucket": "-2",
        "postpone.target-row-num-per-bucket": "1",
        "postpone.batch-write-fixed-bucket.rescale-load-factor": "3",
    }
    small, large = (
        parse_options(texts),
        parse_options({**texts, "postpone.default-bucket-num": "1"}),
    )

    assert rescaled_count(6, 0, 2, small) is None
    assert rescaled_count(7, 0, 2, small) == 8
    assert rescaled_count(7, 0, 2, large) == 8
    assert rescaled_count(10**6, 0, 2048, small) is None
