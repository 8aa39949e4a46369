from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound
from lakecore.model.evolution import TypeChanges, evolve, merge_changes
from lakecore.model.schema import TableSchema
from lakecore.model.schema_change import Change, Move, SchemaChange
from lakecore.model.types import Field, parse_field, parse_type
from lakecore.model.validation import create_schema

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "golden" / "fixtures" / "schema_evolution"
COLUMNS = {
    "k": "INT",
    "p": "STRING",
    "v": "INT",
    "s": "STRING",
    "r": "ROW<x INT, y STRING>",
    "a": "ARRAY<ROW<z INT>>",
    "m": "MAP<STRING, INT>",
}


def make(**options: str) -> TableSchema:
    return create_schema(
        COLUMNS,
        primary_keys=["k", "p"],
        partition_keys=["p"],
        options={"bucket": "2"} | {key.replace("_", "-"): text for key, text in options.items()},
        now_ms=1,
    )


def append(**options: str) -> TableSchema:
    named = {key.replace("_", "-"): text for key, text in options.items()}
    return create_schema(COLUMNS, options=named, now_ms=1)


def after(schema: TableSchema, *changes: Change, has_snapshots: bool = True) -> TableSchema:
    return evolve(schema, changes, now_ms=2, has_snapshots=has_snapshots, table="shop.orders")


def shown(schema: TableSchema) -> list[str]:
    return [f"{field.id} {field.name} {field.type}" for field in schema.fields]


def names(schema: TableSchema) -> str:
    return " ".join(schema.names)


def refused(
    schema: TableSchema,
    change: Change,
    kind: type[Exception] = InvalidRequest,
    *,
    has_snapshots: bool = True,
) -> str:
    with pytest.raises(kind) as caught:
        after(schema, change, has_snapshots=has_snapshots)
    return str(caught.value)


def stored(path: Path) -> TableSchema:
    found = json.loads(path.read_text())
    return TableSchema(
        id=found["id"],
        fields=tuple(parse_field(field) for field in found["fields"]),
        highest_field_id=found["highestFieldId"],
        partition_keys=tuple(found["partitionKeys"]),
        primary_keys=tuple(found["primaryKeys"]),
        options=found["options"],
        comment=found.get("comment"),
        time_ms=found["timeMillis"],
        version=found["version"],
    )


GOLDEN_CHANGES = [
    SchemaChange.add_column("d", "STRING"),
    SchemaChange.rename_column("b", "bb"),
    SchemaChange.update_column_type("a", "BIGINT"),
    SchemaChange.update_column_type("c", "DOUBLE"),
    SchemaChange.drop_column("d"),
    SchemaChange.add_column("d", "INT", None, Move.after("k")),
    SchemaChange.set_option("snapshot.num-retained.max", "20"),
]


@pytest.mark.parametrize("folder", ["table", "table-head"])
@pytest.mark.parametrize("number", range(len(GOLDEN_CHANGES)))
def test_each_change_gives_the_schema_that_paimon_wrote(folder: str, number: int) -> None:
    before = stored(GOLDEN / folder / "schema" / f"schema-{number}")
    paimons = stored(GOLDEN / folder / "schema" / f"schema-{number + 1}")

    ours = evolve(before, [GOLDEN_CHANGES[number]], now_ms=paimons.time_ms, has_snapshots=True)

    assert ours == paimons


def test_next_schema_has_the_next_id_and_the_time() -> None:
    schema = after(make(), SchemaChange.update_comment("orders"))

    assert (schema.id, schema.time_ms, schema.comment) == (1, 2, "orders")
    assert after(schema, SchemaChange.update_comment(None)).comment is None


def test_changes_are_all_carried_out_in_order() -> None:
    schema = after(
        make(),
        SchemaChange.add_column("n", "INT"),
        SchemaChange.rename_column("n", "nn"),
        SchemaChange.update_column_type("nn", "BIGINT"),
    )

    assert shown(schema)[-1] == "10 nn BIGINT"


# --- adding -------------------------------------------------------------------------------------


def test_new_column_takes_the_next_ids_depth_first() -> None:
    schema = after(make(), SchemaChange.add_column("n", "ROW<x INT, y INT>", "a note"))

    column = schema.field("n")
    assert column.id == 10
    assert column.description == "a note"
    assert [field.id for field in column.type.fields] == [11, 12]  # type: ignore[union-attr]
    assert schema.highest_field_id == 12


