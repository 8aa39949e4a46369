"""Values without a cast matter where they come out, and nowhere else."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore import memory
from lakecore.errors import InvalidRequest
from lakecore.memory import Share
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.table.file_reader import late_casts
from lakecore.table.file_reader.late_casts import may_be_unread
from lakecore.table.publication import write_schema
from lakecore.table.reads.source import TableSource
from lakecore.table.sections import windows
from tests.tables import changed, held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

VALUES = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
CHOOSING = ["deduplicate", "first-row"]
FOLDING = ["partial-update", "aggregation"]
NO_CAST = "a stored value cannot be cast"


def evolved(table: Table, *changes: Change) -> Table:
    """The table after changes of its schema."""
    context = reopened(table).context
    schema = evolve(context.schema, changes, now_ms=0, has_snapshots=True)
    assert write_schema(context.store, context.layout, schema)
    return reopened(table)


def to_int(table: Table, column: str = "v") -> Table:
    return evolved(table, SchemaChange.update_column_type(column, "INT"))


def with_hidden_value(engine: str = "deduplicate", **options: Any) -> Table:
    """A table of which key 1 has a text without a cast that another row hides."""
    table = new_table(VALUES, write_only="true", merge_engine=engine, **options)
    if engine == "first-row":
        put(table, "1 7 1 | 2 5 1")
        put(table, "1 abc 2")
        return to_int(table)
    put(table, "1 abc 1 | 2 5 1")
    table = to_int(table)
    put(table, "1 7 2")
    return table


@pytest.mark.parametrize(
    ("options", "unread"),
    [
        ({}, set()),
        ({"sequence__field": "n"}, {"n"}),
        ({"merge_engine": "partial-update"}, set()),
        (
            {"merge_engine": "aggregation", "fields__n__aggregate_function": "sum"},
            {"n"},
        ),
    ],
)
def test_values_that_a_merge_looks_at_may_be_read_as_flags(
    options: dict[str, Any], unread: set[str]
) -> None:
    table = new_table(VALUES, **options)
    put(table, "1 a 1")
    context = table.context
    source = TableSource(
        context=context, snapshot=context.history.latest_snapshot(), table_schema=context.schema
    )
    plan = source.read_plan(tuple(source.plan().splits), None)

    assert {name for name in VALUES if may_be_unread(name, plan)} == unread


@pytest.mark.parametrize("engine", CHOOSING)
def test_hidden_value_needs_no_cast(engine: str) -> None:
    table = with_hidden_value(engine)
    row = "1 7 1" if engine == "first-row" else "1 7 2"

    if engine == "deduplicate":
        assert held(table) == f"{row} | 2 5 1"
        assert held(table, columns=["v"]) == "5 | 7"
        assert held(table, where="v > 6") == row

    table.compact(full=True)

    assert held(table) == f"{row} | 2 5 1"


@pytest.fixture
def every_row_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE_LEAST_BYTES", 0)
    monkeypatch.setattr(Share.LARGE_ROW, "over", 0)


@pytest.fixture(params=["small", "large"])
def of_any_size(request: pytest.FixtureRequest) -> None:
    if request.param == "large":
        request.getfixturevalue("every_row_is_large")


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("engine", ["deduplicate", *FOLDING])
@pytest.mark.parametrize("beside", ["", " | 4 6 1"])
def test_value_stays_hidden_where_a_condition_leaves_out_the_file_that_hides_it(
    beside: str, engine: str, file_format: str
) -> None:
    table = new_table(VALUES, write_only="true", merge_engine=engine, file__format=file_format)
    put(table, "0 abc 1 | 5 7 1")
    if beside:
        put(table, beside[2:])
    table = to_int(table)
    put(table, "0 2 1 | 3 1 1")

    assert held(table, where="id >= 4") == f"{beside[3:]} | 5 7 1".removeprefix(" | ")
    assert held(table, columns=["v"], where="id >= 5") == "7"
    assert held(table, where="id >= 4 and n = 1 and v > 6") == "5 7 1"


@pytest.mark.usefixtures("of_any_size")
def test_sequence_of_a_row_that_a_condition_on_keys_leaves_out_needs_no_cast() -> None:
    table = new_table({**VALUES, "w": "STRING"}, write_only="true", sequence__field="v")
    put(table, "0 abc 1 a | 5 7 1 b")
    put(table, "4 6 1 c | 5 8 1 d")
    table = to_int(table)

    assert held(table, where="id >= 4") == "4 6 1 c | 5 8 1 d"
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.to_arrow()


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("engine", ["deduplicate", *FOLDING])
def test_nested_value_that_a_condition_on_keys_leaves_out_needs_no_cast(engine: str) -> None:
    columns = {"id": "INT NOT NULL", "v": "ROW<a STRING>", "w": "STRING"}
    table = new_table(columns, write_only="true", merge_engine=engine)

    def write(**rows: object) -> None:
        table.write(pa.table(rows, schema=table.schema.arrow))

    write(id=[0, 4, 5], v=[{"a": "x"}, {"a": "6"}, None], w=["o", "p", "q"])
    write(id=[4, 5], v=[{"a": "7"}, {"a": "8"}], w=[None, "s"])
    table = evolved(table, SchemaChange.update_column_type(["v", "a"], "INT"))
    write(id=[0], v=[{"a": 1}], w=["t"])
    kept = "_" if engine == "deduplicate" else "p"

    assert held(table, where="id >= 4") == f"4 {{'a': 7}} {kept} | 5 {{'a': 8}} s"


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("engine", ["deduplicate", *FOLDING])
def test_difference_needs_no_cast_of_keys_that_a_condition_leaves_out(engine: str) -> None:
    table = new_table(VALUES, write_only="true", merge_engine=engine)
    put(table, "0 abc 1 | 4 6 1 | 5 7 1")
    table = to_int(table)
    put(table, "0 2 1 | 3 1 1")
    put(table, "4 8 1 | 6 9 1")
    differing = table.copy({"incremental-between-scan-mode": "diff"})

    found = differing.changes(1, 3).filter(pl.col("id") >= 4)
    assert changed(found) == "+U 4 8 1 | +I 6 9 1"


@pytest.mark.parametrize("engine", CHOOSING)
def test_value_that_comes_out_is_an_error(engine: str) -> None:
    table = new_table(VALUES, write_only="true", merge_engine=engine)
    put(table, "1 abc 1 | 2 5 1")
    table = to_int(table)
    put(table, "3 7 2 | 2 6 2")

    with pytest.raises(InvalidRequest, match=f"{NO_CAST}.*column=v.*'abc'"):
        table.compact(full=True)
    if engine == "deduplicate":
        with pytest.raises(InvalidRequest, match=f"{NO_CAST}.*column=v.*'abc'"):
            table.to_arrow()
        assert held(table, columns=["id", "n"]) == "1 1 | 2 2 | 3 2"


@pytest.mark.parametrize("engine", FOLDING)
def test_engines_that_fold_look_at_every_value(engine: str) -> None:
    table = with_hidden_value(engine)

    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.to_arrow()
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.compact(full=True)


def test_sequence_field_decides_and_so_needs_its_cast() -> None:
    table = with_hidden_value(sequence__field="v")

    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.to_arrow()


def test_deleted_row_needs_no_cast() -> None:
    table = new_table(VALUES, write_only="true")
    put(table, "1 abc 1 | 2 5 1")
    put(table, "-D 1 abc 2")
    table = to_int(table)

    assert held(table) == "2 5 1"

    table.compact(full=True)

    assert held(table) == "2 5 1"


@pytest.mark.parametrize("row_deduplicate", ["false", "true"])
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changelog_needs_casts_of_what_it_tells(producer: str, row_deduplicate: str) -> None:
    options: dict[str, Any] = {
        "changelog_producer": producer,
        "changelog_producer__row_deduplicate": row_deduplicate,
    }
    table = with_hidden_value(**options)
    number = table.compact(full=True).snapshot_id
    assert number is not None

    assert changed(table.changes(number - 1, number)) == "+I 1 7 2 | +I 2 5 1"

    table = new_table(VALUES, write_only="true", **options)
    put(table, "1 abc 1 | 2 5 1")
    table.compact(full=True)
    table = to_int(table)
    put(table, "2 5 1 | 3 4 2")
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.compact(full=True)
    put(table, "1 7 2")

    # What key 1 was is told, too.
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.compact(full=True)


def test_rows_that_are_looked_up_are_cast_when_they_are_told() -> None:
    table = new_table(VALUES, write_only="true", changelog_producer="lookup")
    put(table, " | ".join(f"{number} {number} 0" for number in range(3000)))
    table.compact(full=True)
    table = to_int(table)
    put(table, "5 50 1 | 6 6 1")
    number = table.compact().snapshot_id
    assert number is not None

    assert changed(table.changes(number - 1, number)) == (
        "-U 5 5 0 | +U 5 50 1 | -U 6 6 0 | +U 6 6 1"
    )


def test_types_of_several_schemas_are_cast_each_by_its_own_rule() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "STRING"}, write_only="true")
    put(table, "1 abc | 2 1.5 | 3 2.4 | 4 8 | 9 z")
    table = evolved(table, SchemaChange.update_column_type("v", "DOUBLE"))
    put(table, "1 inf | 2 2.5 | 5 7.5 | 9 1")
    table = evolved(table, SchemaChange.update_column_type("v", "DECIMAL(10, 1)"))
    table = evolved(table, SchemaChange.rename_column("v", "w"))
    put(table, "1 0.5 | 3 3.5 | 9 _")

    assert held(table) == "1 0.5 | 2 2.5 | 3 3.5 | 4 8.0 | 5 7.5 | 9 _"

    table.compact(full=True)

    assert held(table) == "1 0.5 | 2 2.5 | 3 3.5 | 4 8.0 | 5 7.5 | 9 _"


NESTED: dict[str, Any] = {
    "ROW<a STRING, b INT>": (("v", "a"), {"a": "5", "b": 1}, {"a": "x", "b": 2}, {"a": 7}),
    "ARRAY<STRING>": (("v", "element"), ["5", None], ["x", "y"], [7]),
    "MAP<INT, STRING>": (("v", "value"), [(1, "5")], [(1, "x")], [(2, 7)]),
    "ARRAY<ROW<a STRING, t TIME(3)>>": (
        ("v", "element", "a"),
        [{"a": "5", "t": time(1, 2)}],
        [{"a": "x", "t": None}, None],
        [{"a": 7, "t": time(3)}, None],
    ),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_are_cast_late_too(kind: str) -> None:
    path, old, hidden, new = NESTED[kind]
    table = new_table({"id": "INT NOT NULL", "v": kind}, write_only="true")
    stored = {"id": [0, 1, 2, 3], "v": [hidden, old, hidden, None]}
    table.write(pa.table(stored, schema=table.schema.arrow))
    table = evolved(table, SchemaChange.update_column_type(list(path), "INT"))
    table.write(pa.table({"id": [0, 2], "v": [new, new]}, schema=table.schema.arrow))
    expected = table.to_arrow().sort_by("id")
    table.compact(full=True)

    assert expected.column("v").to_pylist()[3] is None
    assert "5" in str(expected.column("v").to_pylist()[1])
    assert table.to_arrow().sort_by("id") == expected


def with_hidden_nested_values(kind: str, engine: str, **options: Any) -> Table:
    """Keys 0 and 2 have a value without a cast that a newer one hides; 4 has two old types."""
    path, old, hidden, new = NESTED[kind]
    columns = {"id": "INT NOT NULL", "v": kind, "n": "INT"}
    table = new_table(columns, write_only="true", merge_engine=engine, **options)

    def write(ids: list[int], values: list[Any], numbers: list[Any]) -> None:
        rows = {"id": ids, "v": values, "n": numbers}
        table.write(pa.table(rows, schema=table.schema.arrow))

    write([0, 1, 2, 4], [hidden, old, hidden, hidden], [1, 1, 1, 1])
    table = evolved(table, SchemaChange.update_column_type(list(path), "DOUBLE"))
    write([4], [new], [None])
    table = evolved(table, SchemaChange.update_column_type(list(path), "INT"))
    write([0, 1, 5], [new, None, None], [None, 2, 2])
    write([2, 6], [new, new], [3, 3])
    return table


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("runs", [2, 9])
@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction"])
@pytest.mark.parametrize("engine", FOLDING)
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.sampled(3)
def test_nested_value_that_folding_only_chooses_is_cast_where_it_comes_out(
    kind: str, engine: str, producer: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: runs)
    table = with_hidden_nested_values(kind, engine, changelog_producer=producer)
    new = NESTED[kind][-1]

    found = table.to_arrow().sort_by("id")
    assert found.schema.field("v").type == table.schema.arrow.field("v").type
    assert found.column("n").to_pylist() == [1, 2, 3, 1, 2, 3]
    values = found.column("v").to_pylist()
    expected = pa.array([new], found.schema.field("v").type).to_pylist()[0]
    assert [values[0], values[2], values[3], values[5]] == [expected] * 4
    assert "5" in str(values[1])
    assert values[4] is None
    assert table.to_arrow(columns=["v"], where="id = 6").column("v").to_pylist() == [expected]

    number = table.compact(full=True).snapshot_id
    assert table.to_arrow().sort_by("id") == found
    if producer != "none":
        assert number is not None
        told = table.changes(number - 1, number).collect()
        assert told.sort("id")["n"].to_list() == [1, 2, 3, 1, 2, 3]


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("engine", FOLDING)
@pytest.mark.parametrize("kind", NESTED)
def test_nested_value_without_a_cast_that_comes_out_is_an_error(kind: str, engine: str) -> None:
    _, _, hidden, new = NESTED[kind]
    table = new_table(
        {"id": "INT NOT NULL", "v": kind, "n": "INT"}, write_only="true", merge_engine=engine
    )
    stored = {"id": [1, 2], "v": [hidden, None], "n": [1, 1]}
    table.write(pa.table(stored, schema=table.schema.arrow))
    table = evolved(table, SchemaChange.update_column_type(list(NESTED[kind][0]), "INT"))
    newer = {"id": [1, 2], "v": [None, new], "n": [2, 2]}
    table.write(pa.table(newer, schema=table.schema.arrow))

    assert held(table, columns=["id", "n"]) == "1 2 | 2 2"
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.to_arrow()
    with pytest.raises(InvalidRequest, match=NO_CAST):
        table.compact(full=True)


@pytest.mark.usefixtures("every_row_is_large")
def test_large_rows_are_cast_late_by_their_places() -> None:
    for producer in ("none", "lookup", "full-compaction"):
        table = with_hidden_value(changelog_producer=producer)

        assert held(table) == "1 7 2 | 2 5 1"

        table.compact(full=True)

        assert held(table) == "1 7 2 | 2 5 1"


def test_runs_merged_in_rounds_are_cast_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 2)
    table = new_table(VALUES, write_only="true")
    for number in range(5):
        put(table, f"1 abc {number} | {number + 2} {number} 0")
    table = to_int(table)
    put(table, "1 7 9")

    assert held(table) == "1 7 9 | 2 0 0 | 3 1 0 | 4 2 0 | 5 3 0 | 6 4 0"


def test_nothing_is_carried_along_where_no_cast_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(late_casts, "LateCast", refuse)
    table = new_table(VALUES, write_only="true")
    put(table, "1 abc 1")
    table = evolved(
        table,
        SchemaChange.update_column_type("n", "BIGINT"),
        SchemaChange.add_column("m", "INT"),
        SchemaChange.rename_column("v", "w"),
    )
    put(table, "1 abd 2 3")

    assert held(table) == "1 abd 2 3"
