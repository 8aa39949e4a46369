"""Overwriting: which partitions are cleared, and that it is one snapshot."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CommitConflict, InvalidRequest, Unsupported
from lakecore.model.snapshot import CommitKind
from lakecore.table.writes.batch_write import at_last_level, matching, spec_values
from tests.stores import MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "p": "STRING", "q": "INT"}


@pytest.fixture(params=[True, False], ids=["keyed", "append"])
def table(request: pytest.FixtureRequest) -> Table:
    """Rows in the partitions a/1, a/2, b/1 and null/null."""
    table = new_table(
        COLUMNS, keys=["id", "p", "q"] if request.param else [], partitions=["p", "q"]
    )
    if request.param:
        put(table, "1 a 1 | 2 a 2 | 3 b 1 | 4 c 3")
    else:
        put(table, "1 a 1 | 2 a 2 | 3 b 1 | 4 _ _")
    return table


@pytest.mark.parametrize("keys", [["id", "p", "q"], []])
def test_no_partition_of_an_empty_table_matches(keys: list[str]) -> None:
    table = new_table(COLUMNS, keys=keys, partitions=["p", "q"], bucket="1" if keys else "-1")
    put(table, "1 a 1")
    table.truncate()

    assert table.compact(full=True, partitions=[{"p": "a"}]).snapshot_ids == ()
    assert table.drop_partition({"p": "a"}).snapshot_ids
    assert held(table) == ""


def rest(table: Table) -> str:
    """The row that no test overwrites."""
    return "4 c 3" if table.schema.primary_keys else "4 _ _"


def test_only_partitions_with_new_rows_are_replaced(table: Table) -> None:
    result = table.overwrite(rows(table.schema, "8 a 1 | 9 d 1"))
    snapshot = table.context.history.latest_snapshot()

    assert held(table) == f"2 a 2 | 3 b 1 | {rest(table)} | 8 a 1 | 9 d 1"
    assert (result.snapshot_ids, result.files_deleted, result.files_added) == ((2,), 1, 2)
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.OVERWRITE


def test_whole_table_is_replaced_where_asked(table: Table) -> None:
    table.overwrite(rows(table.schema, "8 a 1"), dynamic=False)
    assert held(table) == "8 a 1"
    static = table.copy({"dynamic-partition-overwrite": "false"})
    static.overwrite(rows(table.schema, "9 b 1"))

    assert held(table) == "9 b 1"


@pytest.mark.parametrize(
    ("spec", "data", "wanted"),
    [
        ({"p": "a"}, "8 a 7", "3 b 1 | {rest} | 8 a 7"),
        ({"p": "a", "q": 1}, "8 a 1", "2 a 2 | 3 b 1 | {rest} | 8 a 1"),
        ({"p": "a", "q": "1"}, "8 a 1", "2 a 2 | 3 b 1 | {rest} | 8 a 1"),
        ({"q": 1}, "8 z 1", "2 a 2 | {rest} | 8 z 1"),
        ({"p": "a"}, "", "3 b 1 | {rest}"),
        ({"p": "z"}, "8 z 1", "1 a 1 | 2 a 2 | 3 b 1 | {rest} | 8 z 1"),
    ],
)
def test_named_partitions_are_replaced(
    table: Table, spec: dict[str, Any], data: str, wanted: str
) -> None:
    table.overwrite(rows(table.schema, data), spec)

    assert held(table) == wanted.format(rest=rest(table))


def test_rows_outside_the_named_partition_are_refused_and_leave_nothing(table: Table) -> None:
    before = held(table)
    with pytest.raises(InvalidRequest, match=r"outside the partition.*\{'p': 'b', 'q': '1'\}"):
        table.overwrite(rows(table.schema, "8 a 1 | 9 b 1"), {"p": "a"})

    assert held(table) == before
    assert table.context.history.snapshot_ids() == (1,)
    assert len(table.context.store.list(f"{table.path}/p=b/q=1/bucket-0")) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"x": 1}, r"not a partition key\. column=x .*partition_keys=\[p, q\]"),
        ({"id": 1}, "not a partition key"),
        ({"q": "one"}, r"not of the partition key's type\. column=q value=one type=INT"),
        ({"q": 1.5}, "not of the partition key's type"),
        ({"q": 2**40}, "not of the partition key's type"),
    ],
)
def test_spec_that_names_no_partition_is_refused(
    table: Table, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        table.overwrite(rows(table.schema, ""), spec)
    with pytest.raises(InvalidRequest, match=message):
        table.drop_partition(spec)


def test_partitions_are_dropped(table: Table) -> None:
    result = table.drop_partition({"p": "a", "q": 2}, {"p": "b"})
    assert held(table) == f"1 a 1 | {rest(table)}"
    assert (result.files_deleted, result.files_added) == (2, 0)
    table.drop_partition({"p": "none"})

    assert held(table) == f"1 a 1 | {rest(table)}"
    with pytest.raises(InvalidRequest, match="name the partitions to drop"):
        table.drop_partition()
    with pytest.raises(InvalidRequest, match="at least one value"):
        table.drop_partition({})


def test_null_names_the_partition_of_nulls() -> None:
    table = new_table(COLUMNS, keys=[], partitions=["p", "q"])
    put(table, "1 _ 1 | 2 _ _ | 3 a _")
    table.drop_partition({"p": None, "q": 1})
    assert held(table) == "2 _ _ | 3 a _"
    table.overwrite(rows(table.schema, "4 a _"), {"q": None})

    assert held(table) == "4 a _"


def test_truncated_table_is_empty_and_goes_on(table: Table) -> None:
    result = table.truncate()
    snapshot = table.context.history.latest_snapshot()
    assert (held(table), result.snapshot_ids) == ("", (2,))
    assert snapshot is not None
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (0, -4)
    assert (snapshot.commit_kind, snapshot.operation) == (CommitKind.OVERWRITE, "TRUNCATE")
    put(table, "1 a 1")

    assert held(table) == "1 a 1"


def test_overwrite_clears_what_others_wrote_meanwhile() -> None:
    table = new_table()
    put(table, "1 a")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "2 b"))
        late = writer.prepare_commit()
    put(reopened(table), "3 c")
    table.overwrite(rows(table.schema, "4 d"))
    table.commit(late)

    assert held(table) == "2 b | 4 d"


@pytest.mark.parametrize(("engine", "vectors"), [("first-row", "false"), ("deduplicate", "true")])
def test_rows_show_at_once_where_reads_leave_out_level_0(engine: str, vectors: str) -> None:
    table = new_table(
        COLUMNS,
        keys=["id"],
        write_only="true",
        merge_engine=engine,
        deletion_vectors__enabled=vectors,
    )

    table.overwrite(rows(table.schema, "1 a 1 | 2 b 2"))

    assert held(table) == "1 a 1 | 2 b 2"
    assert table.inspect.files()["level"].to_list() == [5]


@pytest.mark.parametrize(
    "options",
    [
        {"merge_engine": "first-row"},
        {"deletion_vectors__enabled": "true"},
        {"deletion_vectors__enabled": "true", "bucket": "-1"},
        {"deletion_vectors__enabled": "true", "changelog_producer": "lookup"},
    ],
    ids=["first-row", "vectors", "dynamic buckets", "lookup"],
)
def test_one_snapshot_replaces_the_rows_where_reads_leave_out_level_0(
    options: dict[str, Any],
) -> None:
    table = new_table(COLUMNS, keys=["id"], **options)
    put(table, "1 old 1 | 3 old 3")
    old = in_directory(table, "bucket-0")

    result = table.overwrite(rows(table.schema, "1 a 1 | 2 b 2"))

    assert len(result.snapshot_ids) == 1
    assert held(table) == "1 a 1 | 2 b 2"
    assert table.inspect.files()["level"].to_list() == [5]
    # The file that the compaction replaced is gone, and no other is.
    made = in_directory(table, "bucket-0") - old
    assert len(made) == 1
    assert in_directory(table, "bucket-0") == old | made
    put(table, "2 c 3")
    table.compact(full=True)
    kept = "1 a 1 | 2 b 2" if "merge_engine" in options else "1 a 1 | 2 c 3"
    assert held(table) == kept


@pytest.mark.parametrize(
    "options",
    [
        {"changelog_producer": "lookup"},
        {"full_compaction__delta_commits": "1"},
        {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"},
    ],
    ids=["lookup", "full compaction", "vectors, merged"],
)
def test_both_snapshots_of_an_overwrite_keep_their_files_where_reads_merge_level_0(
    options: dict[str, Any],
) -> None:
    table = new_table(COLUMNS, keys=["id"], **options)
    put(table, "1 old 1")

    # The compaction rewrites the file, because it drops the deletion.
    result = table.overwrite(rows(table.schema, "1 a 1 | -D 9 b 2"))

    assert len(result.snapshot_ids) == 2
    for snapshot_id in result.snapshot_ids:
        assert held(table, snapshot_id=snapshot_id) == "1 a 1"


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_no_compaction_tells_of_an_overwrite(producer: str) -> None:
    table = new_table(COLUMNS, keys=["id"], write_only="true", changelog_producer=producer)
    table.overwrite(rows(table.schema, "1 a 1 | 2 b 2"))
    put(table, "2 c 3")

    table.compact(full=True)

    told = table.changes().collect().sort("_row_kind")
    assert told.select("_row_kind", "id", "q").rows() == [("+U", 2, 3), ("-U", 2, 2)]


def test_files_stay_at_level_0_where_asked() -> None:
    table = new_table(COLUMNS, keys=["id"], overwrite_upgrade="false")

    table.overwrite(rows(table.schema, "1 a 1"))

    assert table.inspect.files()["level"].to_list() == [0]


def test_files_that_overlap_stay_at_level_0() -> None:
    table = new_table(COLUMNS, keys=["id"])
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a 1 | 4 a 1"))
        first = writer.prepare_commit()
        writer.write(rows(table.schema, "2 b 2"))
        inside = writer.prepare_commit()
        writer.write(rows(table.schema, "5 b 2"))
        beside = writer.prepare_commit()

    def levels(*messages: CommitMessage) -> list[int]:
        found = at_last_level(table.context, messages)
        return [file.level for message in found for file in message.new_files]

    assert levels(*first, *inside) == [0, 0]
    assert levels(*beside, *first) == [5, 5]


def test_dynamic_overwrite_without_rows_changes_nothing(table: Table) -> None:
    before = held(table)

    assert table.overwrite(rows(table.schema, "")).snapshot_ids == ()
    assert held(table) == before


def test_number_of_a_dynamic_overwrite_without_rows_is_on_record(table: Table) -> None:
    before = held(table)
    job: Any = {"commit_user": "job", "identifier": 7}
    first = table.overwrite(rows(table.schema, ""), **job)
    again = table.overwrite(rows(table.schema, "8 a 1"), **job)

    assert (first.snapshot_ids, again.snapshot_ids) == ((2,), (2,))
    assert again.facts["already_committed"]
    assert held(table) == before


def test_sequence_numbers_and_indexes_begin_anew() -> None:
    table = new_table(bucket="-1", dynamic_bucket__target_row_num="2")
    put(table, "1 a | 2 a | 3 a")
    table.overwrite(rows(table.schema, "3 b | 4 b | 5 b"))
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    files = [(e.bucket, e.file.sequence_min) for e in history.live_entries(snapshot)]
    assert sorted(files) == [(0, 0), (1, 0)]
    assert sum(entry.file.row_count for entry in history.index_entries(snapshot)) == 3
    put(table, "3 c | 1 c")

    assert held(table) == "1 c | 3 c | 4 b | 5 b"


def test_number_is_overwritten_once(table: Table) -> None:
    for text in ("8 a 1", "9 a 1"):
        table.overwrite(rows(table.schema, text), commit_user="job", identifier=1)

    assert held(table) == f"2 a 2 | 3 b 1 | {rest(table)} | 8 a 1"


def test_option_that_lakecore_does_not_write_is_refused() -> None:
    table = new_table(bucket="-2", postpone__merge_on_read="true")
    with pytest.raises(Unsupported, match=r"postpone\.merge-on-read"):
        table.truncate()


def test_lost_overwrite_leaves_nothing_behind() -> None:
    table = new_table(commit__max_retries="0")
    slow = reopened(
        table, store=MeddledStore(table.context.store, lambda: put(reopened(table), "1 a"))
    )
    with pytest.raises(CommitConflict, match="lost every race"):
        slow.overwrite(rows(table.schema, "2 b"))

    assert held(table) == "1 a"
    assert len(in_directory(table, "bucket-0")) == 1


@pytest.mark.parametrize(
    ("data_type", "given", "wanted"),
    [
        ("DATE", "2026-01-02", dt.date(2026, 1, 2)),
        ("DATE", dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        ("STRING", 7, "7"),
        ("BIGINT", "7", 7),
        ("DECIMAL(5, 2)", "1.5", Decimal("1.50")),
        ("BOOLEAN", "true", True),
        ("INT", None, None),
    ],
)
def test_values_of_a_spec_are_values_or_their_text(data_type: str, given: Any, wanted: Any) -> None:
    table = new_table({"id": "INT", "p": data_type}, keys=[], partitions=["p"])

    assert spec_values(table.context, {"p": given})["p"].as_py() == wanted


def test_any_of_the_specs_may_match() -> None:
    table = new_table(COLUMNS, keys=[], partitions=["p", "q"])
    put(table, "1 a 1 | 2 a 2 | 3 b 1 | 4 _ _")
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    partitions = [e.partition for e in table.context.history.live_entries(snapshot)]
    paths = [table.context.partitions.path(partition) for partition in partitions]
    chosen = matching(table.context, [{"p": "a", "q": 1}, {"p": None}])(partitions)

    assert [path for path, choose in zip(paths, chosen, strict=True) if choose] == [
        "p=a/q=1",
        "p=__DEFAULT_PARTITION__/q=__DEFAULT_PARTITION__",
    ]


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("chosen", [0.0, -0.0, math.nan, 1.5, None])
def test_partition_of_a_float_is_the_one_of_that_very_value(
    kind: str, chosen: float | None
) -> None:
    table = new_table({"id": "INT", "p": kind}, keys=[], partitions=["p"])
    values = [0.0, -0.0, math.nan, 1.5, None]
    table.write([{"id": number, "p": value} for number, value in enumerate(values)])
    table.overwrite([{"id": 9, "p": chosen}], partition={"p": chosen})
    at = [repr(value) for value in values].index(repr(chosen))

    assert sorted(table.to_polars()["id"]) == sorted({*range(5), 9} - {at})
    table.drop_partition({"p": chosen})

    assert sorted(table.to_polars()["id"]) == sorted({*range(5)} - {at})