def test_dropped_id_is_never_given_out_again() -> None:
    schema = after(make(), SchemaChange.drop_column("m"), SchemaChange.add_column("m", "INT"))

    assert schema.field("m").id == 10
    assert schema.highest_field_id == 10


@pytest.mark.parametrize(
    ("move", "order"),
    [
        (None, "k p v s r a m n"),
        (Move.last(), "k p v s r a m n"),
        (Move.first(), "n k p v s r a m"),
        (Move.after("k"), "k n p v s r a m"),
        (Move.before("v"), "k p n v s r a m"),
    ],
)
def test_new_column_goes_where_it_is_told(move: Move | None, order: str) -> None:
    assert names(after(make(), SchemaChange.add_column("n", "INT", None, move))) == order


def test_new_column_may_go_before_the_partition_columns() -> None:
    schema = make(add_column_before_partition="true")

    assert names(after(schema, SchemaChange.add_column("n", "INT"))) == "k n p v s r a m"


def test_new_field_of_a_row_goes_last_whatever_the_partition_columns_are_called() -> None:
    options = {"bucket": "1", "add-column-before-partition": "true"}
    columns = {"k": "INT", "p": "INT", "r": "ROW<p INT, x INT>"}
    schema = create_schema(
        columns, primary_keys=["k", "p"], partition_keys=["p"], options=options, now_ms=1
    )

    found = after(schema, SchemaChange.add_column("r.n", "INT"))

    assert str(found.field("r").type) == "ROW<`p` INT, `x` INT, `n` INT>"


def test_fields_of_rows_are_added_by_path() -> None:
    schema = after(
        make(),
        SchemaChange.add_column("r.w", "INT", None, Move.first()),
        SchemaChange.add_column(["a", "element", "w"], pa.int64()),
    )

    assert shown(schema)[4:6] == [
        "4 r ROW<`w` INT, `x` INT, `y` STRING>",
        "7 a ARRAY<ROW<`z` INT, `w` BIGINT>>",
    ]
    assert schema.highest_field_id == 11


def test_name_with_a_dot_is_a_path_only_where_it_leads_somewhere() -> None:
    schema = after(make(), SchemaChange.add_column("x.y", "INT"))

    assert schema.field("x.y").id == 10
    assert names(after(schema, SchemaChange.drop_column("x.y"))) == "k p v s r a m"


def test_new_column_must_be_nullable_new_and_in_a_known_place() -> None:
    assert "must be nullable" in refused(make(), SchemaChange.add_column("n", "INT NOT NULL"))
    assert "column=v" in refused(make(), SchemaChange.add_column("v", "INT"), AlreadyExists)
    assert "column=r.x" in refused(make(), SchemaChange.add_column("r.x", "INT"), AlreadyExists)
    misplaced = SchemaChange.add_column("n", "INT", None, Move.after("q"))
    assert "column=q" in refused(make(), misplaced, NotFound)
    assert "reserved" in refused(make(), SchemaChange.add_column("_KEY_k", "INT"))


def test_path_must_lead_into_the_type() -> None:
    assert "step=w" in refused(make(), SchemaChange.add_column("v.w.x", "INT"), NotFound)
    element = SchemaChange.add_column(["m", "value"], "INT")
    assert "only a field of a ROW" in refused(make(), element)


# --- renaming -----------------------------------------------------------------------------------


def test_rename_keeps_the_id_and_travels_into_keys_and_options() -> None:
    schema = create_schema(
        {"k": "INT", "v": "INT", "g": "INT", "h": "INT", "s": "STRING"},
        primary_keys=["k"],
        options={
            "bucket": "2",
            "bucket-key": "k",
            "merge-engine": "partial-update",
            "fields.v.aggregate-function": "sum",
            "fields.g,h.sequence-group": "v,s",
            "file-index.bitmap.columns": "k,s",
            "file-index.bitmap.s.version": "2",
            "fields.s.stats-mode": "none",
        },
        now_ms=1,
    )
    changed = after(
        schema,
        SchemaChange.rename_column("k", "id"),
        SchemaChange.rename_column("v", "value"),
        SchemaChange.rename_column("g", "group"),
        SchemaChange.rename_column("s", "status"),
    )

    assert [field.id for field in changed.fields] == [0, 1, 2, 3, 4]
    assert changed.primary_keys == ("id",)
    assert changed.options == {
        "bucket": "2",
        "bucket-key": "id",
        "merge-engine": "partial-update",
        "fields.value.aggregate-function": "sum",
        "fields.group,h.sequence-group": "value,status",
        "file-index.bitmap.columns": "id,status",
        "file-index.bitmap.status.version": "2",
        "fields.status.stats-mode": "none",
    }


