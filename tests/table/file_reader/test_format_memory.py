"""Memory follows the budget in any file format: by the greatest resident memory of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.child import PEAK_SHARE_MAX
from bench.formats import measured
from property_tests.profile import sized

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_MIB = 512
ROWS = 8_000_000


@pytest.mark.slow
@pytest.mark.parametrize("key", sized(["id", ""], quick=["id"]))
def test_orc_is_written_streamed_and_compacted_under_a_budget_of_512_mib(
    tmp_path: Path, key: str
) -> None:
    peaks = {}
    rows = {}
    for verb in ("write", "stream", "compact"):
        shape = ("orc", ROWS, key, BUDGET_MIB) if verb == "write" else ()
        took = measured(verb, tmp_path, *shape)
        peaks[verb], rows[verb] = took.peak_mib / BUDGET_MIB, took.rows

    assert rows["stream"] == rows["compact"]
    assert max(peaks.values()) <= PEAK_SHARE_MAX, peaks
