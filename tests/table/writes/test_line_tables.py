from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table


def table(path: Path, kind: str, schema: dict[str, str], **options: str) -> Table:
    stated = {"file.format": kind, "file.compression": "none", **options}
    return lc.open_table(path / "t", create=True, schema=schema, options=stated)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_rows_are_read_pruned_deleted_and_packed(kind: str, tmp_path: Path) -> None:
    made = table(tmp_path, kind, {"a": "INT", "s": "STRING", "d": "DATE"})
    made.write({"a": [1, 2], "s": ["x,y", None]})
    made.write({"a": [3], "s": ["z"]})
    made.delete("a = 2")

    assert sorted(made.to_polars(["s", "a"]).rows()) == [("x,y", 1), ("z", 3)]
    assert made.count("a > 1") == 1
    assert made.explain(where="a > 2").files_kept == 1
    made.compact(full=True)
    assert sorted(made.to_polars(["a"])["a"]) == [1, 3]
    assert made.to_arrow_dataset().count_rows() == 2
    assert made.inspect.files()["file_format"].unique().to_list() == [kind]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_of_old_schemas_are_read(kind: str, tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("d")
    options = {"file.format": kind, "file.compression": "none"}
    made = catalog.create_table("d.t", {"a": "INT", "s": "STRING"}, options=options)
    made.write({"a": [1], "s": ["7"]})
    changes = [
        lc.SchemaChange.rename_column("a", "b"),
        lc.SchemaChange.add_column("n", "DOUBLE", None, lc.Move.first()),
        lc.SchemaChange.update_column_type("s", "INT"),
    ]
    catalog.alter_table("d.t", changes)

    assert catalog.get_table("d.t").to_polars().rows() == [(None, 1, 7)]


def test_a_refused_value_leaves_no_rows(tmp_path: Path) -> None:
    made = table(tmp_path, "csv", {"a": "INT", "s": "STRING"})

    with pytest.raises(InvalidRequest, match="column=s"):
        made.write({"a": [1, 2], "s": ["fine", "two\nlines"]})
    assert made.to_polars().height == 0
    assert not list((tmp_path / "t").rglob("*.csv"))


def test_a_primary_key_needs_another_format(tmp_path: Path) -> None:
    made = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"a": "INT NOT NULL"},
        primary_keys=["a"],
        options={"file.format": "json", "file.compression": "none"},
    )

    with pytest.raises(Unsupported, match=r"option=file\.format"):
        made.write({"a": [1]})


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ({"l": "ARRAY<INT>"}, {}, "column=l"),
        ({"t": "TIMESTAMP_LTZ(3)"}, {}, "column=t"),
        ({"a": "INT"}, {"csv.field-delimiter": "||"}, r"csv\.field-delimiter"),
        ({"a": "INT"}, {"file.compression": "zstd"}, r"file\.compression=none"),
    ],
)
def test_what_files_cannot_hold_is_unsupported(
    schema: dict[str, str], options: dict[str, str], says: str, tmp_path: Path
) -> None:
    made = table(tmp_path, "csv", schema, **options)

    with pytest.raises(Unsupported, match=says):
        made.write({next(iter(schema)): [None]})


def test_damaged_lines_are_corrupt(tmp_path: Path) -> None:
    made = table(tmp_path, "csv", {"a": "INT"})
    made.write({"a": [10, 20]})
    (file,) = (tmp_path / "t").rglob("*.csv")

    file.write_text("10\nxx\n")
    with pytest.raises(CorruptTable, match="column=a"):
        made.to_arrow()
    file.write_text("10   \n")
    with pytest.raises(CorruptTable):
        made.to_arrow()