def test_an_option_that_the_merge_engine_ignores_is_not_set() -> None:
    change = SchemaChange.set_option("fields.v.aggregate-function", "sum")
    with pytest.raises(InvalidRequest, match="the merge engine of the table ignores the option"):
        after(make(), change)
    after(make(merge_engine="aggregation"), change)


def test_an_option_of_another_iceberg_catalog_is_not_set() -> None:
    change = SchemaChange.set_option("metadata.iceberg.table", "other")
    with pytest.raises(InvalidRequest, match="ignores the option"):
        after(append(**{"metadata.iceberg.storage": "hadoop-catalog"}), change)
    after(append(**{"metadata.iceberg.storage": "hive-catalog"}), change)


def test_an_ignored_option_of_another_engine_stays() -> None:
    written = replace(make(), options={"bucket": "2", "fields.v.aggregate-function": "sum"})

    renamed = after(written, SchemaChange.rename_column("v", "w"))

    assert renamed.options["fields.w.aggregate-function"] == "sum"


def test_rename_travels_into_sequence_and_row_kind_fields() -> None:
    options = {"bucket": "2", "rowkind.field": "s", "sequence.field": "v"}
    table = replace(make(), options=options)

    changed = after(
        table, SchemaChange.rename_column("v", "w"), SchemaChange.rename_column("s", "kind")
    )

    assert changed.options["sequence.field"] == "w"
    assert changed.options["rowkind.field"] == "kind"


def test_nested_field_is_renamed_without_touching_options() -> None:
    schema = after(make(), SchemaChange.rename_column("r.x", "xx"))

    assert shown(schema)[4] == "4 r ROW<`xx` INT, `y` STRING>"


def test_rename_needs_a_column_and_a_free_name() -> None:
    assert "columns=[k, p," in refused(make(), SchemaChange.rename_column("q", "w"), NotFound)
    assert "column=s" in refused(make(), SchemaChange.rename_column("v", "s"), AlreadyExists)
    assert "partition key cannot be renamed" in refused(
        make(), SchemaChange.rename_column("p", "pp")
    )


# --- dropping, moving ---------------------------------------------------------------------------


def test_columns_and_fields_are_dropped() -> None:
    schema = after(make(), SchemaChange.drop_column("v"), SchemaChange.drop_column("r.x"))

    assert names(schema) == "k p s r a m"
    assert str(schema.field("r").type) == "ROW<`y` STRING>"
    assert schema.highest_field_id == 9


def test_columns_in_use_are_not_dropped() -> None:
    assert "primary-key column cannot be dropped" in refused(make(), SchemaChange.drop_column("k"))
    assert "partition key cannot be dropped" in refused(make(), SchemaChange.drop_column("p"))
    assert "column=q" in refused(make(), SchemaChange.drop_column("q"), NotFound)

    one = create_schema({"a": "INT", "r": "ROW<x INT>"}, now_ms=1)
    assert "last column" in refused(one, SchemaChange.drop_column("r.x"))
    only = create_schema({"a": "INT"}, now_ms=1)
    assert "last column" in refused(only, SchemaChange.drop_column("a"))

    sequenced = replace(make(), options={"bucket": "2", "sequence.field": "v"})
    assert "sequence.field is not a column" in refused(sequenced, SchemaChange.drop_column("v"))


@pytest.mark.parametrize(
    ("name", "move", "order"),
    [
        ("v", Move.first(), "v k p s r a m"),
        ("v", Move.last(), "k p s r a m v"),
        ("k", Move.after("s"), "p v s k r a m"),
        ("m", Move.after("k"), "k m p v s r a"),
        ("k", Move.before("s"), "p v k s r a m"),
        ("m", Move.before("k"), "m k p v s r a"),
    ],
)
def test_columns_move(name: str, move: Move, order: str) -> None:
    assert names(after(make(), SchemaChange.update_column_position(name, move))) == order


