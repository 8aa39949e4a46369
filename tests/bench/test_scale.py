"""The tables of `bench/scale.py`, and what the live files of one take in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore
from bench import scale
from lakecore.io import history as history_module
from lakecore.io.live_files import ManifestCache
from lakecore.memory import process_budget

if TYPE_CHECKING:
    from pathlib import Path

FILES = 20_000
BYTES_A_FILE_MAX = 450


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale")
    scale.make(path, FILES, partitions=10, buckets=20)
    return path


def test_a_live_file_of_twelve_columns_takes_less_than_half_a_kilobyte(home: Path) -> None:
    context = lakecore.open_table(home / "append").context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    manifests = context.history.manifests(snapshot)
    budget = process_budget()
    before = budget.kept_bytes
    cache = ManifestCache(
        lambda manifest: context.store.read(context.layout.manifest(manifest.name)), str
    )
    live = cache.live(manifests)

    assert len(live) == FILES
    assert (budget.kept_bytes - before) / FILES < BYTES_A_FILE_MAX


def test_plans_counts_and_lists_do_not_depend_on_the_form_of_live_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicate = scale.TOUCHED_ALONE
    found = []
    for small in (0, 1_000_000):
        monkeypatch.setattr(history_module, "_SMALL_ENTRIES", small)
        table = lakecore.open_table(home / "keyed")
        plans = [scale.plan(table, each) for each in (predicate, None)]
        lists = [table.inspect.partitions(), table.inspect.buckets()]
        found.append((plans, [each.rows() for each in lists], table.count()))

    assert found[0] == found[1]
    assert found[0][2] == FILES * scale.ROWS_OF_FILE
