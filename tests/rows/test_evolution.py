from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.manifest_files import decode_manifest
from lakecore.io.files.data_files import read_file
from lakecore.io.stores.local import LocalStore
from lakecore.model.evolution import evolve
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.model.schema import TableSchema
from lakecore.model.schema_change import SchemaChange
from lakecore.model.types import Field, arrow_schema, arrow_type, parse_field, parse_type
from lakecore.model.validation import create_schema
from lakecore.rows.evolution import (
    conform_batch,
    is_identity,
    map_fields,
    may_fail,
    require_types,
    stored_fields,
)
from tests.values import column

FIXTURE = Path(__file__).parents[1] / "golden" / "fixtures" / "schema_evolution"


def fields(**types: str) -> tuple[Field, ...]:
    """Fields named `name_id`: `a_1="INT"` is column `a` with id 1."""
    return tuple(
        Field(id=int(key.rpartition("_")[2]), name=key.rpartition("_")[0], type=parse_type(text))
        for key, text in types.items()
    )


def nested(name: str, source: Any, id_: int = 1) -> Field:
    return parse_field({"id": id_, "name": name, "type": source})


def batch_of(columns: tuple[Field, ...], *values: list[Any]) -> pa.RecordBatch:
    arrays = [column(items, f.type) for f, items in zip(columns, values, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def test_what_did_not_change_is_the_same_batch() -> None:
    schema = fields(a_0="INT", b_1="ARRAY<STRING>")
    batch = batch_of(schema, [1], [["x"]])
    mappings = map_fields(schema, schema)

    assert is_identity(mappings)
    assert conform_batch(batch, mappings) is batch


def test_column_with_another_name_is_no_identity() -> None:
    assert not is_identity(map_fields(fields(a_0="INT"), fields(b_0="INT")))


@pytest.mark.parametrize(
    ("stored", "read", "changed"),
    [
        ("VARIANT", "VARIANT", False),
        ("ARRAY<VARIANT>", "ARRAY<VARIANT>", False),
        ("MAP<VARCHAR(5), INT>", "MAP<VARCHAR(5), INT>", False),
        ("MAP<VARCHAR(5), INT>", "MAP<VARCHAR(2), INT>", True),
        ("MAP<INT, VARCHAR(5)>", "MAP<INT, VARCHAR(2)>", True),
        ("MULTISET<VARCHAR(5)>", "MULTISET<VARCHAR(2)>", True),
    ],
)
def test_values_are_rebuilt_if_a_part_needs_a_cast(
    stored: str, read: str, *, changed: bool
) -> None:
    (mapping,) = map_fields(fields(a_0=read), fields(a_0=stored))

    assert mapping.changed is changed


@pytest.mark.parametrize("types", [("VARIANT", "ROW<a INT>"), ("ROW<a INT>", "VARIANT")])
def test_variant_is_no_row(types: tuple[str, str]) -> None:
    with pytest.raises(Unsupported, match="no cast between the types"):
        map_fields(fields(a_0=types[1]), fields(a_0=types[0]))


def test_columns_are_found_by_id_under_their_old_name_and_place() -> None:
    stored = fields(a_0="INT", b_1="STRING", gone_2="INT")
    read = fields(bb_1="STRING", a_0="INT")
    batch = batch_of(stored, [1, 2], ["x", None], [7, 8])
    mappings = map_fields(read, stored)
    result = conform_batch(batch, mappings)

    assert [field.name for field in stored_fields(mappings)] == ["b", "a"]
    assert result == batch_of(read, ["x", None], [1, 2])
    assert result.column(0).buffers()[2].address == batch.column(1).buffers()[2].address


def test_column_added_later_is_null_even_under_a_name_that_was_dropped() -> None:
    stored = fields(a_0="INT", d_1="STRING")
    read = fields(a_0="INT", d_2="INT")

    result = conform_batch(batch_of(stored, [1], ["x"]), map_fields(read, stored))

    assert result == batch_of(read, [1], [None])


def test_batch_in_which_every_column_was_added_later_keeps_its_count_of_rows() -> None:
    stored = fields(a_0="INT")
    mappings = map_fields(fields(b_1="INT"), stored)
    result = conform_batch(batch_of(stored, [1, 2, 3]), mappings)

    assert stored_fields(mappings) == ()
    assert result.column(0).null_count == 3


def test_changed_type_is_cast() -> None:
    stored, read = fields(a_0="INT", b_1="FLOAT"), fields(a_0="BIGINT", b_1="DOUBLE")

    result = conform_batch(batch_of(stored, [1, None], [1.5, 2.5]), map_fields(read, stored))

    assert result == batch_of(read, [1, None], [1.5, 2.5])


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("VARCHAR(5)", "STRING"),
        ("CHAR(5)", "VARCHAR(9)"),
        ("VARBINARY(5)", "BYTES"),
        ("TIMESTAMP(4)", "TIMESTAMP(6)"),
        ("INT", "INT NOT NULL"),
        ("INT NOT NULL", "INT"),
    ],
)
def test_widening_that_keeps_every_value_costs_nothing(stored: str, read: str) -> None:
    (mapping,) = map_fields(fields(a_0=read), fields(a_0=stored))

    assert not mapping.changed