def test_column_cannot_move_next_to_itself_or_to_nothing() -> None:
    own = SchemaChange.update_column_position("v", Move.after("v"))
    assert "next to itself" in refused(make(), own)
    lost = SchemaChange.update_column_position("v", Move.after("q"))
    assert "column=q" in refused(make(), lost, NotFound)


# --- types, nullability, comments, defaults -----------------------------------------------------


def test_types_change_at_any_depth() -> None:
    schema = after(
        make(),
        SchemaChange.update_column_type("v", "BIGINT"),
        SchemaChange.update_column_type("r.x", "DOUBLE"),
        SchemaChange.update_column_type(["a", "element", "z"], "BIGINT"),
        SchemaChange.update_column_type(["m", "value"], "BIGINT"),
    )

    assert shown(schema)[2:] == [
        "2 v BIGINT",
        "3 s STRING",
        "4 r ROW<`x` DOUBLE, `y` STRING>",
        "7 a ARRAY<ROW<`z` BIGINT>>",
        "9 m MAP<STRING, BIGINT>",
    ]


def test_nullability_may_be_kept_when_the_type_changes() -> None:
    strict = after(
        replace(append(), options={"alter-column-null-to-not-null.disabled": "false"}),
        SchemaChange.update_column_nullability("v", nullable=False),
    )

    kept = after(strict, SchemaChange.update_column_type("v", "BIGINT", keep_nullability=True))
    loosened = after(strict, SchemaChange.update_column_type("v", "BIGINT"))

    assert str(kept.field("v").type) == "BIGINT NOT NULL"
    assert str(loosened.field("v").type) == "BIGINT"


def test_types_that_cannot_be_cast_are_refused() -> None:
    change = SchemaChange.update_column_type("v", "ARRAY<INT>")
    assert "type=INT new_type=ARRAY<INT>" in refused(make(), change)

    narrowing = SchemaChange.update_column_type("v", "TINYINT")
    assert str(after(make(), narrowing).field("v").type) == "TINYINT"
    strict = make(disable_explicit_type_casting="true")
    assert "explicit_casts=False" in refused(strict, narrowing)


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        (["m", "key"], InvalidRequest, "the key type of a MAP cannot change"),
        (["m", "element"], NotFound, "does not lead into this type"),
        (["a", "value"], NotFound, "does not lead into this type"),
        (["v", "key"], NotFound, "does not lead into this type"),
    ],
)
def test_step_leads_into_the_type_that_has_it(
    path: list[str], kind: type[Exception], message: str
) -> None:
    assert message in refused(append(), SchemaChange.update_column_type(path, "BIGINT"), kind)


def test_types_that_place_rows_do_not_change() -> None:
    for name, why in (("k", "primary-key column"), ("p", "partition key")):
        assert why in refused(make(), SchemaChange.update_column_type(name, "STRING"))

    bucketed = append(bucket="2", bucket_key="v")
    assert "bucket key" in refused(bucketed, SchemaChange.update_column_type("v", "BIGINT"))


def test_nullable_column_becomes_not_null_only_when_allowed() -> None:
    change = SchemaChange.update_column_nullability("v", nullable=False)
    assert "way_out=" in refused(append(), change)

    allowed = replace(append(), options={"alter-column-null-to-not-null.disabled": "false"})
    assert not after(allowed, change).field("v").nullable


def test_key_column_stays_not_null() -> None:
    change = SchemaChange.update_column_nullability("k", nullable=True)

    assert "must be NOT NULL" in refused(make(), change)


def test_comments_and_defaults_change_at_any_depth() -> None:
    schema = after(
        make(),
        SchemaChange.update_column_comment("r.x", "inner"),
        SchemaChange.update_column_comment("v", "outer"),
        SchemaChange.update_column_default_value("v", "5"),
    )

    assert schema.field("v").description == "outer"
    assert schema.field("v").default_value == "5"
    assert schema.field("r").type.fields[0].description == "inner"  # type: ignore[union-attr]
    assert after(schema, SchemaChange.update_column_default_value("v", None)).field("v") == replace(
        schema.field("v"), default_value=None
    )


