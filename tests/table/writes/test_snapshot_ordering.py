"""`sequence.snapshot-ordering`: rows of later snapshots win, whatever numbers their files store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakecore.errors import Unsupported
from tests.stores import MeddledStore
from tests.tables import held, new_table, put, reopened, rows, with_options

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "partial-update": {"merge_engine": "partial-update"},
    "aggregation": {
        "merge_engine": "aggregation",
        "fields__a__aggregate_function": "last_non_null_value",
    },
    "lookup": {"changelog_producer": "lookup"},
    "first-row": {"merge_engine": "first-row"},
}


def ordered(**options: Any) -> Any:
    given = {"write_only": "true", "sequence__snapshot_ordering": "true", **options}
    given = {key.replace("snapshot_ordering", "snapshot-ordering"): v for key, v in given.items()}
    return new_table(COLUMNS, **given)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compacts", [False, True])
def test_later_commit_wins_though_its_numbers_are_smaller(engine: str, *, compacts: bool) -> None:
    table = ordered(**ENGINES[engine])
    with reopened(table).new_write() as early, reopened(table).new_write() as late:
        # The second writer numbers its rows 0 to 3; the first one only 0.
        early.write(rows(table.schema, "1 10 first"))
        late.write(rows(table.schema, "5 1 x | 6 1 x | 7 1 x"))
        late.write(rows(table.schema, "1 20 second"))
        messages = late.prepare_commit()
        second = early.prepare_commit()
    table.commit(messages)
    table.commit(second)
    if compacts or engine == "first-row":
        reopened(table).compact(full=True)

    wins = "1 20 second" if engine == "first-row" else "1 10 first"
    assert held(reopened(table), where="id = 1") == wins
    assert wins in held(reopened(table))
    put(reopened(table), "1 30 third")
    if compacts or engine == "first-row":
        reopened(table).compact(full=True)
    assert held(reopened(table), where="id = 1") == (
        wins if engine == "first-row" else "1 30 third"
    )


def test_new_files_have_the_snapshot_id_and_compacted_ones_their_rows_ids() -> None:
    table = ordered()
    put(table, "1 1 a | 2 1 a")
    put(table, "1 2 b")

    def numbers() -> list[tuple[int, int]]:
        files = reopened(table).inspect.files()
        return sorted(zip(files["min_sequence_number"], files["max_sequence_number"], strict=True))

    assert numbers() == [(1, 1), (2, 2)]
    table.compact(full=True)
    assert numbers() == [(1, 2)]
    put(reopened(table), "2 3 c")
    assert held(reopened(table)) == "1 2 b | 2 3 c"
    reopened(table).compact(full=True)
    assert numbers() == [(2, 4)]


def test_lost_race_gives_the_rows_another_number() -> None:
    table = ordered()
    store = MeddledStore(table.context.store, lambda: put(reopened(table), "1 1 theirs"))

    put(reopened(table, store=store), "1 2 ours")

    assert held(reopened(table)) == "1 2 ours"
    files = reopened(table).inspect.files()
    assert sorted(files["min_sequence_number"]) == [1, 2]
    manifests = {s["delta_manifest_list"] for s in table.inspect.snapshots().rows(named=True)}
    assert len(manifests) == 2


def test_many_rows_are_merged_alike_by_every_reader() -> None:
    table = ordered(bucket="2")
    with reopened(table).new_write() as early, reopened(table).new_write() as late:
        for writer, value, count in ((early, 1, 3_000), (late, 2, 9_000)):
            ids = pa.array(range(count), pa.int32())
            texts = [f"v{value}"] * count
            writer.write(
                pa.table({"id": ids, "a": pa.array([value] * count, pa.int32()), "b": texts})
            )
        messages = [late.prepare_commit(), early.prepare_commit()]
    for message in messages:
        table.commit(message)
    fresh = reopened(table)

    assert fresh.count("a = 1") == 3_000
    assert fresh.to_polars().filter(a=1).height == 3_000
    assert fresh.lookup({"id": [5, 5_000]}).sort("id")["a"].to_list() == [1, 2]
    fresh.compact(full=True)
    assert reopened(table).to_arrow().column("a").to_pylist().count(1) == 3_000


def test_table_without_the_option_is_not_changed() -> None:
    table = new_table(COLUMNS)
    put(table, "1 1 a | 2 1 a")
    with_options(table, write_only="true")

    assert reopened(table).inspect.files()["max_sequence_number"].to_list() == [1]


def test_file_that_does_not_say_what_wrote_it_is_unsupported() -> None:
    table = ordered()
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 1 a"))
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    table.commit([replace(message, new_files=(replace(file, file_source=None),))])
    put(table, "1 2 b")

    with pytest.raises(Unsupported, match="what wrote it"):
        held(reopened(table))


def test_postponed_rows_are_written_by_the_snapshot_that_moves_them() -> None:
    table = ordered(bucket="-2", postpone__default_bucket_num="1")
    for value in ("1 1 x | 2 1 x | 3 1 x", "1 2 y | 2 2 y | 3 2 y"):
        with reopened(table).new_write() as writer:
            writer.write(rows(table.schema, value))
            reopened(table).commit(writer.prepare_commit())
        reopened(table).compact()
    put(reopened(table), "1 3 z")

    assert sorted(reopened(table).inspect.files()["max_sequence_number"]) == [2, 4, 5]
    assert held(reopened(table)) == "1 3 z | 2 2 y | 3 2 y"


def test_another_index_does_not_change_the_numbers_of_rows() -> None:
    table = ordered()
    put(table, "1 1 old")
    put(table, "1 2 new")
    with_options(table, **{"file-index.bloom-filter.columns": "a"})
    table = reopened(table)

    assert table.rewrite_file_index().files == 2
    assert sorted(reopened(table).inspect.files()["max_sequence_number"]) == [1, 2]
    assert held(reopened(table)) == "1 2 new"