def test_values_of_fixed_length_are_padded_to_a_longer_one() -> None:
    stored, read = fields(a_0="CHAR(2)", b_1="BINARY(1)"), fields(a_0="CHAR(3)", b_1="BINARY(2)")

    result = conform_batch(batch_of(stored, ["ab", None], ["78", "79"]), map_fields(read, stored))

    assert result == batch_of(read, ["ab ", None], ["7800", "7900"])


def test_fields_of_a_row_are_found_by_id_at_any_depth() -> None:
    stored = nested(
        "r",
        {
            "type": "ROW",
            "fields": [
                {"id": 2, "name": "x", "type": "INT"},
                {"id": 3, "name": "y", "type": "STRING"},
                {"id": 4, "name": "in", "type": {"type": "ROW", "fields": [
                    {"id": 5, "name": "z", "type": "INT"},
                ]}},
            ],
        },
    )  # fmt: skip
    read = nested(
        "r",
        {
            "type": "ROW",
            "fields": [
                {"id": 9, "name": "new", "type": "DATE"},
                {"id": 4, "name": "inner", "type": {"type": "ROW", "fields": [
                    {"id": 5, "name": "z", "type": "BIGINT"},
                    {"id": 8, "name": "w", "type": "STRING"},
                ]}},
                {"id": 3, "name": "yy", "type": "STRING"},
            ],
        },
    )  # fmt: skip
    batch = batch_of((stored,), [[0, "o", [0]], [1, "a", [10]], None, [2, None, None]])

    result = conform_batch(batch.slice(1), map_fields((read,), (stored,)))

    result.validate(full=True)
    assert result == batch_of((read,), [[None, [10, None], "a"], None, [None, None, None]])


@pytest.mark.parametrize(
    ("stored", "read", "values", "expected"),
    [
        ("ARRAY<INT>", "ARRAY<BIGINT>", [[9], [1, None], None, []], [[1, None], None, []]),
        (
            "MAP<INT, STRING>",
            "MAP<INT, INT>",
            [[[0, "0"]], [[1, "5"], [2, None]], None],
            [[[1, 5], [2, None]], None],
        ),
        ("ARRAY<ARRAY<INT>>", "ARRAY<ARRAY<STRING>>", [[[0]], [[1], None]], [[["1"], None]]),
        ("MULTISET<INT>", "MULTISET<BIGINT>", [[[5, 1]], [[7, 2]]], [[[7, 2]]]),
    ],
)
def test_elements_are_cast_in_their_place(
    stored: str, read: str, values: list[Any], expected: list[Any]
) -> None:
    before, after = fields(a_0=stored), fields(a_0=read)

    result = conform_batch(batch_of(before, values).slice(1), map_fields(after, before))

    result.validate(full=True)
    assert result == batch_of(after, expected)


def test_type_without_cast_is_refused_before_anything_is_read() -> None:
    with pytest.raises(Unsupported, match=r"column=a stored=ARRAY<INT> wanted=INT"):
        map_fields(fields(a_0="INT"), fields(a_0="ARRAY<INT>"))