def test_default_must_be_a_value_of_the_type_and_stay_one() -> None:
    wrong = SchemaChange.update_column_default_value("v", "five")
    assert "not a value of the column's type" in refused(make(), wrong)

    schema = after(make(), SchemaChange.update_column_default_value("s", "none"))
    narrowed = SchemaChange.update_column_type("s", "INT")
    assert "not a value of the column's type" in refused(schema, narrowed)


# --- options ------------------------------------------------------------------------------------


def test_options_are_set_and_removed() -> None:
    schema = after(make(), SchemaChange.set_option("write-only", "true"))

    assert schema.options == {"bucket": "2", "write-only": "true"}
    assert after(schema, SchemaChange.remove_option("write-only")).options == {"bucket": "2"}
    assert after(make(), SchemaChange.remove_option("write-only")).options == {"bucket": "2"}


def test_options_are_checked_when_set() -> None:
    unknown = SchemaChange.set_option("write-onli", "true")
    assert "did_you_mean=write-only" in refused(make(), unknown)
    assert "allowed=true or false" in refused(make(), SchemaChange.set_option("write-only", "1"))
    incompatible = SchemaChange.set_option("sequence.field", "q")
    assert "sequence.field is not a column" in refused(make(), incompatible)


def test_option_is_stored_without_the_blanks_that_others_take_for_part_of_it() -> None:
    change = SchemaChange.set_option("file.format.per.level", " 0:avro, 1 : ORC ")

    assert after(make(), change).options["file.format.per.level"] == "0:avro,1:orc"


def test_option_of_no_name_is_not_stored() -> None:
    key = "partition.timestamp-pattern"
    before = after(make(), SchemaChange.set_option(key, "$p"))
    assert before.options[key] == "$p"

    assert key not in after(before, SchemaChange.set_option(key, " ")).options


def test_unknown_options_of_newer_releases_stay() -> None:
    newer = replace(make(), options={"bucket": "2", "shiny.mode": "on"})

    assert after(newer, SchemaChange.update_comment("x")).options["shiny.mode"] == "on"
    assert "shiny.mode" not in after(newer, SchemaChange.remove_option("shiny.mode")).options


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merge-engine", "first-row"),
        ("bucket-key", "k"),
        ("bucket-function.type", "hive"),
        ("rowkind.field", "s"),
        ("sequence.snapshot-ordering", "true"),
        ("row-tracking.enabled", "true"),
        ("data-evolution.enabled", "true"),
    ],
)
def test_immutable_options_are_fixed_once_there_are_snapshots(key: str, value: str) -> None:
    change = SchemaChange.set_option(key, value)

    assert "once the table has snapshots" in refused(make(), change)


def test_immutable_options_may_be_set_before_the_first_snapshot() -> None:
    change = SchemaChange.set_option("merge-engine", "first-row")

    assert after(make(), change, has_snapshots=False).options["merge-engine"] == "first-row"


def test_setting_an_option_to_what_it_is_changes_nothing() -> None:
    schema = replace(make(), options={"bucket": "2", "merge-engine": "deduplicate"})

    same = after(schema, SchemaChange.set_option("merge-engine", "deduplicate"))

    assert same.options == schema.options


def test_bucket_changes_but_not_from_or_to_dynamic() -> None:
    assert after(make(), SchemaChange.set_option("bucket", "8")).options["bucket"] == "8"
    assert "from or to -1" in refused(make(), SchemaChange.set_option("bucket", "-1"))
    assert "from or to -1" in refused(make(), SchemaChange.remove_option("bucket"))
    dynamic = replace(make(), options={})
    assert "from or to -1" in refused(dynamic, SchemaChange.set_option("bucket", "2"))


def test_deletion_vectors_change_only_when_modifiable() -> None:
    change = SchemaChange.set_option("deletion-vectors.enabled", "true")
    assert "deletion-vectors.modifiable=true" in refused(make(), change)

    allow = SchemaChange.set_option("deletion-vectors.modifiable", "true")
    assert after(make(), allow, change).options["deletion-vectors.enabled"] == "true"


