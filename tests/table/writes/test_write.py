"""Writers: rows in, messages out, nothing visible before the commit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    Unsupported,
)
from lakecore.format.layout import Layout
from lakecore.io.files.data_files import read_file
from lakecore.model.evolution import evolve
from lakecore.model.files import EMPTY_ROW, HASH_INDEX, CommitMessage, DataFile
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.plan.bucketing import bucket_ids
from lakecore.table.publication import write_schema
from lakecore.table.run_writer.file_shape import data_shape
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.table.handle import Table
    from lakecore.table.writes.write import TableWrite


def written(writer: TableWrite, table: Table, *lines: str) -> list[CommitMessage]:
    for line in lines:
        writer.write(rows(table.schema, line))
    return writer.prepare_commit()


def files_below(table: Table, directory: str = "") -> list[str]:
    """The files of the table but for its schema, below a directory."""
    found: list[str] = []
    pending = [f"{table.path}/{directory}".rstrip("/")]
    while pending:
        for status in table.context.store.list(pending.pop()):
            name = status.path.removeprefix(table.path + "/")
            if status.is_directory:
                pending.append(status.path)
            elif not name.startswith("schema/"):
                found.append(name)
    return sorted(found)


def content(table: Table, file: DataFile, bucket: int = 0) -> list[tuple[object, ...]]:
    """The rows of a data file as they are stored, without the key's second copy."""
    fields = data_shape(table.schema, table.options).physical_fields
    path = table.context.layout.file_in_bucket("", bucket, file.name)
    batches = list(read_file(table.context.store, path, fields=fields))
    stored = pa.Table.from_batches(batches)
    own = stored.select([name for name in stored.schema.names if not name.startswith("_KEY_")])
    return [tuple(row.values()) for row in own.to_pylist()]


def test_nothing_is_visible_before_the_commit() -> None:
    table = new_table()
    with table.new_write() as writer:
        messages = written(writer, table, "1 a")
        assert held(table) == ""
        table.commit(messages)

    assert held(table) == "1 a"


def test_rows_are_numbered_in_order_of_arrival_and_stored_in_key_order() -> None:
    table = new_table()
    with table.new_write() as writer:
        (message,) = written(writer, table, "3 a | 1 b", "2 c | -D 3 _")
    (file,) = message.new_files

    # sequence number, kind, id, v
    assert content(table, file) == [(1, 0, 1, "b"), (2, 0, 2, "c"), (3, 3, 3, None)]
    assert (file.sequence_min, file.sequence_max, file.delete_row_count) == (1, 3, 1)


def test_numbers_go_on_where_the_bucket_ends() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    with table.new_write() as writer:
        (message,) = written(writer, table, "1 c")
        table.commit([message])
        (again,) = written(writer, table, "1 d")

    ranges = [(f.sequence_min, f.sequence_max) for m in (message, again) for f in m.new_files]
    assert ranges == [(2, 2), (3, 3)]


def test_numbers_go_on_between_messages_that_are_not_committed_yet() -> None:
    table = new_table()
    with table.new_write() as writer:
        first = written(writer, table, "1 a | 1 b")
        second = written(writer, table, "1 c")
        assert [f.sequence_min for m in second for f in m.new_files] == [2]
        table.commit([*first, *second])

    assert held(table) == "1 c"


def test_messages_name_bucket_partition_and_base() -> None:
    table = new_table(partitions=["v"], keys=["id", "v"], bucket="2")
    put(table, "1 a")
    with table.new_write() as writer:
        messages = written(writer, table, " | ".join(f"{n} {p}" for n in range(9) for p in "ab"))

    places = [(table.context.partitions.path(m.partition), m.bucket) for m in messages]
    assert places == [("v=a", 0), ("v=a", 1), ("v=b", 0), ("v=b", 1)]
    assert {(m.total_buckets, m.base_snapshot_id) for m in messages} == {(2, 1)}
    assert pickle.loads(pickle.dumps(messages)) == messages


def test_base_is_none_for_a_table_without_snapshots() -> None:
    table = new_table()
    with table.new_write() as writer:
        (message,) = written(writer, table, "1 a")

    assert (message.base_snapshot_id, message.partition) == (None, EMPTY_ROW)


def test_rows_lie_in_the_bucket_of_their_key() -> None:
    table = new_table(bucket="3")
    with table.new_write() as writer:
        messages = written(writer, table, " | ".join(f"{number} x" for number in range(30)))
    numbers = pa.array(range(30), pa.int32())
    wanted = bucket_ids([numbers], [table.schema.field("id").type], 3).tolist()

    for message in messages:
        found = [
            row[2] for file in message.new_files for row in content(table, file, message.bucket)
        ]
        assert found == [n for n in range(30) if wanted[n] == message.bucket]


