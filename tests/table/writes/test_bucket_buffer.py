"""Buffers that are too small: runs spill to disk, and what comes out is the same."""

from __future__ import annotations

import random
import tempfile
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.io.files.data_files import read_file
from lakecore.io.spill import SpillDirectory
from lakecore.model.rows import KIND_TEXTS, ROW_KIND
from lakecore.table.run_writer.file_shape import changelog_shape, data_shape
from lakecore.table.sections import windows
from lakecore.table.writes import bucket_buffer
from lakecore.testing import apply_changes
from tests.tables import held, new_table, rows, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.io.spill import SpilledRun
    from lakecore.model.files import CommitMessage
    from lakecore.table.handle import Table

TINY: dict[str, Any] = {"write_buffer_size": "1 b"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, empty again at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def history(seed: int, batches: int) -> list[pa.Table]:
    """Batches of rows whose keys meet again."""
    chance = random.Random(seed)
    return [
        pa.table(
            {
                "id": pa.array([chance.randrange(50) for _ in range(size)], pa.int32()),
                "v": pa.array([f"{batch}.{row}" for row in range(size)], pa.string()),
                ROW_KIND: pa.array([chance.choice(KIND_TEXTS) for _ in range(size)], pa.string()),
            }
        )
        for batch in range(batches)
        for size in [chance.randrange(20)]
    ]


def newest(batches: list[pa.Table]) -> str:
    """The rows that the batches leave."""
    return shown(apply_changes(pa.concat_tables(batches), ["id"], exact=False))


def write_all(table: Table, batches: list[pa.Table]) -> list[CommitMessage]:
    with table.new_write() as writer:
        for batch in batches:
            writer.write(batch)
        messages = writer.prepare_commit()
    table.commit(messages)
    return messages


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket": "3"},
        {"bucket": "-1", "dynamic_bucket__target_row_num": "20"},
        {"changelog_producer": "input"},
        {"target_file_size": "1 b"},
        {"write_buffer_spillable": "false"},
    ],
    ids=lambda options: " ".join(options.values()) or "one bucket",
)
@pytest.mark.parametrize("runs_merged", [2, 3, 16])
def test_rows_that_spill_are_the_rows_that_come_out(
    options: dict[str, Any], runs_merged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_buffer, "RUNS_MERGED", runs_merged)
    monkeypatch.setattr("lakecore.table.writes.write.UNLEASED_BYTES", 0)
    table = new_table(**{**TINY, **options})
    batches = history(seed=runs_merged, batches=40)
    messages = write_all(table, batches)

    assert held(table) == newest(batches)
    assert table.context.budget.used_bytes == 0
    if "write_buffer_spillable" not in options and "target_file_size" not in options:
        assert {len(message.new_files) for message in messages} == {1}


def test_spilled_rows_are_one_run_in_key_order() -> None:
    table = new_table(**TINY, target_file_size="1 b", file__format="avro")
    (message,) = write_all(table, history(seed=1, batches=30))
    ranges = [(file.key_min, file.key_max) for file in message.new_files]

    assert message.new_files[-1].level == 0
    assert len({file.name for file in message.new_files}) == len(ranges)
    keys = [int.from_bytes(key[12:16], "little") for pair in ranges for key in pair]
    assert keys == sorted(keys)


def test_buffer_that_may_not_spill_becomes_a_run_a_flush() -> None:
    table = new_table(**TINY, write_buffer_spillable="false")
    (message,) = write_all(
        table, [rows(table.schema, line) for line in ("1 a | 2 a", "1 b", "2 c")]
    )
    ranges = [(file.sequence_min, file.sequence_max) for file in message.new_files]

    assert ranges == [(0, 1), (2, 2), (3, 3)]
    assert held(table) == "1 b | 2 c"


def test_user_sequence_decides_across_spilled_runs() -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = new_table(columns, **TINY, sequence__field="n")
    lines = ("1 a 5 | 2 a 1", "1 b 3 | 2 b 1", "1 c _ | 2 c _", "-D 1 d 4")
    write_all(table, [rows(table.schema, line) for line in lines])

    assert held(table) == "1 a 5 | 2 b 1"


FOLDED = {"id": "INT NOT NULL", "g": "INT", "a": "STRING", "n": "BIGINT", "t": "STRING"}
FOLDS: dict[str, dict[str, Any]] = {
    "partial-update by groups": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "a,n,t",
        "fields.n.aggregate-function": "sum",
        "fields.t.aggregate-function": "listagg",
        "fields.t.ignore-retract": "true",
    },
    "partial-update by groups that remove": {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "a,n",
        "fields.n.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "g",
    },
    "partial-update without groups": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "sequence.field": "g",
        "fields.a.aggregate-function": "last_value",
        "fields.n.aggregate-function": "sum",
        "fields.t.aggregate-function": "listagg",
        "fields.t.ignore-retract": "true",
    },
    "aggregation that removes": {
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.a.aggregate-function": "last_value",
        "fields.n.aggregate-function": "product",
        "fields.t.aggregate-function": "last_non_null_value",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true", "write-only": "true"},
    "deduplicate": {"merge-engine": "deduplicate", "sequence.field": "g"},
}