def test_skipped_rows_do_not_come_back() -> None:
    skipping = after(make(), SchemaChange.set_option("ignore-delete", "true"))

    back = SchemaChange.set_option("ignore-delete", "false")
    assert "from true to false" in refused(skipping, back)
    assert "from true to false" in refused(skipping, SchemaChange.remove_option("ignore-delete"))


def test_skipped_rows_do_not_come_back_by_another_key_of_the_option() -> None:
    old, today = "deduplicate.ignore-delete", "ignore-delete"
    skipping = after(make(), SchemaChange.set_option(old, "true"))

    for change in (
        SchemaChange.set_option(today, "false"),
        SchemaChange.set_option(old, "false"),
        SchemaChange.remove_option(old),
    ):
        assert "from true to false" in refused(skipping, change)
    both = after(skipping, SchemaChange.set_option(today, "true"))
    assert after(both, SchemaChange.remove_option(old)).options[today] == "true"


def test_rows_of_one_kind_go_on_being_skipped_while_those_of_another_are() -> None:
    both = after(
        make(),
        SchemaChange.set_option("ignore-update-before", "true"),
        SchemaChange.set_option("ignore-delete", "true"),
    )

    assert "from true to false" in refused(both, SchemaChange.remove_option("ignore-delete"))
    assert (
        "ignore-update-before"
        not in after(both, SchemaChange.remove_option("ignore-update-before")).options
    )


def test_branch_is_no_property_of_a_table() -> None:
    assert "cannot be stored" in refused(make(), SchemaChange.set_option("branch", "b1"))
    assert after(make(), SchemaChange.set_option("branch", "main")).options["branch"] == "main"


@pytest.mark.parametrize("key", ["type", "path", "field-id.one-based"])
def test_kind_and_place_of_a_table_never_change(key: str) -> None:
    value = {"type": "format-table", "path": "/elsewhere"}.get(key, "true")
    change = SchemaChange.set_option(key, value)

    assert "the option cannot change" in refused(make(), change, has_snapshots=False)


def test_keys_do_not_change_by_option() -> None:
    same = SchemaChange.set_option("primary-key", "k, p")
    assert after(make(), same, has_snapshots=False).options == {"bucket": "2"}
    other = SchemaChange.set_option("primary-key", "v")
    assert "keys of a table cannot change" in refused(make(), other, has_snapshots=False)

    keyed = after(append(), SchemaChange.set_option("primary-key", "k"), has_snapshots=False)
    assert keyed.primary_keys == ("k",)
    assert not keyed.field("k").nullable


def test_schema_of_an_older_format_states_its_defaults_when_it_changes() -> None:
    old = replace(append(), version=1, options={})
    keyed = replace(old, primary_keys=("k",), fields=make().fields)

    schema = after(keyed, SchemaChange.update_comment("x"))

    assert schema.version == 3
    assert schema.options == {"bucket": "1", "file.format": "orc"}


@pytest.mark.parametrize(
    "make_change",
    [
        lambda: SchemaChange.add_column(7, "INT"),  # type: ignore[arg-type]
        lambda: SchemaChange.add_column("x", 7),
        lambda: SchemaChange.add_column("x", "INT", 7),  # type: ignore[arg-type]
        lambda: SchemaChange.add_column("x", "INT", None, "first"),  # type: ignore[arg-type]
        lambda: SchemaChange.rename_column("v", ["w"]),  # type: ignore[arg-type]
        lambda: SchemaChange.drop_column([7]),  # type: ignore[list-item]
        lambda: SchemaChange.update_column_type("v", None),
        lambda: SchemaChange.update_column_type("v", "INT", "no"),  # type: ignore[arg-type]
        lambda: SchemaChange.update_column_nullability("v", "false"),  # type: ignore[arg-type]
        lambda: SchemaChange.update_column_comment("v", 7),  # type: ignore[arg-type]
        lambda: SchemaChange.update_column_default_value("v", 7),  # type: ignore[arg-type]
        lambda: SchemaChange.update_column_position("v", None),  # type: ignore[arg-type]
        lambda: SchemaChange.set_option("bucket", [7]),  # type: ignore[arg-type]
        lambda: SchemaChange.remove_option(["bucket"]),  # type: ignore[arg-type]
        lambda: SchemaChange.update_comment(7),  # type: ignore[arg-type]
    ],
)
def test_part_of_a_change_that_is_no_such_part_is_refused(
    make_change: Callable[[], Change],
) -> None:
    with pytest.raises(InvalidRequest):
        make_change()


