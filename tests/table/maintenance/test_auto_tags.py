"""Tags that commits make, and tags whose time is over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.ambient import Clock, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.table.maintenance import tags as tags_module
from lakecore.table.maintenance.tags import create_automatic_tags, expire_due_tags, make_tag
from tests.retention import data_files, files_read
from tests.stores import ReadCounter
from tests.tables import held, new_table, reopened, rows

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

HOUR_MS = 3_600_000
DAY = int(datetime(2024, 3, 5, tzinfo=UTC).timestamp()) * 1000


def table_of(mode: str = "watermark", **options: Any) -> Table:
    ambient = seeded(3, Clock(DAY))
    return new_table(
        store=MemoryStore(ambient),
        ambient=ambient,
        tag__automatic_creation=mode,
        sink__process_time_zone="UTC",
        write_only="true",  # the steps after a commit are called here
        **options,
    )


def commit(table: Table, hour: float | None = None, row: str = "1 a") -> tuple[str, ...]:
    """Commit a row with the watermark of an hour of the day; the tags that this makes."""
    watermark = None if hour is None else DAY + int(hour * HOUR_MS)
    table.write(rows(table.schema, row), watermark=watermark)
    return create_automatic_tags(reopened(table).context, batch=True)


def tags(table: Table) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in reopened(table).tags()}


def test_first_snapshot_gets_the_tag_of_the_day_that_ended() -> None:
    table = table_of()

    assert commit(table) == ()
    assert commit(table, 1) == ("2024-03-04",)
    assert commit(table, 23.9) == ()
    assert commit(table, 24) == ("2024-03-05",)
    assert commit(table, 24 * 4 + 1) == ("2024-03-08",)
    assert tags(table) == {"2024-03-04": 2, "2024-03-05": 4, "2024-03-08": 5}


def test_missed_periods_get_the_tags_of_later_snapshots() -> None:
    table = table_of(tag__automatic_completion="true", tag__creation_period="hourly")

    assert commit(table, 1) == ("2024-03-05 00",)
    made = [commit(table, 4 + number / 10) for number in range(5)]

    assert made == [("2024-03-05 01",), ("2024-03-05 02",), ("2024-03-05 03",), (), ()]


def test_tag_waits_for_the_delay() -> None:
    table = table_of(tag__creation_period="hourly", tag__creation_delay="10 min")

    assert commit(table, 1) == ("2024-03-05 00",)
    assert commit(table, 2.1) == ()
    assert commit(table, 2.2) == ("2024-03-05 01",)


def test_snapshots_that_nobody_looked_at_are_tagged_later() -> None:
    table = table_of(tag__creation_period="hourly")
    for hour in (1, 1.5, 2, 3):
        table.write(rows(table.schema, "1 a"), watermark=DAY + int(hour * HOUR_MS))

    made = create_automatic_tags(table.context, batch=True)

    assert made == ("2024-03-05 00", "2024-03-05 01", "2024-03-05 02")
    assert tags(table) == {"2024-03-05 00": 1, "2024-03-05 01": 3, "2024-03-05 02": 4}
    assert create_automatic_tags(table.context, batch=True) == ()


def test_only_the_newest_automatic_tags_stay() -> None:
    table = table_of(tag__creation_period="hourly", tag__num_retained_max="2")
    table.write(rows(table.schema, "1 a"), watermark=DAY)
    table.create_tag("by hand")
    for hour in range(1, 6):
        commit(table, hour, f"{hour} b")

    assert tags(table) == {"by hand": 1, "2024-03-05 03": 5, "2024-03-05 04": 6}


def test_tag_of_that_name_made_by_hand_counts() -> None:
    table = table_of(tag__creation_period="hourly")
    commit(table, 1)
    table.write(rows(table.schema, "2 b"))
    table.create_tag("2024-03-05 01", snapshot_id=2)

    assert commit(table, 2.5) == ()
    assert commit(table, 3) == ("2024-03-05 02",)


def test_process_time_is_that_of_the_snapshot_in_the_zone() -> None:
    table = table_of("process-time", tag__creation_period="hourly")
    assert commit(table) == ("2024-03-04 23",)

    other = new_table(
        ambient=seeded(3, Clock(DAY)),
        tag__automatic_creation="process-time",
        tag__creation_period="hourly",
        sink__process_time_zone="+05:30",
    )
    other.write(rows(other.schema, "1 a"))
    create_automatic_tags(other.context, batch=True)
    assert tags(other) == {"2024-03-05 04": 1}


def test_watermarks_have_a_zone_too() -> None:
    table = table_of(sink__watermark_time_zone="Asia/Shanghai", tag__creation_period="hourly")

    assert commit(table, 0) == ("2024-03-05 07",)


@pytest.mark.parametrize("watermark", [-(2**63), 2**63 - 1])
def test_watermark_that_is_no_time_makes_no_tag(watermark: int) -> None:
    table = table_of()
    table.write(rows(table.schema, "1 a"), watermark=watermark)

    assert create_automatic_tags(table.context, batch=True) == ()


def test_new_tags_have_the_default_time() -> None:
    table = table_of(tag__default_time_retained="1 d")
    commit(table, 1)

    assert [tag.retained_seconds for tag in reopened(table).tags()] == [86_400]


def test_batch_moves_its_tag_along() -> None:
    table = table_of("batch")

    assert commit(table) == ("batch-write-2024-03-05",)
    assert commit(table) == ("batch-write-2024-03-05",)
    assert tags(table) == {"batch-write-2024-03-05": 2}
    assert create_automatic_tags(table.context, batch=False) == ()


def test_batch_tag_may_have_a_name_and_most_tags_count() -> None:
    table = table_of("batch", tag__batch__customized_name="last", tag__num_retained_max="2")
    commit(table)
    table.create_tag("a", snapshot_id=1)
    table.create_tag("b", snapshot_id=1)

    assert commit(table) == ("last",)
    assert tags(table) == {"b": 1, "last": 2}


def test_no_tags_are_made_unless_the_option_says_so() -> None:
    table = table_of("none")

    assert commit(table, 1) == ()


@pytest.mark.parametrize(
    "options", [{"tag__creation_delay": "1 d"}, {"tag__creation_period_duration": "0 s"}]
)
def test_delay_and_period_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    table = table_of(**options)

    with pytest.raises(InvalidRequest, match="less than the period"):
        commit(table, 1)


# --- tags whose time is over ----------------------------------------------------------------------


def test_tag_goes_when_its_time_is_over() -> None:
    table = table_of("none")
    commit(table)
    table.create_tag("short", time_retained="1 h")
    table.create_tag("long", time_retained="2 h")
    table.create_tag("forever")

    table.context.ambient.sleep(3600)
    assert table.expire_tags() == ()
    table.context.ambient.sleep(1)
    assert [each.name for each in table.expire_tags(dry_run=True)] == ["short"]
    assert [each.name for each in table.expire_tags()] == ["short"]
    assert {*tags(table)} == {"forever", "long"}
    assert held(reopened(table)) == "1 a"


def test_tags_made_before_a_time_go() -> None:
    table = table_of("none")
    commit(table)
    table.create_tag("old", time_retained="9 d")
    table.create_tag("old and forever")
    table.context.ambient.sleep(10)
    table.create_tag("new", time_retained="9 d")

    then = DAY + 5_000
    assert [each.name for each in table.expire_tags(older_than=then)] == ["old", "old and forever"]
    assert {*tags(table)} == {"new"}


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_commits_let_tags_expire_unless_the_option_forbids_it(enabled: str) -> None:
    table = table_of("process-time", tag__time_expire_enabled=enabled)
    commit(table)
    table.create_tag("short", time_retained="1 h")
    table.context.ambient.sleep(3601)

    expire_due_tags(table.context)

    assert ("short" in tags(table)) is (enabled == "false")


def test_every_commit_makes_the_tags_that_are_due_before_snapshots_expire() -> None:
    table = new_table(
        tag__automatic_creation="watermark",
        tag__creation_period="hourly",
        tag__num_retained_max="2",
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
    )
    for hour in range(1, 5):
        table.overwrite(rows(table.schema, f"1 v{hour}"), watermark=DAY + hour * HOUR_MS)

    assert table.context.history.snapshot_ids() == (4,)
    assert tags(table) == {"2024-03-05 02": 3, "2024-03-05 03": 4}
    assert held(reopened(table), tag="2024-03-05 02") == "1 v3"
    assert data_files(table) == files_read(table)


def test_write_only_table_makes_no_tags() -> None:
    table = table_of()
    table.write(rows(table.schema, "1 a"), watermark=DAY)

    assert tags(table) == {}


def test_watermark_is_carried_and_never_falls() -> None:
    table = new_table()
    for watermark in (None, 5, 3, None, 9):
        table.write(rows(table.schema, "1 a"), watermark=watermark)
    table.overwrite(rows(table.schema, "1 b"), watermark=11)
    table.delete("id = 1")
    found = table.inspect.snapshots().filter(commit_kind="APPEND")["watermark"].to_list()

    assert found == [None, 5, 5, 5, 9, 11]
    assert table.inspect.snapshots()["watermark"].to_list()[-2:] == [11, 11]
    for wrong in ("5", 1.5, True, 2**63):
        with pytest.raises(InvalidRequest, match="watermark"):
            table.write(rows(table.schema, "1 a"), watermark=wrong)  # type: ignore[arg-type]


def test_commits_read_a_tag_again_only_if_it_changed() -> None:
    table = table_of("none")
    commit(table)
    for number in range(5):
        table.create_tag(f"t{number}", time_retained="9 d")
    table.create_tag("forever")
    store = ReadCounter(table.context.store)
    slow = reopened(table, store=store, ambient=table.context.ambient)

    for _ in range(3):
        expire_due_tags(slow.context)
        table.context.ambient.sleep(61.0)  # tags are looked for once a minute
    assert len([name for name in store.reads if name.startswith("tag-")]) == 6
    table.replace_tag("t1", time_retained="8 d")
    expire_due_tags(slow.context)
    assert [name for name in store.reads if name.startswith("tag-")][6:] == ["tag-t1"]
    table.context.ambient.sleep(8 * 86_400 + 1.0)
    expire_due_tags(slow.context)
    assert {*tags(table)} == {"t0", "t2", "t3", "t4", "forever"}


def test_next_snapshot_gets_the_tag_if_one_expires_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of()
    for hour in (1, 2, 25):
        table.write(rows(table.schema, "1 a"), watermark=DAY + hour * HOUR_MS)
    made = make_tag

    def make(context: TableContext, name: str, snapshot: Snapshot, retained: int | None) -> Tag:
        if snapshot.id == 1:
            raise NotFound("the snapshot has expired")
        return made(context, name, snapshot, retained)

    monkeypatch.setattr(tags_module, "make_tag", make)
    assert create_automatic_tags(table.context, batch=True) == ("2024-03-04", "2024-03-05")
    assert tags(table) == {"2024-03-04": 2, "2024-03-05": 3}
