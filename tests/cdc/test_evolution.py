from __future__ import annotations

import pytest

from lakecore.cdc.events import SourceSchema
from lakecore.cdc.target_rules import (
    Conversion,
    check_compatible,
    conversion,
    may_lose,
    schema_changes,
)
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest
from lakecore.model.evolution import evolve
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import Field, parse_type


def source(columns: dict[str, str], *, comment: str | None = None, **comments: str) -> SourceSchema:
    return SourceSchema(
        fields=tuple(
            Field(id=at, name=name, type=parse_type(kind), description=comments.get(name))
            for at, (name, kind) in enumerate(columns.items())
        ),
        comment=comment,
    )


def table(columns: dict[str, str], key: str | None = None) -> TableSchema:
    fields, count = number_fields(source(columns).fields)
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=count - 1,
        primary_keys=(key,) if key else (),
        options={"bucket": "1"} if key else {},
    )


def evolved(old: dict[str, str], new: dict[str, str], options: str = "") -> dict[str, str]:
    before = table(old)
    changes = schema_changes(before, source(new), TypeMapping.parse(options))
    if not changes:
        return old
    after = evolve(before, changes, now_ms=0, has_snapshots=True)
    return {field.name: str(field.type) for field in after.fields}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("INT", "INT", Conversion.CHANGE),
        ("INT", "BIGINT", Conversion.CHANGE),
        ("BIGINT", "TINYINT", Conversion.KEEP),
        ("FLOAT", "DOUBLE", Conversion.CHANGE),
        ("DOUBLE", "FLOAT", Conversion.KEEP),
        ("INT", "DOUBLE", Conversion.REFUSE),
        ("VARCHAR(10)", "VARCHAR(20)", Conversion.CHANGE),
        ("VARCHAR(10)", "CHAR(5)", Conversion.KEEP),
        ("VARCHAR(10)", "CHAR(10)", Conversion.KEEP),
        ("CHAR(10)", "VARCHAR(10)", Conversion.CHANGE),
        ("CHAR(5)", "STRING", Conversion.CHANGE),
        ("BINARY(4)", "BYTES", Conversion.CHANGE),
        ("BYTES", "VARBINARY(4)", Conversion.KEEP),
        ("DECIMAL(10, 2)", "DECIMAL(12, 4)", Conversion.CHANGE),
        ("DECIMAL(10, 2)", "DECIMAL(9, 1)", Conversion.KEEP),
        ("DECIMAL(10, 2)", "DECIMAL(10, 4)", Conversion.REFUSE),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", Conversion.CHANGE),
        ("TIMESTAMP(6)", "TIMESTAMP(0)", Conversion.KEEP),
        ("TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", Conversion.REFUSE),
        ("TIME(0)", "TIME(3)", Conversion.KEEP),
        ("INT", "STRING", Conversion.REFUSE),
        ("STRING", "INT", Conversion.REFUSE),
        ("INT", "INT NOT NULL", Conversion.REFUSE),
        ("INT NOT NULL", "INT", Conversion.CHANGE),
        ("ARRAY<INT>", "ARRAY<BIGINT>", Conversion.CHANGE),
        ("ARRAY<STRING>", "STRING", Conversion.REFUSE),
        ("MAP<INT, INT>", "MAP<INT, BIGINT>", Conversion.CHANGE),
        ("MAP<INT, INT>", "MAP<BIGINT, INT>", Conversion.REFUSE),
        ("ROW<a INT>", "ROW<a BIGINT>", Conversion.CHANGE),
        ("ROW<a INT>", "ROW<a INT, b INT>", Conversion.CHANGE),
        ("ROW<a INT>", "ROW<a INT, b INT NOT NULL>", Conversion.REFUSE),
        ("ROW<a INT, b INT>", "ROW<a INT>", Conversion.CHANGE),
        ("ROW<a INT, b INT NOT NULL>", "ROW<a INT>", Conversion.REFUSE),
    ],
)
def test_a_type_follows_only_without_loss(old: str, new: str, expected: Conversion) -> None:
    assert conversion(parse_type(old), parse_type(new)) is expected


def test_a_new_column_is_nullable_and_last() -> None:
    given = {"id": "INT", "b": "STRING NOT NULL", "v": "INT"}

    assert list(evolved({"id": "INT", "v": "INT"}, given).items()) == [
        ("id", "INT"),
        ("v", "INT"),
        ("b", "STRING"),
    ]


