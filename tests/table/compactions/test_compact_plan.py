"""Compaction of a bucket with deletion vectors, after they have been switched off."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakecore as lc
from tests.tables import reopened, rolled_back, with_options

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"


@pytest.mark.parametrize("full", [True, False])
def test_bucket_keeps_its_rows(tmp_path: Path, *, full: bool) -> None:
    shutil.copytree(FIXTURES / "pk_deletion_vectors" / "table", tmp_path / "t")
    table = rolled_back(lc.open_table(tmp_path / "t"), 8)
    shown = table.to_arrow()
    assert table.explain().deletion_vectors
    with_options(table, deletion_vectors__enabled="false")
    off = reopened(table)
    off.compact(full=full)

    assert off.to_arrow().sort_by("k").equals(shown.sort_by("k"))
    if full:
        assert off.explain().deletion_vectors == 0
        assert not off.inspect.table_indexes()["dv_ranges"].list.len().sum()