@pytest.mark.parametrize(
    ("stored", "values", "texts"),
    [
        ("ARRAY<INT>", [[1, None], [], None, [2]], ["[1, null]", "[]", None, "[2]"]),
        (
            "MAP<STRING, DOUBLE>",
            [[("k", 1.5), ("", None)], [], None, [("x", 0.0)]],
            ["{k -> 1.5,  -> null}", "{}", None, "{x -> 0.0}"],
        ),
        (
            "ROW<a INT, b ARRAY<DATE>>",
            [[1, [None]], [None, None], None, [2, []]],
            ["{1, [null]}", "{null, null}", None, "{2, []}"],
        ),
        (
            "ARRAY<ROW<a DECIMAL(4, 2)>>",
            [[["1.50"], None], [], None, [[None]]],
            ["[{1.50}, null]", "[]", None, "[{null}]"],
        ),
    ],
)
def test_nested_values_become_the_texts_that_java_reads(
    stored: str, values: list[Any], texts: list[Any]
) -> None:
    before, after = fields(a_0=stored), fields(a_0="STRING")
    for at in range(len(values)):
        result = conform_batch(batch_of(before, values).slice(at), map_fields(after, before))
        result.validate(full=True)
        assert result.column(0).to_pylist() == texts[at:]


ATOMS = {
    "BOOLEAN": True,
    **dict.fromkeys(["TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"], 7),
    "DECIMAL(10, 2)": "7.00",
    **dict.fromkeys(["CHAR(1)", "VARCHAR(3)", "STRING"], "7"),
    **dict.fromkeys(["BINARY(1)", "VARBINARY(3)", "BYTES"], "37"),
    "DATE": "1970-01-01",
    **dict.fromkeys(["TIME(0)", "TIME(3)"], "00:00:07"),
    **dict.fromkeys([f"TIMESTAMP({each})" for each in (0, 3, 6, 9)], "1970-01-01T00:00:07"),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": "1970-01-01T00:00:07",
}
NESTED = ["ARRAY<INT>", "ARRAY<STRING>", "MAP<STRING, INT>", "MULTISET<INT>", "ROW<a INT>"]
OTHERS = ["VARIANT", "VECTOR<FLOAT, 2>", "BLOB", "ARRAY<VARIANT>", "ROW<a VECTOR<FLOAT, 2>>"]
SHAPES: dict[str, tuple[Any, Any]] = {
    "{}": (lambda value: value, lambda value: value),
    "ARRAY<{}>": (lambda value: [value], lambda value: [value]),
    "MAP<STRING, {}>": (lambda value: [("k", value)], lambda value: [("k", value)]),
    "ROW<x {}>": (lambda value: [value], lambda value: {"x": value}),
}
REFUSED = object()


def altered(stored: str, read: str) -> bool:
    """Whether ALTER TABLE accepts this change of a column's type."""
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    schema = create_schema({"k": "INT", "a": stored}, options=options, now_ms=0)
    try:
        evolve(schema, [SchemaChange.update_column_type("a", read)], now_ms=0, has_snapshots=True)
    except InvalidRequest:
        return False
    return True


@pytest.mark.parametrize("stored", [*ATOMS, *NESTED, *OTHERS])
def test_reads_follow_every_change_that_alter_table_accepts(stored: str) -> None:
    for read in [*ATOMS, *NESTED, *OTHERS]:
        if not altered(stored, read):
            # Reads know more: the text of what Java has altered, and changed parts of nested types.
            parts = stored not in ATOMS and (read not in ATOMS or read == "STRING")
            for shape in () if parts else SHAPES:
                with pytest.raises(Unsupported):
                    map_fields(fields(a_0=shape.format(read)), fields(a_0=shape.format(stored)))
        elif stored != read:
            value = outcome(stored, read, ATOMS[stored])
            for shape, (given, returned) in SHAPES.items():
                of, to = shape.format(stored), shape.format(read)
                assert outcome(of, to, None) is None
                found = outcome(of, to, given(ATOMS[stored]))
                assert found == (value if value is REFUSED else returned(value)), (of, to)


def outcome(stored: str, read: str, value: Any) -> Any:
    """What a read returns for a stored value, or REFUSED."""
    before, after = fields(a_0=stored), fields(a_0=read)
    rows = batch_of(before, [value])
    try:
        result = conform_batch(rows, map_fields(after, before))
    except InvalidRequest as error:
        return REFUSED if {"column": "a", "value": "'7'"}.items() <= shown(error) else error
    result.validate(full=True)
    assert result.schema == arrow_schema(after)
    return result.column(0).to_pylist()[0]