def test_a_dropped_column_stays() -> None:
    assert evolved({"id": "INT", "v": "INT"}, {"id": "INT"}) == {"id": "INT", "v": "INT"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "BIGINT"),
        ("INT NOT NULL", "BIGINT"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("MAP<INT, FLOAT>", "MAP<INT, DOUBLE>"),
        ("ROW<`a` INT>", "ROW<`a` BIGINT, `b` STRING>"),
        ("INT NOT NULL", "INT"),
    ],
)
def test_the_table_has_the_new_type_after_the_changes(old: str, new: str) -> None:
    assert evolved({"id": "INT", "v": old}, {"id": "INT", "v": new})["v"] == new


def test_a_narrower_type_changes_nothing_even_inside_a_row() -> None:
    have = {"v": "ROW<`a` BIGINT, `b` INT>"}

    assert evolved(have, {"v": "ROW<`a` INT>"}) == have


def test_not_null_at_the_source_does_not_change_a_nullable_column() -> None:
    assert evolved({"v": "INT"}, {"v": "INT NOT NULL"}) == {"v": "INT"}


def test_decimals_stay_with_the_option() -> None:
    old, new = {"v": "DECIMAL(10, 2)"}, {"v": "DECIMAL(12, 2)"}

    assert evolved(old, new)["v"] == "DECIMAL(12, 2)"
    assert evolved(old, new, "decimal-no-change") == old


def test_a_number_becomes_text_only_with_the_option() -> None:
    with pytest.raises(InvalidRequest, match="cannot follow"):
        evolved({"v": "INT"}, {"v": "STRING"})

    assert evolved({"v": "INT"}, {"v": "STRING"}, "allow-non-string-to-string")["v"] == "STRING"


def test_the_type_of_a_key_cannot_follow() -> None:
    keyed = table({"id": "INT NOT NULL"}, key="id")

    with pytest.raises(InvalidRequest, match="column=id"):
        schema_changes(keyed, source({"id": "BIGINT NOT NULL"}))
    assert schema_changes(keyed, source({"id": "INT"})) == []


def test_comments_follow() -> None:
    have = table({"id": "INT"})
    changes = schema_changes(have, source({"id": "INT"}, comment="orders", id="the number"))

    after = evolve(have, changes, now_ms=0, has_snapshots=True)

    assert (after.comment, after.fields[0].description) == ("orders", "the number")


@pytest.mark.parametrize(
    ("have", "given", "message"),
    [
        ({"a": "INT"}, {"b": "INT"}, "lacks a column"),
        ({"a": "INT"}, {"a": "DATE"}, "no common values"),
    ],
)
def test_a_table_that_cannot_take_the_rows_is_refused(
    have: dict[str, str], given: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_compatible(table(have), source(given), name="d.t")


def test_a_table_with_wider_or_narrower_columns_is_taken() -> None:
    check_compatible(
        table({"a": "BIGINT", "b": "VARCHAR(5)", "c": "INT"}),
        source({"a": "INT NOT NULL", "b": "STRING"}),
        name="d.t",
    )


@pytest.mark.parametrize(
    ("old", "new", "strict", "lax"),
    [
        ("DECIMAL(10, 2)", "DECIMAL(9, 1)", True, True),
        ("DECIMAL(10, 2)", "DECIMAL(10, 1)", True, True),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", False, False),
        ("DECIMAL(10, 2)", "INT", True, True),
        ("TIMESTAMP(6)", "TIMESTAMP(0)", True, True),
        ("TIME(3)", "TIME(0)", True, True),
        ("DOUBLE", "FLOAT", True, True),
        ("BIGINT", "INT", False, True),
        ("VARCHAR(20)", "VARCHAR(5)", False, True),
        ("INT", "BIGINT", False, False),
        ("INT", "INT NOT NULL", False, True),
        ("INT NOT NULL", "INT", False, False),
    ],
)
def test_types_that_may_have_changed_values(old: str, new: str, *, strict: bool, lax: bool) -> None:
    kinds = parse_type(old), parse_type(new)
    assert [may_lose(*kinds, is_strict=each) for each in (True, False)] == [strict, lax]
    assert may_lose(kinds[0], None, is_strict=True)
