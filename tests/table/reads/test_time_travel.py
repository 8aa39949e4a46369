"""Which snapshot a read sees, and with which schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, NotFound
from lakecore.format import metadata
from lakecore.format.layout import Layout
from lakecore.io.ambient import Clock, seeded
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.model.snapshot import Tag
from lakecore.table.publication import write_schema
from lakecore.table.reads.time_travel import Travel, resolve
from tests.tables import held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

START_MS = 1_700_000_000_000


@pytest.fixture
def table() -> Table:
    """Snapshots 1, 2, 3 at seconds 0, 10, 20; the tags `old` and `2` of snapshot 1."""
    ambient = seeded(1, Clock(START_MS))
    table = new_table(ambient=ambient)
    for line in ("1 a", "1 b", "1 c"):
        put(table, line)
        ambient.sleep(10)
    context = table.context
    for name in ("old", "2"):
        tag = Tag(name=name, snapshot=context.history.snapshot(1))
        context.store.put(context.layout.tag(name), metadata.encode_tag(tag))
    return table


def snapshot_of(table: Table, travel: Travel) -> int | None:
    snapshot, _ = resolve(table.context, travel)
    return None if snapshot is None else snapshot.id


def test_latest_snapshot_is_read_unless_another_is_named(table: Table) -> None:
    assert snapshot_of(table, Travel()) == 3
    assert snapshot_of(new_table(), Travel()) is None
    assert held(table) == "1 c"


def test_snapshots_are_named_by_number_tag_and_time(table: Table) -> None:
    assert held(table, snapshot_id=2) == "1 b"
    assert held(table, tag="old") == "1 a"
    assert held(table, timestamp=START_MS + 15_000) == "1 b"


@pytest.mark.parametrize(
    ("after_ms", "wanted"), [(0, 1), (9_999, 1), (10_000, 2), (19_999, 2), (20_000, 3), (10**9, 3)]
)
def test_time_names_the_newest_snapshot_up_to_it(table: Table, after_ms: int, wanted: int) -> None:
    assert snapshot_of(table, Travel(timestamp=START_MS + after_ms)) == wanted


def test_time_before_the_first_snapshot_is_not_found(table: Table) -> None:
    with pytest.raises(NotFound, match=r"no existing snapshot.*earliest=20"):
        held(table, timestamp=START_MS - 1)
    with pytest.raises(NotFound, match="no existing snapshot"):
        held(new_table(), timestamp=START_MS)


def test_snapshot_is_named_in_one_way_only() -> None:
    with pytest.raises(InvalidRequest, match=r"one way only.*snapshot_id=1 tag=x"):
        Travel(snapshot_id=1, tag="x")


def test_snapshot_and_tag_must_be_there(table: Table) -> None:
    with pytest.raises(NotFound, match=r"snapshot_id=9 live=1\.\.3"):
        held(table, snapshot_id=9)
    with pytest.raises(NotFound, match=r"no such tag\. tag=x tags=\[2, old\]"):
        held(table, tag="x")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"scan.snapshot-id": "2"}, "1 b"),
        ({"scan.tag-name": "old"}, "1 a"),
        ({"scan.timestamp-millis": str(START_MS + 15_000)}, "1 b"),
        ({"scan.version": "3"}, "1 c"),
        ({"scan.version": "old"}, "1 a"),
        ({"scan.version": "2"}, "1 a"),
    ],
)
def test_options_name_the_snapshot_where_the_call_does_not(
    table: Table, options: dict[str, str], wanted: str
) -> None:
    copied = table.copy(options)

    assert held(copied) == wanted
    assert held(copied, snapshot_id=1) == "1 a"


def test_version_must_be_a_tag_or_a_snapshot(table: Table) -> None:
    with pytest.raises(NotFound, match=r"no tag or snapshot.* version=x"):
        held(table.copy({"scan.version": "x"}))
    with pytest.raises(NotFound, match="no tag or snapshot"):
        held(table.copy({"scan.version": "²"}))


def test_past_is_read_with_the_schema_it_was_written_with(table: Table) -> None:
    change = SchemaChange.add_column("note", "STRING")
    altered = evolve(table.schema, [change], now_ms=0, has_snapshots=True)
    assert write_schema(table.context.store, Layout(root=table.path), altered)
    newer = reopened(table)
    put(newer, "2 d x")

    assert held(newer) == "1 c _ | 2 d x"
    assert held(newer, snapshot_id=3) == "1 c"
    assert held(newer, tag="old") == "1 a"
    assert held(newer, snapshot_id=4) == "1 c _ | 2 d x"
