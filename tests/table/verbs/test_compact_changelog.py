"""Compactions that tell what they changed, and that look up what lies above their output.

Changes are shown as a line: `"-U 1 a | +U 1 b"`, in the order of the changelog.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CorruptTable
from lakecore.io.files.file_format import WriteFormat
from lakecore.model.files import FileSource
from lakecore.model.rows import ROW_KIND
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import files_by_bucket, plan_bucket
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage, DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.table.handle import Table

VALUES = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}


def live(table: Table) -> list[ManifestEntry]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return list(table.context.history.live_entries(snapshot))


def levels(table: Table) -> list[int]:
    return sorted(entry.file.level for entry in live(table))


def told(table: Table, snapshot_id: int | None) -> str:
    """What a snapshot tells those who follow the table."""
    assert snapshot_id is not None
    changes = table.changes(snapshot_id - 1, snapshot_id).collect().to_arrow()
    columns = [changes.column(name).to_pylist() for name in (ROW_KIND, *table.schema.names)]
    lines = zip(*columns, strict=True)
    return " | ".join(" ".join("_" if v is None else str(v) for v in line) for line in lines)


def changelog_files(table: Table) -> list[DataFile]:
    """The changelog files of the newest snapshot."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    assert snapshot.changelog_manifest_list is not None
    entries = history.entries(history.manifest_list(snapshot.changelog_manifest_list))
    assert snapshot.changelog_record_count == sum(entry.file.row_count for entry in entries)
    return [entry.file for entry in entries]


def large(table: Table, count: int = 3000) -> None:
    """Fill the last level with so many rows that compactions leave it where it is."""
    put(table, " | ".join(f"{number} 0 old" for number in range(count)))
    table.compact(full=True)


def compacted(table: Table, text: str, **options: Any) -> str:
    """Write the line, compact as it is time for, and show what was told."""
    put(table, text)
    return told(table, table.compact(**options).snapshot_id)


# --- lookup -------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_last_level_tells_new_keys_and_what_became_of_old_ones(producer: str) -> None:
    table = new_table(changelog_producer=producer, write_only="true")

    assert compacted(table, "1 a | 2 b | -D 9 x", full=True) == "+I 1 a | +I 2 b"
    assert compacted(table, "1 a | -D 2 b | 3 c | -D 8 x", full=True) == (
        "-U 1 a | +U 1 a | -D 2 b | +I 3 c"
    )
    assert compacted(table, "2 again", full=True) == "+I 2 again"
    assert levels(table) == [5]


def test_full_compaction_tells_nothing_below_the_last_level() -> None:
    table = new_table(
        VALUES,
        changelog_producer="full-compaction",
        num_sorted_run__compaction_trigger="2",
        num_levels="5",
        write_only="true",
    )
    large(table)
    put(table, "1 1 x")
    put(table, "1 2 y")
    done = table.compact()

    assert levels(table) == [3, 4]
    assert told(table, done.snapshot_id) == ""
    assert told(table, table.compact(full=True).snapshot_id) == "-U 1 0 old | +U 1 2 y"


