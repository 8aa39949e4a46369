"""Deletion vectors: a vector never hides the newest row of a key, nor shows one that is not.

Whatever the order of writes, compactions, DELETE, UPDATE, expiry, rollback, branches and clean-up,
each snapshot holds the rows of a model, with and without the rows that are not compacted yet.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.model.files import DELETION_VECTORS
from lakecore.model.rows import ROW_KIND
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
Row: TypeAlias = "tuple[int, int | None, int | None]"
Rows: TypeAlias = "dict[int, list[int | None]]"

KEYS = st.integers(0, 7)
CELLS = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.tuples(KEYS, CELLS, CELLS), min_size=1, max_size=5)
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
class Model:
    """The rows of a keyed table: all that were written, and those of each snapshot."""

    engine: str
    rows: Rows = field(default_factory=dict)
    shown: Rows = field(default_factory=dict)
    snapshots: dict[int, tuple[Rows, Rows]] = field(default_factory=dict)

    def put(self, row: Row) -> None:
        key, *cells = row
        before = self.rows.get(key)
        if before is None or self.engine == "deduplicate":
            self.rows[key] = cells
        elif self.engine == "partial-update":
            self.rows[key] = [o if n is None else n for o, n in zip(before, cells, strict=True)]
        else:
            self.rows[key] = [
                o if n is None else n + (o or 0) for o, n in zip(before, cells, strict=True)
            ]

    def committed(self, table: Table, *, compacted: bool) -> None:
        """Remember the state of the newest snapshots: APPEND, and COMPACT if it was `compacted`."""
        kept = table.context.history.snapshot_ids()
        latest = kept[-1:]
        for snapshot_id in kept[-2:-1]:
            self.snapshots.setdefault(snapshot_id, deepcopy((self.shown, self.rows)))
        if compacted:
            self.shown = deepcopy(self.rows)
        self.snapshots |= {each: deepcopy((self.shown, self.rows)) for each in latest}


def listed(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted((key, *cells) for key, cells in rows.items())


def read(table: Table, **arguments: Any) -> list[tuple[Any, ...]]:
    return sorted(table.to_polars(**arguments).rows())


def check(table: Table, model: Model) -> None:
    """The newest snapshot and an older one hold what the model says."""
    merged = table.copy({"deletion-vectors.merge-on-read": "true"})
    assert read(table) == listed(model.shown)
    assert table.count() == len(model.shown)
    assert read(merged) == listed(model.rows)
    kept = table.context.history.snapshot_ids()
    for snapshot_id in {*kept[:1], *kept[len(kept) // 2 :][:1]} & model.snapshots.keys():
        shown, rows = model.snapshots[snapshot_id]
        assert read(table, snapshot_id=snapshot_id) == listed(shown)
        assert read(merged, snapshot_id=snapshot_id) == listed(rows)
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


def upkeep(table: Table, model: Model, deed: str, number: int) -> Table:
    """Do something that changes no row, except a rollback. Returns the table to go on with."""
    kept = table.context.history.snapshot_ids()
    if deed.startswith("compact"):
        table.compact(full=deed == "compact fully")
        model.committed(table, compacted=True)
    elif deed == "expire":
        table.expire_snapshots(retain_max=1 + number, retain_min=1, older_than=FUTURE)
    elif deed == "clean up":
        table.remove_orphan_files(older_than=FUTURE, force=True)
    elif deed == "roll back" and kept:
        target = kept[-1 - number % len(kept)]
        table.rollback_to(snapshot_id=target)
        table = reopened(table)
        model.shown, model.rows = deepcopy(model.snapshots[target])
        model.snapshots = {e: held for e, held in model.snapshots.items() if e <= target}
    elif deed == "branch" and kept:
        on_branch(table, model, number)
    return table


def on_branch(table: Table, model: Model, number: int) -> None:
    """Write to a branch and compact it, so that it marks rows of files that main reads too."""
    kept = table.context.history.snapshot_ids()
    base = kept[-1 - number % len(kept)]
    table.create_tag("t", snapshot_id=base)
    table.create_branch("b", tag="t")
    branch = table.branch("b")
    shown, rows = deepcopy(model.snapshots[base])
    own = Model(model.engine, rows, shown)
    row: Row = (number, 9, 9)
    own.put(row)
    write(branch, [row])
    own.committed(branch, compacted=True)
    check(branch, own)
    check(table, model)
    table.delete_branch("b")
    table.delete_tag("t")


def write(table: Table, rows: list[Row], kind: str = "+I") -> None:
    arrow = pa.Table.from_pylist(
        [dict(zip(COLUMNS, row, strict=True)) for row in rows], table.schema.arrow
    )
    table.write(arrow.append_column(ROW_KIND, pa.repeat(kind, len(rows))))


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
    model = Model(engine)
    for deed, what in deeds:
        if deed in ("write", "write only"):
            lazy = deed == "write only"
            write(table.copy({"write-only": "true"}) if lazy else table, what)
            for row in what:
                model.put(row)
            model.committed(table, compacted=not lazy)
        elif deed == "delete" and engine == "deduplicate":
            done = table.delete(f"k = {what}")
            assert done.rows_deleted == (what in model.rows)
            if model.rows.pop(what, None) is not None:
                model.committed(table, compacted=True)
        elif deed == "update" and engine != "aggregation":
            key, value = what
            if table.update({"a": value}, f"k = {key}").rows_updated:
                model.rows[key][0] = value
                model.committed(table, compacted=True)
        elif deed not in ("delete", "update"):
            table = upkeep(table, model, deed, what)
        check(table, model)


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
    rows: Counter[tuple[Any, ...]] = Counter()
    snapshots: dict[int, Counter[tuple[Any, ...]]] = {}
    for deed, what in deeds:
        kept = table.context.history.snapshot_ids()
        if deed in ("write", "write only"):
            write(table, what)
            rows = rows + Counter(map(tuple, what))
        elif deed == "delete":
            table.delete(f"k = {what}")
            rows = Counter({row: n for row, n in rows.items() if row[0] != what})
        elif deed == "update":
            key, value = what
            table.update({"a": value}, f"k = {key}")
            rows = sum(
                (Counter({(k, value if k == key else a, b): n}) for (k, a, b), n in rows.items()),
                Counter(),
            )
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
            rows = snapshots[target]
            snapshots = {each: held for each, held in snapshots.items() if each <= target}
        kept = table.context.history.snapshot_ids()
        snapshots |= dict.fromkeys(kept[-1:], rows)

        assert Counter(table.to_polars().rows()) == rows
        assert table.count() == rows.total()
        for snapshot_id in kept[:1]:
            if snapshot_id in snapshots:
                older = table.to_polars(snapshot_id=snapshot_id).rows()
                assert Counter(older) == snapshots[snapshot_id]
        check_vectors(table)
