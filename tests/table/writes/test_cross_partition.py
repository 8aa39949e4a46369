"""A primary key that lacks partition keys: each key is in one partition, and may change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import (
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    Unsupported,
)
from lakecore.table.writes.cross_partition import CrossPartition
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import read_start
from tests.stores import MeddledStore
from tests.tables import changed, held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING"}


def crossing(**options: Any) -> Table:
    stated = {"bucket": "-1", **options}
    return new_table(COLUMNS, keys=["id"], partitions=["p"], **stated)


def test_deduplicate_deletes_the_key_in_its_old_partition() -> None:
    table = crossing()
    put(table, "1 a x | 2 b x")
    put(table, "1 c y | 3 d x | 3 e y | 3 f x")

    assert held(table) == "1 c y | 2 b x | 3 f x"
    table.compact(full=True)
    assert held(table) == "1 c y | 2 b x | 3 f x"
    put(table, "-D 1 c y | -D 2 b nowhere")
    assert held(table) == "3 f x"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"merge_engine": "partial-update"}, "1 c x | 2 b x | 3 d y"),
        (
            {"merge_engine": "aggregation", "fields__v__aggregate-function": "listagg"},
            "1 a,c x | 2 b x | 3 d y",
        ),
        ({"merge_engine": "first-row"}, "1 a x | 2 b x | 3 d y"),
    ],
    ids=str,
)
def test_other_engines_keep_a_key_in_its_partition(options: dict[str, str], left: str) -> None:
    table = crossing(**options)
    put(table, "1 a x | 2 b x")
    put(table, "1 c y | 3 d y")

    assert held(table) == left


def test_null_is_a_partition_like_others() -> None:
    table = crossing()
    put(table, "1 a _ | 2 b x")
    put(table, "1 c x | 2 d _")

    assert held(table) == "1 c x | 2 d _"


def test_key_may_hold_a_part_of_the_partition() -> None:
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "q": "INT", "v": "STRING"}
    table = new_table(columns, keys=["id", "p"], partitions=["p", "q"], bucket="-1")
    put(table, "1 x 1 a | 1 y 1 b")
    put(table, "1 x 2 c")

    assert held(table) == "1 x 2 c | 1 y 1 b"


def test_changelog_tells_the_deletion() -> None:
    table = crossing(changelog_producer="input")
    put(table, "1 a x")
    put(table, "1 b y")

    told = [changed(frame.lazy()) for _, frame in table.stream(from_snapshot=2, until="latest")]
    assert sorted(told[0].split(" | ")) == ["+I 1 b y", "-D 1 b x"]


def test_buckets_fill_up_and_are_kept() -> None:
    table = crossing(dynamic_bucket__target_row_num="2", write_only="true")
    put(table, "1 a x | 2 a x | 3 a x | 4 a x | 5 a x")
    assert set(table.inspect.buckets()["bucket"]) == {0, 1, 2}
    put(reopened(table), "1 b x | 2 b x | 3 b x | 4 b x | 5 b x | 6 b x")

    assert set(table.inspect.buckets()["bucket"]) == {0, 1, 2}
    assert len(held(table).split(" | ")) == 6
    limited = crossing(dynamic_bucket__target_row_num="1", dynamic_bucket__max_buckets="2")
    put(limited, "1 a x | 2 a x | 3 a x | 4 a x | 5 a x")
    assert set(limited.inspect.buckets()["bucket"]) == {0, 1}


def test_key_that_leaves_makes_room_for_one_other() -> None:
    table = crossing(dynamic_bucket__target_row_num="2", write_only="true")
    with table.new_stream_write("loader") as writer:
        for number, text in enumerate(["1x 2x 3x 4x", "1y", "5x 6x"]):
            writer.write([{"id": int(word[0]), "v": "a", "p": word[1]} for word in text.split()])
            writer.prepare_commit(number)
        writer.commit(2)

    buckets = table.inspect.buckets()
    assert sorted(buckets.filter(partition="{x}")["bucket"]) == [0, 1, 2]


def test_verbs_find_rows_where_they_are() -> None:
    table = crossing()
    put(table, "1 a x | 2 b x | 3 c y")
    table.update({"p": "z"}, "id = 1")
    table.update({"v": "new"}, "id = 2")
    table.delete("id = 3")

    assert held(table) == "1 a z | 2 new x"
    assert set(table.inspect.partitions()["partition"]) == {"p=x", "p=y", "p=z"}
    merge = table.merge([{"id": 2, "v": "m", "p": "y"}, {"id": 9, "v": "m", "p": "x"}], on=["id"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert held(table) == "1 a z | 2 m y | 9 m x"
    partial = crossing(merge_engine="partial-update")
    put(partial, "1 a x")
    partial.update({"v": "b"}, "id = 1")
    assert held(partial) == "1 b x"
    with pytest.raises(Unsupported, match="stays in its partition"):
        partial.update({"p": "y"}, "id = 1")


def test_stream_keeps_its_index_from_checkpoint_to_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = crossing()
    opened: list[object] = []
    fill = CrossPartition._fill  # noqa: SLF001 - how often the keys are read

    def counted(self: CrossPartition, snapshot: Any) -> None:
        opened.append(snapshot)
        fill(self, snapshot)

    monkeypatch.setattr(CrossPartition, "_fill", counted)
    with table.new_stream_write("loader") as writer:
        for number, part in enumerate("xyzx"):
            writer.write([{"id": 1, "v": part, "p": part}, {"id": number, "v": "n", "p": part}])
            writer.prepare_commit(number)
            writer.commit(number)
            reopened(table).compact(full=True)

    assert len(opened) == 1
    assert held(table) == "0 n x | 1 x x | 2 n z | 3 n x"


def test_two_writers_conflict() -> None:
    table = crossing()
    put(table, "1 a x")
    store = MeddledStore(table.context.store, lambda: put(reopened(table), "2 theirs y"))
    with pytest.raises(CommitConflict, match="let one writer do it"):
        put(reopened(table, store=store), "2 mine x")

    assert held(table) == "1 a x | 2 theirs y"
    with reopened(table).new_write() as writer:
        writer.write([{"id": 5, "v": "a", "p": "x"}])
        messages = writer.prepare_commit()
    reopened(table).compact(full=True)
    table.commit(messages)
    assert held(table) == "1 a x | 2 theirs y | 5 a x"


def test_key_in_two_partitions_is_reported() -> None:
    table = crossing()
    put(table, "1 a x")
    nothing_known = read_start(table.context, None)
    with TableWrite(table.context, base=nothing_known) as writer:
        writer.write([{"id": 1, "v": "b", "p": "y"}])
        messages = writer.prepare_commit()
    with pytest.raises(CommitConflict):
        table.commit(messages)
    ttl = table.copy({"cross-partition-upsert.index-ttl": "1 ms"})
    ttl.context.ambient.sleep(1)
    put(ttl, "1 b y")

    assert held(table) == "1 a x | 1 b y"
    with pytest.raises(CorruptTable, match=r"a key is in two partitions.* key=\[1\]"):
        put(table, "3 c x")


def test_overwrite_of_the_whole_table_forgets_old_places() -> None:
    table = crossing()
    put(table, "1 a x | 2 b y")
    for arguments in ({}, {"partition": {"p": "x"}}):
        with pytest.raises(Unsupported, match="single partitions"):
            table.overwrite([{"id": 1, "v": "c", "p": "x"}], **arguments)  # type: ignore[arg-type]
    table.overwrite([{"id": 2, "v": "c", "p": "x"}, {"id": 2, "v": "d", "p": "y"}], dynamic=False)

    assert held(table) == "2 d y"


def test_what_would_lose_a_move_is_refused() -> None:
    with pytest.raises(Unsupported, match="ignores deletions"):
        put(crossing(ignore_delete="true"), "1 a x")
    char = new_table(
        {"id": "CHAR(3) NOT NULL", "p": "STRING"}, keys=["id"], partitions=["p"], bucket="-1"
    )
    with pytest.raises(Unsupported, match="CHAR"):
        put(char, "a x")
    with pytest.raises(InvalidRequest, match="no fixed number"):
        crossing().rescale(bucket_num=2)


def test_index_larger_than_its_memory_is_in_files() -> None:
    table = new_table(COLUMNS, keys=["id"], partitions=["p"], bucket="-1", budget_bytes=32 << 20)
    count = 200_000
    table.write({"id": list(range(count)), "v": ["a"] * count, "p": ["x"] * count})
    table.write(
        {"id": list(range(0, count, 2)), "v": ["b"] * (count // 2), "p": ["y"] * (count // 2)}
    )

    assert table.count() == count
    rows = table.to_polars().group_by("p", "v").len().sort("p")
    assert rows.rows() == [("x", "a", count // 2), ("y", "b", count // 2)]


def test_checkpoints_in_flight_know_each_others_moves() -> None:
    table = crossing()
    with table.new_stream_write("loader") as writer:
        for number, part in enumerate("xyz", 1):
            writer.write([{"id": 1, "v": part, "p": part}, {"id": number, "v": "n", "p": "q"}])
            writer.prepare_commit(number)
        writer.commit(3)
        writer.write([{"id": 1, "v": "last", "p": "x"}])
        writer.prepare_commit(4)
        writer.abort()
        writer.write([{"id": 1, "v": "end", "p": "y"}])
        writer.prepare_commit(5)
        writer.commit(5)

    assert held(table) == "1 end y | 2 n q | 3 n q"


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
@pytest.mark.parametrize("how", ["drop", "truncate", "roll back"])
def test_stream_reads_the_keys_again_after_rows_were_removed(engine: str, how: str) -> None:
    table = crossing(merge_engine=engine)
    put(table, "9 z z")
    with reopened(table).new_stream_write("loader") as writer:
        writer.write([{"id": 1, "v": "a", "p": "x"}])
        writer.prepare_commit(1)
        writer.commit(1)
        if how == "drop":
            reopened(table).drop_partition({"p": "x"})
        elif how == "truncate":
            reopened(table).truncate()
        else:
            reopened(table).rollback_to(1)
        writer.write([{"id": 1, "v": "b", "p": "y"}])
        writer.prepare_commit(2)
        writer.commit(2)
    reopened(table).compact(full=True)

    assert held(reopened(table), where="id = 1") == "1 b y"


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_removed_rows_conflict_if_the_place_of_their_keys_matters(engine: str) -> None:
    table = crossing(merge_engine=engine)
    put(table, "1 a x")
    store = MeddledStore(table.context.store, lambda: reopened(table).drop_partition({"p": "x"}))
    if engine == "deduplicate":
        put(reopened(table, store=store), "1 b y")
    else:
        with pytest.raises(CommitConflict, match="let one writer do it"):
            put(reopened(table, store=store), "1 b y")

    assert held(reopened(table)) == ("1 b y" if engine == "deduplicate" else "")