def test_rows_of_before_are_looked_up_above_the_output() -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true")
    large(table)

    assert compacted(table, "7 1 x | 5000 1 n | -D 8 _ _") == (
        "-U 7 0 old | +U 7 1 x | -D 8 0 old | +I 5000 1 n"
    )
    assert compacted(table, "7 2 y | 8 2 y | 9 2 y") == (
        "-U 7 1 x | +U 7 2 y | +I 8 2 y | -U 9 0 old | +U 9 2 y"
    )
    assert levels(table)[-1] == 5
    assert levels(table)[0] > 0
    assert held(table, where="id < 10 or id > 2999") == (
        "0 0 old | 1 0 old | 2 0 old | 3 0 old | 4 0 old | 5 0 old | 5000 1 n | 6 0 old | 7 2 y"
        " | 8 2 y | 9 2 y"
    )


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_rows_are_looked_up_in_every_format_and_window(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=100),
    )
    monkeypatch.setattr("lakecore.table.sections.windows._BATCH_ROWS_MAX", 7)
    table = new_table(
        VALUES, changelog_producer="lookup", file__format=file_format, write_only="true"
    )
    large(table, 1000)
    keys = [*range(40), *range(95, 205, 5), 700, 999, 1000, 2000]

    found = compacted(table, " | ".join(f"{key} 1 new" for key in keys))

    assert found == " | ".join(
        f"-U {key} 0 old | +U {key} 1 new" if key < 1000 else f"+I {key} 1 new" for key in keys
    )


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("STRING", ["", "a", "b", "ba", "ä", "z"]),
        ("DOUBLE", [-1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
        ("DECIMAL(30, 2)", [-3, -1, 0, 1, 7]),
        ("BOOLEAN", [False, True]),
    ],
)
def test_rows_are_looked_up_by_keys_of_every_order(kind: str, keys: list[Any]) -> None:
    columns = {"k": f"{kind} NOT NULL", "n": "INT NOT NULL", "v": "STRING"}
    table = new_table(columns, keys=("k", "n"), changelog_producer="lookup", write_only="true")

    def put_all(numbers: range, text: str) -> None:
        pairs = [(key, number) for key in keys for number in numbers]
        data = {
            "k": pa.array([key for key, _ in pairs]).cast(table.schema.arrow.field("k").type),
            "n": pa.array([number for _, number in pairs], pa.int32()),
            "v": [text] * len(pairs),
        }
        table.write(pa.table(data))

    put_all(range(1000), "old")
    table.compact(full=True)
    put_all(range(999, 1001), "new")
    found = table.compact().snapshot_id

    assert found is not None
    assert sorted(levels(table)) == [4, 5]
    changes = table.changes(found - 1, found).collect()
    counts = changes.group_by(ROW_KIND, "n", "v").len().sort(ROW_KIND, "n").rows()
    assert counts == [
        ("+I", 1000, "new", len(keys)),
        ("+U", 999, "new", len(keys)),
        ("-U", 999, "old", len(keys)),
    ]


def test_row_of_the_lowest_level_is_the_one_of_before() -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true")
    large(table)
    for number, count in enumerate((1000, 300, 30)):
        compacted(table, " | ".join(f"{key} {number} v{number}" for key in range(count)))

    assert len(levels(table)) > 2
    assert compacted(table, "1 9 new | 298 9 new | 2000 9 new") == (
        "-U 1 2 v2 | +U 1 9 new | -U 298 1 v1 | +U 298 9 new | -U 2000 0 old | +U 2000 9 new"
    )


ENGINES: dict[str, dict[str, Any]] = {
    "partial-update": {"merge_engine": "partial-update"},
    "aggregation": {"merge_engine": "aggregation", "fields__a__aggregate_function": "sum"},
    "deduplicate by sequence": {"sequence__field": "a"},
}


@pytest.mark.parametrize(
    ("engine", "changes", "row"),
    [
        ("partial-update", "-U 7 0 old | +U 7 5 old", "7 5 old"),
        ("aggregation", "-U 7 0 old | +U 7 5 old", "7 5 old"),
        ("deduplicate by sequence", "-U 7 0 old | +U 7 5 _", "7 5 _"),
    ],
)
def test_rows_of_level_0_are_merged_with_those_above(engine: str, changes: str, row: str) -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true", **ENGINES[engine])
    large(table)

    assert compacted(table, "7 5 _") == changes
    assert held(table, where="id = 7") == row