def test_writer_without_rows_has_no_messages() -> None:
    table = new_table()
    with table.new_write() as writer:
        assert written(writer, table) == []
        assert written(writer, table, "") == []

    assert files_below(table) == []


def test_row_that_does_not_fit_drops_everything() -> None:
    table = new_table()
    writer = table.new_write()
    writer.write(rows(table.schema, "1 a | 2 b"))
    with pytest.raises(InvalidRequest, match=r"column=id.*row=3|row=3.*column=id"):
        writer.write(pa.table({"id": [3, None], "v": ["c", "d"]}))

    assert table.context.budget.used_bytes == 0
    assert files_below(table) == []


def refused_write(writer: TableWrite) -> None:
    with pytest.raises(InvalidRequest, match="column=id"):
        writer.write(pa.table({"id": pa.array([None], pa.int32()), "v": ["c"]}))


def broken_source(writer: TableWrite) -> None:
    def batches() -> Iterator[pa.Table]:
        yield pa.table({"id": [3], "v": ["c"]})
        raise StoreFailure

    with pytest.raises(StoreFailure):
        writer.write(batches())


def closed(writer: TableWrite) -> None:
    writer.close()


def left(writer: TableWrite) -> None:
    with writer:
        pass


@pytest.mark.parametrize("end", [refused_write, broken_source, closed, left])
def test_writer_that_has_ended_says_that_rows_are_dropped(
    end: Callable[[TableWrite], None],
) -> None:
    table = new_table()
    writer = table.new_write()
    writer.write(rows(table.schema, "1 a | 2 b"))
    end(writer)

    with pytest.raises(InvalidRequest, match="has ended"):
        writer.prepare_commit()
    with pytest.raises(InvalidRequest, match="has ended"):
        writer.write(rows(table.schema, "3 c"))
    writer.close()
    assert files_below(table) == []


def test_writer_goes_on_after_messages_were_aborted() -> None:
    table = new_table()
    writer = table.new_write()
    writer.abort(written(writer, table, "1 a"))

    table.commit(written(writer, table, "2 b"))
    assert held(table) == "2 b"


@pytest.mark.parametrize("given", ["x", [1], None, iter(())])
def test_what_are_no_messages_is_not_aborted(given: Any) -> None:
    table = new_table()
    writer = table.new_write()
    writer.write(rows(table.schema, "1 a"))

    with pytest.raises(InvalidRequest, match="abort takes"):
        writer.abort(given)
    table.commit(writer.prepare_commit())
    assert held(table) == "1 a"