def stored(table: Table, messages: list[CommitMessage]) -> list[dict[str, Any]]:
    """The rows of the data files, as they lie."""
    fields = data_shape(table.schema, table.options).physical_fields
    found = []
    for message in messages:
        for file in message.new_files:
            path = table.context.layout.file_in_bucket("", message.bucket, file.name)
            for batch in read_file(table.context.store, path, fields=fields):
                found += batch.to_pylist()
    return found


def folded_history(seed: int, keys: int) -> list[pa.Table]:
    """Batches of rows of `FOLDED`: null and late sequences, rows taken back."""
    chance = random.Random(seed)
    return [
        pa.table(
            {
                "id": pa.array([chance.randrange(keys) for _ in range(size)], pa.int32()),
                "g": pa.array([chance.choice([None, *range(9)]) for _ in range(size)], pa.int32()),
                "a": pa.array([chance.choice([None, "x", "y"]) for _ in range(size)], pa.string()),
                "n": pa.array([chance.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
                "t": pa.array([chance.choice([None, "t", "u"]) for _ in range(size)], pa.string()),
                ROW_KIND: pa.array([chance.choice(KIND_TEXTS) for _ in range(size)], pa.string()),
            }
        )
        for _ in range(20)
        for size in [chance.randrange(9)]
    ]


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("seed", range(4))
def test_memory_does_not_decide_what_rows_are_folded_to(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = FOLDS[name]
    batches = folded_history(seed, keys=[1, 3, 20, 60][seed])
    roomy = new_table(FOLDED, **options)
    wanted = stored(roomy, write_all(roomy, batches))
    monkeypatch.setattr(bucket_buffer, "RUNS_MERGED", 2 + seed)
    monkeypatch.setattr(bucket_buffer, "_PIECE_ROWS", 1 + seed)
    narrow = new_table(FOLDED, **options, **TINY)
    found = stored(narrow, write_all(narrow, batches))

    assert len(wanted) > 0
    assert found == wanted


def test_rows_are_not_folded_before_all_are_there() -> None:
    """Each older row goes before what is held when it comes, not before its neighbour alone."""
    table = new_table(
        {"id": "INT NOT NULL", "g": "INT", "t": "STRING"},
        **TINY,
        merge_engine="partial-update",
        fields__g__sequence_group="t",
        fields__t__aggregate_function="listagg",
    )
    lines = ("1 5 c", "1 1 a | 1 3 b | 2 _ lone")
    write_all(table, [rows(table.schema, line) for line in lines])

    assert held(table) == "1 5 b,a,c | 2 _ lone"


def test_key_may_have_more_rows_than_a_piece_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_buffer, "_PIECE_ROWS", 3)
    monkeypatch.setattr(bucket_buffer, "RUNS_MERGED", 4)
    table = new_table(
        {"id": "INT NOT NULL", "n": "BIGINT"},
        **TINY,
        merge_engine="aggregation",
        fields__n__aggregate_function="sum",
    )
    line = " | ".join(["1 1", *["2 1"] * 50, "3 1"])
    write_all(table, [rows(table.schema, line)] * 10)

    assert held(table) == "1 10 | 2 500 | 3 10"


@pytest.mark.parametrize("fields", [{}, {"merge_engine": "aggregation"}])
def test_key_has_no_more_rows_than_merging_them_has_room_for(fields: dict[str, Any]) -> None:
    table = new_table({"id": "INT NOT NULL", "n": "INT"}, budget_bytes=16 << 20, **fields)
    rows_of_a_key = (pa.table({"id": [1] * 10_000, "n": range(10_000)}) for _ in range(40))
    if fields:
        with pytest.raises(InvalidRequest, match="one key has more rows than"):
            table.write(rows_of_a_key)
        assert held(table) == ""
    else:
        table.write(rows_of_a_key)
        assert held(table) == "1 9999"


def test_of_narrow_rows_a_buffer_counts_what_ordering_them_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spilled: list[int] = []
    write = SpillDirectory.write

    def noted(*given: Any, **named: Any) -> SpilledRun:
        run = write(*given, **named)
        spilled.append(run.row_count)
        return run

    monkeypatch.setattr(SpillDirectory, "write", noted)
    table = new_table({"id": "INT NOT NULL", "n": "INT"}, budget_bytes=16 << 20)
    batches = (
        pa.table({"id": range(at, at + 10_000), "n": [0] * 10_000})
        for at in range(0, 200_000, 10_000)
    )
    table.write(batches)

    assert spilled
    assert max(spilled) <= (16 << 20) / 100


def test_spilled_runs_are_gone_after_each_prepare(place: Path) -> None:
    table = new_table(**TINY)
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 a"))
        assert len(list(place.rglob("*.arrow"))) == 1
        table.commit(writer.prepare_commit())
        assert list(place.rglob("*.arrow")) == []
        writer.write(rows(table.schema, "2 b"))
        table.commit(writer.prepare_commit())

    assert held(table) == "1 a | 2 b"


def test_merging_holds_a_bounded_number_of_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_buffer, "RUNS_MERGED", 3)
    table = new_table(**TINY)
    with table.new_write() as writer:
        for number in range(30):
            writer.write(rows(table.schema, f"{number % 7} v{number}"))
            assert len(list(place.rglob("*.arrow"))) <= 2 * 4
        table.commit(writer.prepare_commit())

    assert held(table) == " | ".join(
        f"{number % 7} v{number}" for number in (28, 29, *range(23, 28))
    )


def test_windows_of_a_few_rows_give_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_BATCH_ROWS_MAX", 3)
    monkeypatch.setattr(bucket_buffer, "_PIECE_ROWS", 2)
    table = new_table(**TINY)
    batches = history(seed=5, batches=25)
    write_all(table, batches[:12])
    write_all(table, batches[12:])

    assert held(table) == newest(batches)


def changelog(table: Table, message: CommitMessage) -> list[str]:
    """The rows of the changelog files in order, as `+I 1 a`."""
    fields = changelog_shape(table.schema, table.options).physical_fields
    lines = []
    for file in message.changelog_files:
        path = table.context.layout.file_in_bucket("", message.bucket, file.name)
        for batch in read_file(table.context.store, path, fields=fields):
            for row in batch.select(["_VALUE_KIND", *table.schema.names]).to_pylist():
                kind, *values = row.values()
                lines.append(" ".join([KIND_TEXTS[kind], *map(str, values)]))
    return lines


def test_changelog_holds_every_row_in_the_order_of_merging() -> None:
    table = new_table(changelog_producer="input")
    (message,) = write_all(
        table, [rows(table.schema, "2 a | 1 b | 2 c"), rows(table.schema, "-D 2 c | 1 d")]
    )

    assert changelog(table, message) == ["+I 1 b", "+I 1 d", "+I 2 a", "+I 2 c", "-D 2 c"]
    assert [file.row_count for file in message.new_files] == [2]


@pytest.mark.parametrize(
    ("direction", "wanted"),
    [("ascending", "c b d a"), ("descending", "c a b d")],
)
def test_changelog_of_a_key_follows_the_users_sequence(direction: str, wanted: str) -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = new_table(
        columns,
        changelog_producer="input",
        sequence__field="n",
        sequence__field__sort_order=direction,
    )
    (message,) = write_all(table, [rows(table.schema, "1 a 5 | 1 b 3 | 1 c _ | 1 d 3")])

    assert " ".join(line.split()[2] for line in changelog(table, message)) == wanted


@pytest.mark.parametrize("runs_merged", [2, 16])
def test_changelog_has_that_order_across_buffers_that_spilled(
    runs_merged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_buffer, "RUNS_MERGED", runs_merged)
    monkeypatch.setattr(bucket_buffer, "_PIECE_ROWS", 2)
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = new_table(columns, **TINY, changelog_producer="input", sequence__field="n")
    lines = ("2 a 5 | 1 b 3", "-D 2 c 4 | 2 d 1", "1 e 2", "2 f 5 | 1 g 1")
    (message,) = write_all(table, [rows(table.schema, line) for line in lines])
    wanted = "+I 1 g 1|+I 1 e 2|+I 1 b 3|+I 2 d 1|-D 2 c 4|+I 2 a 5|+I 2 f 5"

    assert "|".join(changelog(table, message)) == wanted
    assert (len(message.new_files), len(message.changelog_files)) == (1, 1)
    assert held(table) == "1 b 3 | 2 f 5"


def test_past_the_disk_that_spilling_may_take_a_run_is_written(place: Path) -> None:
    table = new_table(**TINY, write_buffer_spill__max_disk_size="1 b", changelog_producer="input")
    with table.new_write() as writer:
        for line in ("1 a", "1 b | 2 b", "1 c", "2 d", "3 e"):
            writer.write(rows(table.schema, line))
            assert len(list(place.rglob("*.arrow"))) <= 1
        (message,) = writer.prepare_commit()
    table.commit([message])
    ranges = [(file.sequence_min, file.sequence_max) for file in message.new_files]

    assert ranges == [(1, 2), (3, 4), (5, 5)]
    assert [file.row_count for file in message.changelog_files] == [3, 2, 1]
    assert held(table) == "1 c | 2 d | 3 e"


def test_overwriting_keeps_no_changelog() -> None:
    table = new_table(changelog_producer="input")
    write_all(table, [rows(table.schema, "1 a")])
    table.overwrite(rows(table.schema, "2 b"))
    names = [status.path for status in table.context.store.list(f"{table.path}/bucket-0")]

    assert sum("changelog" in name for name in names) == 1
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is None


def test_append_table_writes_on_when_its_buffer_is_full() -> None:
    table = new_table(keys=[], **TINY)
    (message,) = write_all(table, [rows(table.schema, line) for line in ("2 a", "1 b", "2 c")])

    assert [(f.row_count, f.sequence_min, f.sequence_max) for f in message.new_files] == [(3, 0, 2)]
    assert table.to_arrow()["v"].to_pylist() == ["a", "b", "c"]


def test_small_buffers_need_no_lease_while_others_hold_the_budget(place: Path) -> None:
    table = new_table(budget_bytes=64 << 20)
    with table.context.budget.acquire(64 << 20), table.new_write() as writer:
        for number in range(20):
            writer.write(rows(table.schema, f"{number} a"))
        assert list(place.iterdir()) == []
        table.commit(writer.prepare_commit())

    assert held(table).count("a") == 20


def test_memory_for_rows_is_bounded_by_the_budget(place: Path) -> None:
    table = new_table(budget_bytes=1 << 20)
    batch = pa.table({"id": pa.array(range(20_000), pa.int32()), "v": ["x" * 10] * 20_000})
    with table.new_write() as writer:
        for _ in range(4):
            writer.write(batch)
        assert len(list(place.rglob("*.arrow"))) >= 3
        table.commit(writer.prepare_commit())

    assert table.to_arrow().num_rows == 20_000


def test_small_pieces_of_large_batches_do_not_keep_the_batches_in_memory() -> None:
    table = new_table(write_only="true")
    before = pa.total_allocated_bytes()
    with table.new_write() as writer:
        for start in range(0, 64_000, 1_000):
            ids = pa.array(range(start, start + 1_000), pa.int32())
            batch = pa.table({"id": ids, "v": pa.array(["x" * 1_000] * 1_000)})
            writer.write(batch.slice(0, 1))
            del ids, batch
        kept = pa.total_allocated_bytes() - before
        table.commit(writer.prepare_commit())

    assert kept < 40 * 1_000_000
    assert table.to_arrow().num_rows == 64


COLLECTS: dict[str, Any] = {
    "merge_engine": "aggregation",
    "fields__v__aggregate_function": "collect",
    "write_only": "true",
}
LISTS = {"id": "INT NOT NULL", "v": "ARRAY<INT>"}


def pairs(*values: int) -> list[dict[str, Any]]:
    """Updates of a key from each value to the next one."""
    return [
        {ROW_KIND: kind, "id": 1, "v": [value]}
        for before, after in pairwise(values)
        for kind, value in (("-U", before), ("+U", after))
    ]


@pytest.mark.parametrize("options", [{}, TINY, {"changelog_producer": "input"}])
def test_update_pairs_of_one_write_are_those_of_many(options: dict[str, Any]) -> None:
    table = new_table(LISTS, **COLLECTS, **options)
    table.write([{"id": 1, "v": [10, 5]}, {"id": 2, "v": [1]}])

    with table.new_write() as writer:
        for row in pairs(10, 12, 13, 14, 15, 16, 17, 18):
            writer.write([row])
        table.commit(writer.prepare_commit())
    table.write([*pairs(18, 19), {ROW_KIND: "+I", "id": 3, "v": [3]}])

    shown = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert shown == {1: [5, 19], 2: [1], 3: [3]}
    table.compact(full=True)
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == shown


def test_rows_that_stay_apart_go_to_one_run_each() -> None:
    table = new_table(LISTS, **COLLECTS)

    added = [{ROW_KIND: "+I", "id": 2, "v": [value]} for value in (1, 2)]

    table.write([*pairs(1, 2), *added])

    files = table.inspect.files()
    assert files["record_count"].to_list() == [2, 1]
    assert files["max_sequence_number"].to_list() == [3, 1]


def test_removal_before_other_rows_of_a_write_removes_the_older_record() -> None:
    sums = {**COLLECTS, "fields__v__aggregate_function": "sum"}
    sums["aggregation__remove_record_on_delete"] = "true"
    table = new_table({"id": "INT NOT NULL", "v": "INT"}, **sums)
    table.write([{"id": 1, "v": 100}])

    table.write([{ROW_KIND: "-D", "id": 1, "v": None}, {ROW_KIND: "+I", "id": 1, "v": 5}])

    assert held(table) == "1 5"