def test_row_above_may_win_by_its_sequence() -> None:
    table = new_table(VALUES, changelog_producer="lookup", sequence__field="a", write_only="true")
    put(table, " | ".join(f"{key} 9 old" for key in range(3000)))
    table.compact(full=True)

    assert compacted(table, "7 5 late | 8 _ late") == (
        "-U 7 9 old | +U 7 9 old | -U 8 9 old | +U 8 9 old"
    )
    assert held(table, where="id in (7, 8)") == "7 9 old | 8 9 old"


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_that_look_up_without_a_changelog_tell_nothing(engine: str) -> None:
    table = new_table(VALUES, force_lookup="true", write_only="true", **ENGINES[engine])
    large(table)
    put(table, "7 5 _")
    before = held(table)

    table.compact()

    assert levels(table) == [4, 5]
    assert held(table) == before
    assert table.inspect.snapshots()["changelog_record_count"].sum() == 0


# --- rows that have not changed -----------------------------------------------------------------


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_equal_rows_are_told_only_without_row_deduplicate(producer: str) -> None:
    options: dict[str, Any] = {"changelog_producer": producer, "write_only": "true"}
    plain = new_table(VALUES, **options)
    strict = new_table(VALUES, changelog_producer__row_deduplicate="true", **options)
    loose = new_table(
        VALUES,
        changelog_producer__row_deduplicate="true",
        changelog_producer__row_deduplicate_ignore_fields="a",
        **options,
    )
    found = []
    for table in (plain, strict, loose):
        compacted(table, "1 1 x | 2 1 x | 3 _ _", full=True)
        found.append(compacted(table, "1 1 x | 2 2 x | 3 _ _", full=True))

    assert found == [
        "-U 1 1 x | +U 1 1 x | -U 2 1 x | +U 2 2 x | -U 3 _ _ | +U 3 _ _",
        "-U 2 1 x | +U 2 2 x",
        "",
    ]


# --- first-row ----------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", ["lookup", "none"])
def test_first_rows_are_seen_and_told_once(producer: str) -> None:
    table = new_table(
        VALUES, merge_engine="first-row", changelog_producer=producer, write_only="true"
    )
    large(table)
    put(table, "7 1 x | 5000 1 n")
    assert held(table, where="id in (7, 5000)") == "7 0 old"

    done = table.compact()

    assert levels(table) == [4, 5]
    assert held(table, where="id in (7, 5000)") == "5000 1 n | 7 0 old"
    assert sorted(entry.file.row_count for entry in live(table)) == [1, 3000]
    if producer == "lookup":
        assert told(table, done.snapshot_id) == "+I 5000 1 n"
        assert compacted(table, "5000 2 m", full=True) == ""


def test_what_a_first_row_table_has_shown_stays_whatever_numbers_another_writer_gives() -> None:
    table = new_table(
        VALUES, merge_engine="first-row", changelog_producer="lookup", write_only="true"
    )
    other = reopened(table).new_write()
    other.write(rows(table.schema, "1 2 late | 2 2 new"))
    messages = other.prepare_commit()
    for text in ("5 5 x", "1 1 shown"):
        put(table, text)
    table.compact(full=True)
    table.commit(messages)

    assert told(table, table.compact(full=True).snapshot_id) == "+I 2 2 new"
    assert held(table) == "1 1 shown | 2 2 new | 5 5 x"


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("producer", "level"), [("lookup", 4), ("full-compaction", 5)])
def test_changelog_files_have_the_level_and_numbers_of_what_they_show(
    producer: str, level: int
) -> None:
    table = new_table(VALUES, changelog_producer=producer, write_only="true")
    large(table)
    put(table, "7 1 x | -D 8 _ _ | 5000 1 n")
    table.compact(full=producer == "full-compaction")

    (file,) = changelog_files(table)

    assert (file.level, file.file_source) == (level, FileSource.APPEND)
    assert (file.row_count, file.delete_row_count) == (4, 2)
    assert (file.sequence_min, file.sequence_max) == (7, 3002)
    assert file.name.startswith("changelog-")
    assert {file.name for file in changelog_files(table)} <= in_directory(table, "bucket-0")