def altered(table: Table, change: Change, *, has_snapshots: bool = False) -> Table:
    """The table, opened by somebody else after a change."""
    context = table.refresh().context
    newest = evolve(context.schema, [change], now_ms=1, has_snapshots=has_snapshots)
    write_schema(context.store, Layout(root=table.path), newest)
    return table.refresh()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bucket-key", "id"),
        ("bucket", "3"),
        ("merge-engine", "first-row"),
        ("sequence.field", "v"),
        ("rowkind.field", "v"),
        ("changelog-producer", "input"),
        ("deletion-vectors.enabled", "true"),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_rows_by_rules_that_the_table_had_while_it_was_empty_are_refused(
    key: str, value: str, *, beside: bool
) -> None:
    columns = {"id": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
    table = new_table(columns, keys=["id", "k"], bucket="4", bucket_key="k")
    writer = table.new_write()
    messages = written(writer, table, "1 7 +I")
    newest = altered(table, SchemaChange.set_option(key, value))
    if beside:
        put(newest.copy({"write-only": "true"}), "2 8 +I")
    before = (newest.inspect.snapshots().height, files_below(table))

    with pytest.raises(CommitConflict, match="open it again"):
        table.commit(messages)
    if not beside:
        with pytest.raises(CommitConflict, match="open it again"):
            put(table, "1 7 +I")
    assert (newest.inspect.snapshots().height, files_below(table)) == before


def test_rows_of_a_writer_that_opened_the_table_before_other_changes_are_taken() -> None:
    columns = {"id": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
    table = new_table(columns, keys=["id", "k"], bucket="4", bucket_key="k")
    changes = [
        SchemaChange.rename_column("k", "number"),
        SchemaChange.add_column("w", "STRING"),
        SchemaChange.set_option("file.format", "avro"),
        SchemaChange.set_option("write-only", "true"),
    ]
    for number, change in enumerate(changes):
        messages = written(table.new_write(), table, f"{number} 7 x")
        newest = altered(table, change, has_snapshots=number > 0)
        table.commit(messages)

    assert held(newest) == "0 7 x _ | 1 7 x _ | 2 7 x _ | 3 7 x _"


def test_writer_that_is_left_leaves_nothing() -> None:
    table = new_table(write_buffer_size="1 b", write_buffer_spillable="false")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a"))
        assert len(files_below(table)) == 1

    assert files_below(table) == []
    assert table.context.budget.used_bytes == 0


def test_aborted_messages_leave_nothing() -> None:
    table = new_table(bucket="-1", changelog_producer="input")
    with table.new_write() as writer:
        messages = written(writer, table, "1 a | 2 b")
        assert len(files_below(table)) == 3
        writer.abort(messages)

    assert files_below(table) == []


@pytest.mark.parametrize("fail_at", range(1, 9))
def test_storage_that_fails_loses_no_lease(fail_at: int) -> None:
    table = new_table(bucket="-1", changelog_producer="input")
    put(table, "1 a")
    broken = reopened(table, store=FailingStore(table.context.store, fail_at))
    with pytest.raises((StoreFailure, CommitUnknown)):
        put(broken, "2 b")

    assert broken.context.budget.used_bytes == 0
    assert held(table) in {"1 a", "1 a | 2 b"}


def test_leases_are_given_back_after_each_prepare() -> None:
    table = new_table()
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a"))
        assert table.context.budget.used_bytes > 0
        writer.prepare_commit()
        assert table.context.budget.used_bytes == 0


def test_row_count_is_that_of_the_rows_handed_in() -> None:
    table = new_table(ignore_delete="true")
    with table.new_write() as writer:
        assert writer.write(rows(table.schema, "1 a | -D 1 a")) == 2
        assert writer.write(rows(table.schema, "2 b")) == 1
        assert writer.row_count == 3
        (message,) = writer.prepare_commit()

    assert [file.row_count for file in message.new_files] == [2]


def test_option_that_lakecore_does_not_write_is_refused() -> None:
    table = new_table(manifest_sort__enabled="true")
    with pytest.raises(Unsupported, match=r"option=manifest-sort.enabled value=true"):
        table.new_write()


# --- bucket counts ------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("2", "3"), ("2", "-1"), ("-1", "2")])
def test_partition_of_another_bucket_count_is_refused(before: str, after: str) -> None:
    table = new_table(bucket=before, partitions=["v"], keys=["id", "v"])
    put(table, "1 a")
    changed = with_bucket(table, after)
    with pytest.raises(
        InvalidRequest,
        match=rf"another number of buckets.*\{{'v': 'a'\}} buckets={before} option_bucket={after}",
    ):
        put(changed, "2 a")

    put(changed, "3 b")
    assert held(changed) == "1 a | 3 b"


def test_partition_of_another_bucket_count_may_be_overwritten() -> None:
    table = new_table(bucket="2", partitions=["v"], keys=["id", "v"])
    put(table, "1 a | 2 b")
    changed = with_bucket(table, "3")
    changed.overwrite(rows(table.schema, "5 a"), {"v": "a"})
    put(changed, "6 a")

    assert held(changed) == "2 b | 5 a | 6 a"


def with_bucket(table: Table, bucket: str) -> Table:
    """The table as if its option had been altered since."""
    schema = table.schema
    altered = replace(schema, id=schema.id + 1, options={**schema.options, "bucket": bucket})
    assert write_schema(table.context.store, Layout(root=table.path), altered)
    return reopened(table)


# --- dynamic buckets ----------------------------------------------------------------------------


def buckets_of(table: Table) -> dict[int, list[object]]:
    """The keys of each bucket's live files."""
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    found: dict[int, list[object]] = {}
    for entry in table.context.history.live_entries(snapshot):
        keys = found.setdefault(entry.bucket, [])
        keys += [row[2] for row in content(table, entry.file, entry.bucket)]
    return {bucket: sorted(keys) for bucket, keys in sorted(found.items())}  # type: ignore[type-var]


def test_keys_stay_in_the_bucket_they_were_first_put_in() -> None:
    table = new_table(bucket="-1", dynamic_bucket__target_row_num="2")
    for line in ("1 a | 2 a | 3 a", "4 b | 1 b", "5 c | 3 c | -D 2 _", "1 d | 5 d"):
        put(table, line)

    assert buckets_of(table) == {0: [1, 1, 1, 2, 2], 1: [3, 3, 4], 2: [5, 5]}
    assert held(table) == "1 d | 3 c | 4 b | 5 d"


def test_index_of_a_bucket_is_written_only_when_it_grows() -> None:
    table = new_table(bucket="-1")
    with table.new_write() as writer:
        first = written(writer, table, "1 a | 2 a")
        table.commit(first)
        known = written(writer, table, "1 b")
        table.commit(known)
        grown = written(writer, table, "1 c | 3 c")
        table.commit(grown)

    found = [
        [(i.index_type, i.row_count) for i in m[0].new_index_files] for m in (first, known, grown)
    ]
    assert found == [[(HASH_INDEX, 2)], [], [(HASH_INDEX, 3)]]
    assert held(table) == "1 c | 2 a | 3 c"


def test_writer_of_dynamic_buckets_commits_before_it_goes_on() -> None:
    table = new_table(bucket="-1")
    with table.new_write() as writer:
        first = written(writer, table, "1 a")
        second = written(writer, table, "2 b")
        table.commit(first)
        with pytest.raises(CommitConflict, match="dynamic buckets"):
            table.commit(second)

    assert held(table) == "1 a"


def test_index_that_is_missing_or_changed_is_damage() -> None:
    table = new_table(bucket="-1")
    put(table, "1 a | 2 a")
    (name,) = in_directory(table, "index")
    store, path = table.context.store, f"{table.path}/index/{name}"
    data = store.read(path)

    store.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptTable, match=rf"fails its checksum.*{name}"):
        put(reopened(table), "1 b")
    store.delete(path)
    with pytest.raises(CorruptTable, match=rf"is missing.*{name}"):
        put(reopened(table), "1 b")

    assert held(table) == "1 a | 2 a"


def test_partitions_have_indexes_of_their_own() -> None:
    table = new_table(
        bucket="-1", dynamic_bucket__target_row_num="1", partitions=["v"], keys=["id", "v"]
    )
    put(table, "1 a | 2 a | 1 b")
    put(table, "2 b | 1 a | 1 b")

    assert held(table) == "1 a | 1 b | 2 a | 2 b"


def test_largest_number_of_buckets_is_kept() -> None:
    table = new_table(
        bucket="-1", dynamic_bucket__target_row_num="1", dynamic_bucket__max_buckets="2"
    )
    put(table, " | ".join(f"{number} a" for number in range(9)))
    put(table, " | ".join(f"{number} b" for number in range(20)))

    assert set(buckets_of(table)) == {0, 1}
    assert held(table) == " | ".join(sorted(f"{number} b" for number in range(20)))


# --- append tables ------------------------------------------------------------------------------


def test_append_table_keeps_rows_as_they_came() -> None:
    table = new_table(keys=[])
    put(table, "2 b | 1 a | 2 b")
    put(table, "1 a")

    assert table.to_arrow().to_pylist() == [
        {"id": 2, "v": "b"}, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 1, "v": "a"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"bucket": "2", "bucket-key": "id"}, [(0, 2), (3, 3)]),
        ({}, [(0, 2), (0, 0)]),
    ],
    ids=["fixed buckets count on", "unaware buckets begin anew"],
)
def test_numbers_of_append_tables(options: dict[str, str], wanted: list[tuple[int, int]]) -> None:
    named: dict[str, Any] = {key.replace("-", "_"): text for key, text in options.items()}
    table = new_table(keys=[], **named)
    ranges = []
    for line in ("7 a | 7 b | 7 c", "7 d"):
        with table.new_write() as writer:
            (message,) = written(writer, table, line)
            table.commit([message])
        ranges += [(file.sequence_min, file.sequence_max) for file in message.new_files]

    assert ranges == wanted
    assert {message.total_buckets} == {int(options.get("bucket", -1))}


def test_kinds_other_than_inserts_are_refused_by_append_tables() -> None:
    table = new_table(keys=[])
    with pytest.raises(InvalidRequest, match="-D"):
        put(table, "-D 1 a")


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["a", "b"])])
def test_categories_of_polars_are_texts(kind: pl.DataType) -> None:
    table = new_table({"id": "INT", "v": "STRING"}, keys=())
    frame = pl.DataFrame({"id": [1, 2, 3], "v": pl.Series(["b", None, "a"], dtype=kind)})
    table.write(frame)
    table.write(frame.lazy())

    assert held(table) == "1 b | 1 b | 2 _ | 2 _ | 3 a | 3 a"
