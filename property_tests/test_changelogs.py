"""A changelog, replayed from nothing, is the table: for every engine, producer and schedule.

And reads stay as they are.

What changed is told by a model that looks at one key at a time: the row that the key had when the
changelog was last told, the row that a read shows now, and whether anybody wrote the key since.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.model.rows import ROW_KIND
from lakecore.testing.merging import Rules
from lakecore.testing.strategies import ENGINES
from lakecore.testing.values import plain
from property_tests.test_engines_table import _arrow, _commit, _versions, small_pieces, tables
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

Row = tuple[Any, ...]
Key = tuple[Any, ...]
Change = tuple[str, Row]


@dataclass
class Follower:
    """Who replays the changelog of a table: the row of each key, and who was written since."""

    first_row: bool
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    compared: tuple[str, ...] | None
    rows: dict[Key, Row] = field(default_factory=dict)
    written: set[Key] = field(default_factory=set)

    def expected(self, now: dict[Key, Row]) -> dict[Key, list[Change]]:
        """What must be told when these are the rows of the table."""
        found: dict[Key, list[Change]] = {}
        for key in self.written:
            before, after = self.rows.get(key), now.get(key)
            if before is None and after is not None:
                found[key] = [("+I", after)]
            elif before is not None and after is None:
                found[key] = [("-D", before)]
            elif before is not None and after is not None and not self.are_equal(before, after):
                found[key] = [("-U", before), ("+U", after)]
        return found

    def are_equal(self, before: Row, after: Row) -> bool:
        """Whether the row counts as the same."""
        at = [self.columns.index(name) for name in self.compared or ()]
        same = self.compared is not None and [before[n] for n in at] == [after[n] for n in at]
        return same or self.first_row

    def shown(self, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Key, Row]]:
        """Rows with their keys, as values that equal themselves."""
        return [
            (
                tuple(plain(row[name]) for name in self.keys),
                tuple(_canonical(row[name]) for name in self.columns),
            )
            for row in rows
        ]

    def replay(self, changes: Iterable[tuple[str, tuple[Key, Row]]]) -> dict[Key, list[Change]]:
        """Take changes in; each must fit what was there."""
        found: dict[Key, list[Change]] = defaultdict(list)
        for kind, (key, row) in changes:
            found[key].append((kind, row))
            if kind == "+I":
                assert key not in self.rows
            elif kind in ("-U", "-D"):
                assert self.rows.pop(key) == row
            if kind in ("+I", "+U"):
                self.rows[key] = row
        return dict(found)


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
    names = table.schema.names
    follower = Follower(engine == "first-row", names, table.schema.primary_keys, compared)
    for step in data.draw(st.lists(STEPS, min_size=2, max_size=8), "steps"):
        if step == "write":
            batch = _arrow(data.draw(merging.rows(5), "rows"), table)
            ignored = Rules.of(table.schema).ignored
            written = [row.values for row in _versions(batch) if row.kind not in ignored]
            try:
                _commit(table, [batch])
            except InvalidRequest:
                return
            follower.written |= {key for key, _ in follower.shown(written)}
            continue
        try:
            # What is folded together here is what a read folds.
            as_before = producer == "lookup" and engine != "first-row"
            before = dict(follower.shown(table.to_arrow().to_pylist())) if as_before else {}
            done = table.compact(full=step == "compact in full")
        except InvalidRequest:
            # What cannot be merged cannot be read.
            with pytest.raises(InvalidRequest):
                table.to_arrow()
            return
        if done.snapshot_id is None:
            continue
        now = dict(follower.shown(table.to_arrow().to_pylist()))
        assert before == now or not as_before
        changes = table.changes(done.snapshot_id - 1, done.snapshot_id).collect()
        rows = changes.to_arrow().to_pylist()
        kinds = [row.pop(ROW_KIND) for row in rows]
        if producer == "full-compaction" and not _all_in_last_level(table):
            assert not rows
            continue
        expected = follower.expected(now)

        assert follower.replay(zip(kinds, follower.shown(rows), strict=True)) == expected
        if compared is None:
            assert follower.rows == now
        assert follower.rows.keys() == now.keys()
        follower.rows = now
        follower.written.clear()


def _all_in_last_level(table: Table) -> bool:
    levels = set(table.inspect.files()["level"])
    return levels <= {table.options.level_count - 1}


def _canonical(value: Any) -> Any:
    """The value as one that equals itself; entries of a map in one order."""
    match value:
        case [tuple(), *_]:
            entries = [(_canonical(key), _canonical(item)) for key, item in value]
            return tuple(sorted(entries, key=repr))
        case list():
            return tuple(_canonical(item) for item in value)
        case dict():
            return tuple((name, _canonical(item)) for name, item in value.items())
    return plain(value)
