"""Many runs merged in rounds give the rows that merging them all at once gives."""

from __future__ import annotations

import random
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.io.spill import SpillDirectory
from lakecore.table.sections import windows
from lakecore.table.sections.windows import Rounds
from property_tests.profile import pairs
from tests.tables import changed, held, new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakecore.io.spill import SpilledRun
    from lakecore.lsm.levels import SortedRun
    from lakecore.merge.spec import Slice
    from lakecore.table.handle import Table

COMMITS = 23
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate, sequence field": {"sequence__field": "v"},
    "first-row": {},
    "partial-update": {},
    "partial-update, removing": {"partial_update__remove_record_on_delete": "true"},
    "aggregation": {"fields__v__aggregate_function": "listagg"},
}


def many_runs(engine: str, seed: int, producer: str = "none") -> Table:
    """A table of many runs of level 0, above a compacted one."""
    stated: dict[str, Any] = {"changelog_producer": producer, **ENGINES[engine]}
    table = new_table(write_only="true", merge_engine=engine.partition(",")[0], **stated)
    chance = random.Random(seed)
    deletes = engine in {"deduplicate", "partial-update, removing"}
    for number in range(COMMITS):
        rows = []
        for key in sorted(chance.sample(range(30), chance.randint(1, 12))):
            kind = "-D " if deletes and chance.random() < 0.3 else ""
            rows.append(f"{kind}{key} {chance.choice(['_', f'v{chance.randint(1, 99)}'])}")
        put(table, " | ".join(rows))
        if number == 4:
            table.compact(full=True)
    return table


@pytest.mark.parametrize(("engine", "seed"), pairs(ENGINES, range(4)))
@pytest.mark.sampled(2)
def test_runs_merged_in_rounds_give_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, engine: str, seed: int
) -> None:
    producer = ("none", "none", "lookup", "full-compaction")[seed]
    if engine == "first-row" and producer == "full-compaction":
        producer = "lookup"
    table = many_runs(engine, seed, producer)
    wanted = held(table)
    # Rows of level 0 are seen in a first-row table once they are compacted.
    at_once = many_runs(engine, seed, producer)
    at_once.compact(full=True)
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 4)
    spilled: list[SpilledRun] = []
    write = SpillDirectory.write

    def noted(*given: Any, **named: Any) -> SpilledRun:
        spilled.append(write(*given, **named))
        return spilled[-1]

    monkeypatch.setattr(SpillDirectory, "write", noted)
    found = held(table)
    rounds_read = len(spilled)
    table.compact(full=True)

    assert found == wanted
    assert rounds_read > 2 or engine == "first-row"
    assert held(reopened(table)) == held(at_once)
    if producer != "none":
        assert changed(table.changes()) == changed(at_once.changes())
    assert len(spilled) > rounds_read


def test_runs_of_level_0_are_merged_in_groups_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sizes, merged = many_runs("deduplicate", 0), list[int](), Rounds._merged  # noqa: SLF001

    def noted(self: Rounds, group: Sequence[SortedRun]) -> Iterator[Slice]:
        sizes.append(len(group))
        return merged(self, group)

    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 7)
    monkeypatch.setattr(Rounds, "_merged", noted)

    assert held(table)
    assert sizes == [6, 6, 6]


def test_reading_in_rounds_leaves_nothing_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = many_runs("deduplicate", 0)
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 4)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batches = table.to_batches()
    next(iter(batches))
    assert list(tmp_path.iterdir())
    del batches
    held(table)

    assert not list(tmp_path.iterdir())
