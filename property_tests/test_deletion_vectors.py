"""Deletion vectors: a vector never hides the newest row of a key, nor shows one that is not.

Whatever the order of writes, compactions, DELETE, UPDATE, expiry, rollback, branches and clean-up,
each snapshot holds the rows of a model, with and without the rows that are not compacted yet.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.model.files import DELETION_VECTORS
from lakecore.testing import Model, assert_same_rows
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"k": "INT NOT NULL", "a": "INT", "b": "INT"}
FUTURE = "2100-01-01 00:00:00"
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "sum",
    },
}
KEYS = st.integers(0, 7)
CELLS = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.fixed_dictionaries({"k": KEYS, "a": CELLS, "b": CELLS}), min_size=1, max_size=5)
WRITES = st.tuples(st.sampled_from(["write", "write", "write only"]), ROWS)
CHANGES = st.one_of(
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("update"), st.tuples(KEYS, st.integers(4, 6))),
)
UPKEEP = st.tuples(
    st.sampled_from(["compact", "compact fully", "expire", "clean up", "roll back", "branch"]),
    st.integers(0, 3),
)


@dataclass
class Seen:
    """What the snapshots of a keyed table must show, as snapshots of a model.

    A read shows the rows of the last compaction (`shown`), or all rows if it merges.
    """

    model: Model
    shown: int = 0
    snapshots: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the ids of the table: the snapshot that is shown, and the one of all rows."""

    def committed(self, table: Table, *, compacted: bool) -> None:
        """Remember the state of the newest snapshots: APPEND, and COMPACT if it was `compacted`."""
        kept, newest = table.context.history.snapshot_ids(), self.model.latest
        for snapshot_id in kept[-2:-1]:
            self.snapshots.setdefault(snapshot_id, (self.shown, newest))
        if compacted:
            self.shown = newest
        self.snapshots |= dict.fromkeys(kept[-1:], (self.shown, newest))

    def roll_back(self, target: int) -> None:
        self.shown, newest = self.snapshots[target]
        self.model.rollback_to(newest)
        self.snapshots = {each: at for each, at in self.snapshots.items() if each <= target}

    def check(self, table: Table) -> None:
        """The newest snapshot and an older one hold what the model says."""
        merged = table.copy({"deletion-vectors.merge-on-read": "true"})
        assert_same_rows(table, self.model.rows(self.shown))
        assert table.count() == self.model.rows(self.shown).num_rows
        assert_same_rows(merged, self.model)
        kept = table.context.history.snapshot_ids()
        for snapshot_id in {*kept[:1], *kept[len(kept) // 2 :][:1]} & self.snapshots.keys():
            shown, newest = self.snapshots[snapshot_id]
            assert_same_rows(table.to_arrow(snapshot_id=snapshot_id), self.model.rows(shown))
            assert_same_rows(merged.to_arrow(snapshot_id=snapshot_id), self.model.rows(newest))
        check_vectors(table)


def check_vectors(table: Table) -> None:
    """Each vector is of a live file, a bucket has one index file, and no key has two rows."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    live = {entry.file.name: entry for entry in history.live_entries(snapshot)} if snapshot else {}
    found = [e for e in history.index_entries(snapshot) if e.file.index_type == DELETION_VECTORS]
    named = [vector.data_file for entry in found for vector in entry.file.vectors or ()]

    assert len(named) == len(set(named))
    assert set(named) <= set(live)
    if table.schema.primary_keys:
        assert len({(entry.partition, entry.bucket) for entry in found}) == len(found)
        assert all(live[name].file.level > 0 for name in named)


def upkeep(table: Table, seen: Seen, deed: str, number: int) -> Table:
    """Do something that changes no row, except a rollback. Returns the table to go on with."""
    kept = table.context.history.snapshot_ids()
    if deed.startswith("compact"):
        table.compact(full=deed == "compact fully")
        seen.model.compact()
        seen.committed(table, compacted=True)
    elif deed == "expire":
        table.expire_snapshots(retain_max=1 + number, retain_min=1, older_than=FUTURE)
    elif deed == "clean up":
        table.remove_orphan_files(older_than=FUTURE, force=True)
    elif deed == "roll back" and kept:
        target = kept[-1 - number % len(kept)]
        table.rollback_to(snapshot_id=target)
        table = reopened(table)
        seen.roll_back(target)
    elif deed == "branch" and kept:
        on_branch(table, seen, number)
    return table


def on_branch(table: Table, seen: Seen, number: int) -> None:
    """Write to a branch and compact it, so that it marks rows of files that main reads too."""
    kept = table.context.history.snapshot_ids()
    base = kept[-1 - number % len(kept)]
    table.create_tag("t", snapshot_id=base)
    table.create_branch("b", tag="t")
    branch = table.branch("b")
    own = deepcopy(seen)
    own.roll_back(base)
    rows = own.model.arrow([{"k": number, "a": 9, "b": 9}])
    branch.write(rows)
    own.model.write(rows)
    own.committed(branch, compacted=True)
    own.check(branch)
    seen.check(table)
    table.delete_branch("b")
    table.delete_tag("t")


def changed(model: Model, what: tuple[int, int]) -> list[dict[str, Any]]:
    """The rows of a key, after an update of `a`."""
    key, value = what
    return [{**row, "a": value} for row in model.rows().to_pylist() if row["k"] == key]


@pytest.mark.parametrize("engine", ENGINES)
@given(
    deeds=st.lists(st.one_of(WRITES, WRITES, CHANGES, UPKEEP), min_size=3, max_size=14),
    options=st.fixed_dictionaries(
        {
            "deletion-vectors.bitmap64": st.sampled_from(["false", "true"]),
            "changelog-producer": st.sampled_from(["none", "lookup", "input"]),
            "num-sorted-run.compaction-trigger": st.sampled_from(["2", "3", "5"]),
            "target-file-size": st.sampled_from(["1 b", "128 mb"]),
        }
    ),
)
def test_keyed_table_holds_the_rows_of_the_model(
    engine: str, deeds: list[tuple[str, Any]], options: dict[str, str]
) -> None:
    stated: dict[str, Any] = {**ENGINES[engine], **options}
    table = new_table(COLUMNS, keys=["k"], deletion_vectors__enabled="true", **stated)
    model = Model(table.schema)
    seen = Seen(model)
    for deed, what in deeds:
        if deed in ("write", "write only"):
            lazy = deed == "write only"
            rows = model.arrow(what)
            (table.copy({"write-only": "true"}) if lazy else table).write(rows)
            model.write(rows)
            seen.committed(table, compacted=not lazy)
        elif deed == "delete" and engine == "deduplicate":
            deleted = model.delete(f"k = {what}") is not None
            assert table.delete(f"k = {what}").rows_deleted == deleted
            if deleted:
                seen.committed(table, compacted=True)
        elif deed == "update" and engine != "aggregation":
            rows = changed(model, what)
            done = table.update({"a": what[1]}, f"k = {what[0]}")
            assert done.rows_updated == len(rows)
            if model.write(rows) is not None:
                seen.committed(table, compacted=True)
        elif deed not in ("delete", "update"):
            table = upkeep(table, seen, deed, what)
        seen.check(table)


@given(
    deeds=st.lists(st.one_of(WRITES, CHANGES, CHANGES, UPKEEP), min_size=3, max_size=14),
    options=st.fixed_dictionaries(
        {
            "deletion-vectors.bitmap64": st.sampled_from(["false", "true"]),
            "deletion-vector.index-file.target-size": st.sampled_from(["1 b", "2 mb"]),
            "compaction.min.file-num": st.sampled_from(["2", "5"]),
            "target-file-size": st.sampled_from(["1 b", "256 mb"]),
        }
    ),
    bucket=st.sampled_from([{}, {"bucket": "2", "bucket-key": "k"}]),
)
def test_append_table_holds_the_rows_of_the_model(
    deeds: list[tuple[str, Any]], options: dict[str, str], bucket: dict[str, str]
) -> None:
    stated: dict[str, Any] = {**options, **bucket}
    table = new_table(COLUMNS, keys=(), deletion_vectors__enabled="true", **stated)
    model = Model(table.schema)
    snapshots: dict[int, int] = {}
    for deed, what in deeds:
        kept = table.context.history.snapshot_ids()
        if deed in ("write", "write only"):
            table.write(model.arrow(what))
            model.write(what)
        elif deed == "delete":
            table.delete(f"k = {what}")
            model.delete(f"k = {what}")
        elif deed == "update":
            rows = changed(model, what)
            table.update({"a": what[1]}, f"k = {what[0]}")
            model.delete(f"k = {what[0]}")
            model.write(rows)
        elif deed.startswith("compact"):
            table.compact(full=deed == "compact fully")
        elif deed == "expire":
            table.expire_snapshots(retain_max=1 + what, retain_min=1, older_than=FUTURE)
        elif deed == "clean up":
            table.remove_orphan_files(older_than=FUTURE, force=True)
        elif deed == "roll back" and kept:
            target = kept[-1 - what % len(kept)]
            table.rollback_to(snapshot_id=target)
            table = reopened(table)
            model.rollback_to(snapshots[target])
            snapshots = {each: at for each, at in snapshots.items() if each <= target}
        kept = table.context.history.snapshot_ids()
        snapshots |= dict.fromkeys(kept[-1:], model.latest)

        assert_same_rows(table, model)
        assert table.count() == model.rows().num_rows
        for snapshot_id in kept[:1]:
            if snapshot_id in snapshots:
                older = table.to_arrow(snapshot_id=snapshot_id)
                assert_same_rows(older, model.rows(snapshots[snapshot_id]))
        check_vectors(table)