def shown(error: InvalidRequest) -> Any:
    return {name: str(value) for name, value in error.facts.items()}.items()


def test_batch_that_lacks_a_stored_column_is_refused() -> None:
    stored = fields(a_0="INT", b_1="INT")
    mappings = map_fields(fields(b_1="BIGINT"), stored)

    with pytest.raises(CorruptTable, match="column=b"):
        conform_batch(batch_of(stored[:1], [1]), mappings)


@pytest.mark.parametrize("table", ["table", "table-head"])
def test_files_of_every_schema_read_as_java_reads_them(table: str) -> None:
    folder = FIXTURE / table
    schemas = {
        int(path.name.removeprefix("schema-")): [
            parse_field(field) for field in json.loads(path.read_text())["fields"]
        ]
        for path in (folder / "schema").iterdir()
    }
    schema_ids = {
        entry.file.name: entry.file.schema_id
        for path in (folder / "manifest").glob("manifest-*-[0-9]")
        if "list" not in path.name
        for entry in decode_manifest(path.read_bytes(), str(path))
    }
    sequence = Field(id=-1, name=SEQUENCE_NUMBER, type=parse_type("BIGINT NOT NULL"))
    newest: dict[int, dict[str, Any]] = {}
    for path in (folder / "bucket-0").iterdir():
        mappings = map_fields(
            (*schemas[max(schemas)], sequence), (*schemas[schema_ids[path.name]], sequence)
        )
        for batch in read_file(LocalStore(), str(path), fields=stored_fields(mappings)):
            for row in conform_batch(batch, mappings).to_pylist():
                newest[row["k"]] = max(
                    newest.get(row["k"], row), row, key=lambda one: int(one[SEQUENCE_NUMBER])
                )
    name = "expected-head.json" if table.endswith("head") else "expected.json"
    results = json.loads((FIXTURE / name).read_text())["results"]
    expected = [line["rows"] for line in results if line["line"] == "read"][-1]

    assert [list(newest[key].values())[:-1] for key in sorted(newest)] == expected


def test_absent_column_has_the_arrow_type_of_its_type() -> None:
    read = fields(a_0="INT", d_5="DECIMAL(10, 2)")
    result = conform_batch(batch_of(read[:1], [1]), map_fields(read, read[:1]))

    assert result.schema.field("d").type == arrow_type(read[1].type)


@pytest.mark.parametrize(
    ("opened", "newer", "same"),
    [
        ("INT", "INT NOT NULL", True),
        ("INT", "BIGINT", False),
        ("ARRAY<INT>", "ARRAY<INT NOT NULL> NOT NULL", True),
        ("ARRAY<INT>", "ARRAY<BIGINT>", False),
        ("ARRAY<STRING>", "MULTISET<STRING>", False),
        ("MAP<INT, INT>", "MAP<INT, BIGINT>", False),
        ("MAP<INT, ARRAY<INT>>", "MAP<INT, ARRAY<INT NOT NULL>>", True),
    ],
)
def test_columns_whose_type_was_changed_need_a_new_handle(
    opened: str, newer: str, *, same: bool
) -> None:
    before, after = (
        TableSchema(id=id_, fields=fields(a_0="INT", b_1=kind), highest_field_id=1)
        for id_, kind in enumerate((opened, newer))
    )

    require_types(before, after, ["a"], "t")
    if same:
        require_types(before, after, ["a", "b"], "t")
        return
    with pytest.raises(InvalidRequest, match="column=b") as refusal:
        require_types(before, after, ["a", "b"], "t")
    assert str(refusal.value.facts["new_type"]) == newer


@pytest.mark.parametrize(
    ("stored", "read", "fails"),
    [
        ("STRING", "INT", True),
        ("INT", "STRING", False),
        ("ARRAY<STRING>", "STRING", False),
        ("ARRAY<STRING>", "ARRAY<INT>", True),
        ("MAP<INT, INT>", "MAP<INT, STRING>", False),
        ("MAP<INT, STRING>", "MAP<INT, INT>", True),
    ],
)
def test_casts_that_may_fail_are_known(stored: str, read: str, *, fails: bool) -> None:
    assert may_fail(parse_type(stored), parse_type(read)) is fails
