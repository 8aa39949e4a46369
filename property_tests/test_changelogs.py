"""A changelog, replayed from nothing, is the table: for every engine, producer and schedule.

And reads stay as they are.

What changed is told by a model that looks at one key at a time: the row that the key had when the
changelog was last told, the row that a read shows now, and whether anybody wrote the key since.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.model.rows import ROW_KIND
from lakecore.testing import apply_changes, assert_same_rows
from lakecore.testing.merging import Rules
from lakecore.testing.strategies import ENGINES
from lakecore.testing.values import plain
from property_tests.test_engines_table import _arrow, _commit, _versions, small_pieces, tables
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.table.handle import Table

__all__ = ["small_pieces"]

PRODUCERS = {
    engine: ("lookup",) if engine == "first-row" else ("lookup", "full-compaction")
    for engine in ENGINES
}
EQUAL_ROWS = st.sampled_from(
    [
        {},
        {"changelog-producer.row-deduplicate": "true"},
        {"changelog-producer.row-deduplicate": "true", "ignore": "a column"},
    ]
)
PICKING = st.sampled_from(
    [
        {},
        {"num-sorted-run.compaction-trigger": "2"},
        {"num-sorted-run.compaction-trigger": "2", "num-levels": "6"},
        {"force-lookup": "true"},
        {"compaction.max-size-amplification-percent": "2000000000"},
    ]
)
STEPS = st.sampled_from(["write", "write", "write", "compact", "compact", "compact in full"])


@dataclass
class Follower:
    """Who applies the changelog of a table: the rows so far, and the keys written since."""

    first_row: bool
    keys: tuple[str, ...]
    compared: tuple[str, ...] | None
    rows: pa.Table | None = None
    written: set[Any] = field(default_factory=set)

    def expected(self, now: pa.Table) -> list[dict[str, Any]]:
        """What must be told when these are the rows of the table."""
        found: list[dict[str, Any]] = []
        before, after = self.by_key(self.rows), self.by_key(now)
        for key in self.written:
            old, new = before.get(key), after.get(key)
            if old is not None and new is not None and self.are_equal(old, new):
                continue
            if old is not None:
                found.append({ROW_KIND: "-D" if new is None else "-U", **old})
            if new is not None:
                found.append({ROW_KIND: "+I" if old is None else "+U", **new})
        return found

    def are_equal(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether the row counts as the same."""
        names = self.compared or ()
        same = self.compared is not None and plain([old[n] for n in names]) == plain(
            [new[n] for n in names]
        )
        return same or self.first_row

    def by_key(self, rows: pa.Table | None) -> dict[Any, dict[str, Any]]:
        return {self.key(row): row for row in ([] if rows is None else rows.to_pylist())}

    def key(self, row: Mapping[str, Any]) -> Any:
        return plain([row[name] for name in self.keys])


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("engine", "producer"), [(engine, each) for engine in ENGINES for each in PRODUCERS[engine]]
)
@given(data=st.data())
@settings(max_examples=settings().max_examples // 2)
def test_changelog_says_what_became_of_each_key(
    engine: str, producer: str, data: st.DataObject
) -> None:
    merging = data.draw(tables(engine), "table")
    options = {**data.draw(EQUAL_ROWS, "equal rows"), **data.draw(PICKING, "picking")}
    compared: tuple[str, ...] | None = None
    if "changelog-producer.row-deduplicate" in options:
        compared = tuple(merging.shape.columns)
        if options.pop("ignore", None) is not None:
            left_out = data.draw(st.sampled_from(compared), "ignored")
            options["changelog-producer.row-deduplicate-ignore-fields"] = left_out
            compared = tuple(name for name in compared if name != left_out)
    made: dict[str, Any] = {**merging.shape.options, "bucket": "1", **options}
    made["changelog-producer"] = producer
    if engine == "first-row":
        merging = replace(merging, kinds=("+I",))
    table = new_table(merging.shape.columns, keys=merging.shape.primary_keys, **made)
    keys = table.schema.primary_keys
    follower = Follower(engine == "first-row", keys, compared)
    for step in data.draw(st.lists(STEPS, min_size=2, max_size=8), "steps"):
        if step == "write":
            batch = _arrow(data.draw(merging.rows(5), "rows"), table)
            ignored = Rules.of(table.schema).ignored
            written = {follower.key(r.values) for r in _versions(batch) if r.kind not in ignored}
            try:
                _commit(table, [batch])
            except InvalidRequest:
                return
            follower.written |= written
            continue
        try:
            # What is folded together here is what a read folds.
            as_before = producer == "lookup" and engine != "first-row"
            before = table.to_arrow() if as_before else None
            done = table.compact(full=step == "compact in full")
        except InvalidRequest:
            # What cannot be merged cannot be read.
            with pytest.raises(InvalidRequest):
                table.to_arrow()
            return
        if done.snapshot_id is None:
            continue
        now = table.to_arrow()
        if before is not None:
            assert_same_rows(before, now)
        changes = table.changes(done.snapshot_id - 1, done.snapshot_id).collect().to_arrow()
        if producer == "full-compaction" and not _all_in_last_level(table):
            assert not changes.num_rows
            continue

        assert_same_rows(changes, pa.Table.from_pylist(follower.expected(now), changes.schema))
        told = apply_changes(changes, keys, follower.rows)
        same = list(keys) if compared else table.schema.names
        assert_same_rows(told.select(same), now.select(same))
        follower.rows = now
        follower.written.clear()


def _all_in_last_level(table: Table) -> bool:
    levels = set(table.inspect.files()["level"])
    return levels <= {table.options.level_count - 1}
