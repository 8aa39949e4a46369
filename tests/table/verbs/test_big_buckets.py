"""Memory follows the budget, not the bucket: by the greatest resident memory of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.big_bucket import measured
from bench.child import PEAK_SHARE_MAX
from property_tests.profile import sized

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 512


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", sized(["deduplicate", "partial-update"], quick=["partial-update"])
)
def test_bucket_of_2_gb_is_compacted_and_streamed_under_a_budget_of_512_mib(
    tmp_path: Path, engine: str
) -> None:
    size_bytes = sized(2_000_000_000, quick=700_000_000)
    keys = measured("make", tmp_path, size_bytes, engine, "lookup", BUDGET_MIB).rows
    peaks = {}
    # What a step leaves is streamed after it, as it does not see every key itself.
    for number, verb in enumerate(("stream", "step", "stream", "full", "stream")):
        took = measured(verb, tmp_path)
        assert took.rows == keys if verb != "step" else 0 < took.rows <= keys
        peaks[f"{number} {verb}"] = took.peak_mib / BUDGET_MIB

    assert max(peaks.values()) <= PEAK_SHARE_MAX, peaks