# --- what a write changes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "given", "new"),
    [
        ("TINYINT", pa.int16(), "SMALLINT"),
        ("INT", pa.int32(), ""),
        ("INT", pa.int16(), ""),
        ("INT", pa.int64(), "BIGINT"),
        ("SMALLINT", pa.float32(), "FLOAT"),
        ("INT", pa.float32(), ""),
        ("INT", pa.float64(), "DOUBLE"),
        ("BIGINT", pa.float64(), ""),
        ("FLOAT", pa.float64(), "DOUBLE"),
        ("DOUBLE", pa.float32(), ""),
        ("TINYINT", pa.decimal128(3, 0), "DECIMAL(3, 0)"),
        ("TINYINT", pa.decimal128(3, 1), ""),
        ("INT", pa.decimal128(12, 2), "DECIMAL(12, 2)"),
        ("INT", pa.decimal128(11, 2), ""),
        ("BIGINT", pa.decimal128(19, 0), "DECIMAL(19, 0)"),
        ("STRING", pa.decimal128(38, 0), ""),
        ("DECIMAL(5, 2)", pa.decimal128(5, 2), ""),
        ("DECIMAL(5, 2)", pa.decimal128(6, 2), "DECIMAL(6, 2)"),
        ("DECIMAL(5, 2)", pa.decimal128(6, 3), "DECIMAL(6, 3)"),
        ("DECIMAL(5, 2)", pa.decimal128(5, 3), ""),
        ("DECIMAL(5, 2)", pa.decimal128(6, 1), ""),
        ("TIMESTAMP(3)", pa.timestamp("us"), "TIMESTAMP(6)"),
        ("TIMESTAMP(6)", pa.timestamp("us"), ""),
        ("TIMESTAMP(6)", pa.timestamp("ms"), ""),
        ("TIMESTAMP(3)", pa.timestamp("us", "UTC"), ""),
    ],
)
def test_write_widens_a_column_to_a_type_that_holds_every_value(
    old: str, given: pa.DataType, new: str
) -> None:
    fields = [Field(id=0, name="c", type=parse_type(old))]
    columns = pa.schema([pa.field("c", given)])
    wanted = [SchemaChange.update_column_type(["c"], parse_type(new))] if new else []

    assert merge_changes(fields, columns, types=TypeChanges.WIDENING, fixed=()) == wanted
    assert merge_changes(fields, columns, types=TypeChanges.WIDENING, fixed=["c"]) == []
    assert merge_changes(fields, columns, types=TypeChanges.NONE, fixed=()) == []


STRUCT = pa.struct([("a", pa.int32()), ("new", pa.string())])


@pytest.mark.parametrize(
    ("old", "given", "added"),
    [
        ("ROW<a INT>", STRUCT, ["c", "new"]),
        ("ARRAY<ROW<a INT>>", pa.list_(STRUCT), ["c", "element", "new"]),
        ("ARRAY<ROW<a INT>>", pa.large_list(STRUCT), ["c", "element", "new"]),
        ("MAP<STRING, ROW<a INT>>", pa.map_(pa.string(), STRUCT), ["c", "value", "new"]),
        ("INT", STRUCT, []),
        ("ROW<a INT>", pa.int64(), []),
        ("ARRAY<ROW<a INT>>", STRUCT, []),
        ("ARRAY<INT>", pa.map_(pa.string(), STRUCT), []),
        ("MAP<STRING, ROW<a INT>>", pa.list_(STRUCT), []),
        ("INT", pa.list_(pa.int64()), []),
        ("INT", pa.null(), []),
        ("INT", pa.duration("s"), []),
        ("INT", pa.decimal256(50, 0), []),
    ],
)
def test_write_adds_fields_where_the_nesting_is_that_of_the_column(
    old: str, given: pa.DataType, added: list[str]
) -> None:
    fields = [Field(id=0, name="c", type=parse_type(old))]
    wanted = [SchemaChange.add_column(added, parse_type("STRING"))] if added else []

    columns = pa.schema([pa.field("c", given)])
    assert merge_changes(fields, columns, types=TypeChanges.CASTS, fixed=()) == wanted