def test_changelog_files_follow_their_options_else_those_of_their_level() -> None:
    plain = new_table(
        changelog_producer="lookup",
        file__format__per__level="5:orc",
        file__compression__per__level="5:snappy",
        file__suffix__include__compression="true",
    )
    own = new_table(
        changelog_producer="lookup",
        changelog_file__format="avro",
        changelog_file__prefix="told-",
        changelog_file__stats_mode="none",
        file__format__per__level="5:orc",
    )
    for table in (plain, own):
        put(table, "1 a")

    assert [file.name.partition(".")[2] for file in changelog_files(plain)] == ["snappy.orc"]
    (file,) = changelog_files(own)
    assert file.format == "avro"
    assert file.name.startswith("told-")
    assert file.value_stats.null_counts in ((None, None), None, ())


@pytest.mark.parametrize(
    ("options", "upgraded"),
    [
        ({}, 1),
        ({"sequence__field": "a"}, 0),
        ({"merge_engine": "partial-update"}, 0),
        ({"merge_engine": "first-row"}, 0),
        ({"file__format__per__level": "0:avro"}, 0),
    ],
)
def test_file_moves_up_as_it_is_where_its_rows_cannot_have_changed(
    options: dict[str, Any], upgraded: int
) -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true", **options)
    large(table)
    put(table, "7 1 x | 5000 1 n")

    assert table.compact().files_upgraded == upgraded
    assert levels(table) == [4, 5]


def test_file_that_is_older_than_a_row_above_is_merged_with_it() -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true")
    large(table)
    other = reopened(table).new_write()
    other.write(rows(table.schema, "7 1 other"))
    messages = other.prepare_commit()
    compacted(table, "6 2 mine | 7 2 mine", full=True)
    table.commit(messages)
    before = held(table, where="id = 7")

    assert told(table, table.compact().snapshot_id) == "-U 7 2 mine | +U 7 2 mine"
    assert (held(table, where="id = 7"), before) == ("7 2 mine", "7 2 mine")


# --- others meanwhile ---------------------------------------------------------------------------


def by_hand(table: Table) -> list[CommitMessage]:
    """A compaction of all buckets as it is time for, made but not committed."""
    entries = live(table)
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    plans = [
        plan_bucket(table.context, bucket, {}, full=False)
        for bucket in files_by_bucket(entries, snapshot.id)
    ]
    return [compact_bucket(table.context, plan, lambda _: None) for plan in plans if plan]


def test_compaction_whose_rows_above_have_changed_is_a_conflict() -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true")
    large(table)
    compacted(table, " | ".join(f"{key} 1 x" for key in range(0, 600, 2)))
    assert levels(table) == [4, 5]
    put(table, "1 2 mine")
    mine = by_hand(table)
    assert [file.level for message in mine for file in message.compact_after] == [3]
    theirs = replace(mine[0], compact_before=(), compact_after=(), compact_changelog_files=())
    upper = next(entry.file for entry in live(table) if entry.file.level == 4)
    moved = replace(
        theirs,
        compact_before=(upper,),
        compact_after=(replace(upper, name="data-other-0.parquet"),),
        compact_unchanged=None,
    )
    commit(table.context, CommitRequest(messages=[moved], user="other"))

    with pytest.raises(CommitConflict, match="looked up"):
        commit(table.context, CommitRequest(messages=mine, user="me"))


def test_missing_file_above_the_output_is_corrupt_and_changes_nothing() -> None:
    table = new_table(VALUES, changelog_producer="lookup", write_only="true")
    large(table)
    (upper,) = live(table)
    put(table, "7 1 x")
    there = in_directory(table, "bucket-0")
    path = f"{table.path}/bucket-0/{upper.file.name}"
    table.context.store.delete(path)

    with pytest.raises(CorruptTable, match="missing"):
        table.compact()

    assert in_directory(table, "bucket-0") == there - {upper.file.name}
    assert table.context.budget.used_bytes == 0
