"""The growth of verbs: the exponent of known curves, and that each verb does its work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore
from bench import growth

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_is_that_of_the_larger_sizes(power: float) -> None:
    took = {str(size): 3e-3 * size**power for size in (100, 200, 400, 800)}

    assert growth.exponent({"1": 9.0} | took) == pytest.approx(power)


@pytest.mark.parametrize("what", growth.SIZES)
def test_each_verb_works_on_a_table_of_the_size(what: str, tmp_path: Path) -> None:
    size = 1_000 if what == "rows" else 4
    table, steps = growth.MAKERS[what](tmp_path / "t", size)

    counted = {"rows": 1_000, "runs": 400_000, "files": 40, "columns": 20_000}
    assert table.count() == counted.get(what, {"partitions": 20, "snapshots": 1}.get(what))
    for work in steps.values():
        work(lakecore.open_table(table.path))


def test_stored_figures_are_those_of_the_verbs(tmp_path: Path) -> None:
    stored = json.loads(growth.FIGURES.read_text())

    verbs = {
        f"{what}: {verb}"
        for what in growth.SIZES
        for verb in growth.MAKERS[what](tmp_path / what, 1_000 if what == "rows" else 2)[1]
    }
    assert set(stored) == verbs >= growth.FLAT
    for name, took in stored.items():
        limit = growth.FLAT_MAX if name in growth.FLAT else growth.LINEAR_MAX
        assert growth.exponent(took) <= limit, name
