"""Comments of columns that say how their values are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.model.column_rules import apply_directive, without_column
from lakecore.model.types import Field, parse_type

if TYPE_CHECKING:
    from pathlib import Path


def applied(kind: str, comment: str | None, **options: str) -> tuple[str, str | None, str]:
    named = {key.replace("_", "-"): text for key, text in options.items()}
    field = Field(id=0, name="c", type=parse_type(kind), description=comment)
    field, kept = apply_directive(field, named)
    ((_, value),) = kept.items()
    return str(field.type), field.description, value


@pytest.mark.parametrize(
    ("kind", "comment", "expected"),
    [
        ("BYTES", "__BLOB_FIELD", ("BLOB", None, "a,c")),
        ("BYTES NOT NULL", " __BLOB_FIELD ; an image ", ("BLOB NOT NULL", "an image", "a,c")),
        ("BLOB", "__BLOB_FIELD;", ("BLOB", None, "a,c")),
        ("ARRAY<BINARY(3)>", "__BLOB_FIELD;x;y", ("ARRAY<BLOB>", "x;y", "a,c")),
        ("MAP<INT, BYTES>", "__BLOB_FIELD", ("MAP<INT, BLOB>", None, "a,c")),
    ],
)
def test_blob_directives(kind: str, comment: str, expected: tuple[str, str | None, str]) -> None:
    assert applied(kind, comment, blob_field="a") == expected


@pytest.mark.parametrize("kind", ["descriptor", "view"])
def test_directives_of_references(kind: str) -> None:
    comment = f"__BLOB_{kind.upper()}_FIELD; a scan"
    options = {f"blob_{kind}_field": "a"}

    assert applied("BYTES NOT NULL", comment, **options) == ("BLOB NOT NULL", "a scan", "a,c")


def test_a_directive_adds_to_the_older_key_of_its_option() -> None:
    field = Field(id=0, name="c", type=parse_type("BYTES"), description="__BLOB_DESCRIPTOR_FIELD")
    _, kept = apply_directive(field, {"blob.stored-descriptor-fields": "a"})
    assert kept == {"blob-descriptor-field": "a,c"}
    assert without_column(kept, "a") == {"blob-descriptor-field": "c"}


def test_vector_directive() -> None:
    expected = ("VECTOR<FLOAT, 3>", "of words", "c")
    assert applied("ARRAY<FLOAT>", "__VECTOR_FIELD; 3; of words", vector_field="c") == expected


def test_other_comments_stay() -> None:
    assert applied("BYTES", "a __BLOB_FIELD", other="x") == ("BYTES", "a __BLOB_FIELD", "x")
    assert applied("INT", None, other="x") == ("INT", None, "x")


@pytest.mark.parametrize(
    ("kind", "comment", "error", "match"),
    [
        ("INT", "__BLOB_FIELD", InvalidRequest, "does not fit"),
        ("ARRAY<ARRAY<BYTES>>", "__BLOB_FIELD", InvalidRequest, "does not fit"),
        ("ARRAY<FLOAT>", "__VECTOR_FIELD", InvalidRequest, "does not fit"),
        ("ARRAY<FLOAT>", "__VECTOR_FIELD; 0", InvalidRequest, "length of a VECTOR"),
        ("FLOAT", "__VECTOR_FIELD; 3", InvalidRequest, "does not fit"),
        ("BYTES", "__BLOBS; 3", InvalidRequest, "no directive"),
        ("ARRAY<BYTES>", "__BLOB_VIEW_FIELD; 3", InvalidRequest, "does not fit"),
        ("MAP<INT, BLOB>", "__BLOB_DESCRIPTOR_FIELD", InvalidRequest, "does not fit"),
    ],
)
def test_directives_that_are_refused(
    kind: str, comment: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        applied(kind, comment)


def test_a_dropped_column_is_named_no_more() -> None:
    options = {"blob-field": "a, b", "vector-field": "a", "bucket": "-1"}
    assert without_column(options, "a") == {"blob-field": "b", "bucket": "-1"}


def test_tables_follow_directives_and_their_blob_columns_come_and_go(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    session.sql(
        "CREATE TABLE d.t (k INT, a BYTES COMMENT '__BLOB_FIELD; an image') TBLPROPERTIES ("
        "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true')"
    )
    add = lc.SchemaChange.add_column("b", "ARRAY<BYTES>", comment="__BLOB_FIELD; more")
    session.alter_table("d.t", [add])
    table = session.get_table("d.t")
    table.write([{"k": 1, "a": b"x", "b": [b"y"]}])

    assert [str(field.type) for field in table.schema.fields] == ["INT", "BLOB", "ARRAY<BLOB>"]
    assert [field.description for field in table.schema.fields] == [None, "an image", "more"]
    assert table.schema.options["blob-field"] == "a,b"
    with pytest.raises(InvalidRequest, match="BLOB column cannot be renamed"):
        session.alter_table("d.t", [lc.SchemaChange.rename_column("a", "z")])
    session.alter_table("d.t", [lc.SchemaChange.drop_column("a")])
    table = session.get_table("d.t")
    assert table.schema.options["blob-field"] == "b"
    assert table.to_arrow().to_pylist() == [{"k": 1, "b": [b"y"]}]


@pytest.mark.parametrize("comment", ["__BLOB_FIELD", " __BLOBS; x", "__VECTOR_FIELD; 3"])
def test_a_directive_for_a_column_that_cannot_follow_it_is_refused(
    tmp_path: Path, comment: str
) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    session.sql("CREATE TABLE d.t (k INT, a BYTES, r ROW<x INT>)")

    for change in (
        lc.SchemaChange.update_column_comment("a", comment),
        lc.SchemaChange.update_column_comment(["r", "x"], comment),
        lc.SchemaChange.add_column(["r", "y"], "BYTES", comment=comment),
    ):
        with pytest.raises(InvalidRequest, match="only of a new column of a table"):
            session.alter_table("d.t", [change])
    assert session.get_table("d.t").schema.id == 0
    session.alter_table("d.t", [lc.SchemaChange.update_column_comment("a", f"no {comment}")])
