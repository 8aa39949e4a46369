"""Row ids of new files, and groups of files that hold the same rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, Unsupported
from lakecore.model.files import DataFile, FileSource
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.rows import ROW_ID, TRACKING_FIELDS
from lakecore.model.validation import create_schema
from lakecore.options import parse_options
from lakecore.plan.predicate import Column, Op, compare
from lakecore.plan.row_ids import (
    anchor_of,
    by_row_ids,
    may_hold_row_ids,
    rows_of,
    with_row_ids,
    written_together,
)

FILE = DataFile(
    name="a",
    size_bytes=9,
    row_count=10,
    sequence_min=0,
    sequence_max=9,
    schema_id=0,
    file_source=FileSource.APPEND,
)


def entry(file: DataFile, kind: FileKind = FileKind.ADD) -> ManifestEntry:
    return ManifestEntry(kind=kind, partition=b"", bucket=0, total_buckets=-1, file=file)


def test_rows_of_new_files_get_ids_in_order() -> None:
    second = replace(FILE, name="b", row_count=3, sequence_min=10, sequence_max=12)
    entries, free = with_row_ids([entry(FILE), entry(second)], 100, 7)

    assert free == 113
    assert [each.file.first_row_id for each in entries] == [100, 110]
    assert {(each.file.sequence_min, each.file.sequence_max) for each in entries} == {(7, 7)}


def test_files_that_have_ids_keep_them() -> None:
    columns = replace(FILE, name="b", write_columns=("v",), first_row_id=20, sequence_max=0)
    copied = replace(FILE, name="c", write_columns=("v", "_ROW_ID"), sequence_min=3)
    compacted = replace(FILE, name="d", file_source=FileSource.COMPACT, sequence_min=4)
    gone = replace(FILE, name="e", first_row_id=0, sequence_min=2, sequence_max=2)
    given = [entry(columns), entry(copied), entry(compacted), entry(gone, FileKind.DELETE)]

    entries, free = with_row_ids(given, 100, 7)

    assert free == 100
    assert entries[0].file == replace(columns, sequence_min=7, sequence_max=7)
    assert entries[1].file.first_row_id is None
    assert [each.file for each in entries[2:]] == [compacted, gone]


def test_files_of_the_same_rows_are_a_group_with_the_newest_first() -> None:
    def file(name: str, first: int, count: int, sequence: int) -> DataFile:
        return replace(FILE, name=name, first_row_id=first, row_count=count, sequence_max=sequence)

    old, new, newest = (file(name, 5, 10, at) for name, at in (("x", 1), ("z", 4), ("y", 9)))
    alone = file("w", 0, 5, 2)

    groups = by_row_ids([old, newest, alone, new])

    assert groups == [(alone,), (newest, new, old)]
    assert anchor_of(groups[1]) == old


@pytest.mark.parametrize(
    ("first", "message"), [(None, "has no row ids"), (9, "row ids of two files overlap in part")]
)
def test_files_without_whole_groups_are_damage(first: int | None, message: str) -> None:
    other = replace(FILE, name="b", first_row_id=first)

    with pytest.raises(CorruptTable, match=message):
        by_row_ids([replace(FILE, first_row_id=0), other])


def test_a_file_holds_the_columns_it_names() -> None:
    schema = create_schema({"k": "INT", "v": "STRING"}, options={}, now_ms=0)
    names = ("_SEQUENCE_NUMBER", "v", "_ROW_ID")

    assert FILE.columns_of(schema) == schema.fields
    partial = replace(FILE, write_columns=names).columns_of(schema)
    assert partial == (schema.field("v"), *TRACKING_FIELDS)


def test_files_of_some_snapshots_are_joined_by_their_rows() -> None:
    def file(name: str, first: int, count: int, sequence: int) -> DataFile:
        return replace(FILE, name=name, first_row_id=first, row_count=count, sequence_max=sequence)

    new, columns, blob = file("a", 0, 10, 1), file("b", 0, 10, 2), file("c.blob", 0, 4, 3)
    later, alone = file("d.blob", 20, 2, 4), file("e.blob", 22, 3, 4)
    options = parse_options({})

    groups = written_together([new, alone, columns, later, blob], options)

    assert groups == [(columns, new, blob), (later,), (alone,)]
    assert [rows_of(group) for group in groups] == [range(10), range(20, 22), range(22, 25)]


@pytest.mark.parametrize("name", ["b", "b.blob"])
def test_rows_that_a_compaction_joined_in_between_are_refused(name: str) -> None:
    first = replace(FILE, first_row_id=0)
    joined = replace(FILE, name=name, first_row_id=0, row_count=20, sequence_max=12)

    with pytest.raises(Unsupported, match="a compaction joined"):
        written_together([first, joined], parse_options({}))


ROWS = (
    replace(FILE, name="a", first_row_id=0),
    replace(FILE, name="b", first_row_id=10),
    replace(FILE, name="c", first_row_id=0, write_columns=("v", ROW_ID)),
    replace(FILE, name="d", first_row_id=None),
)
BLOBS = tuple(
    replace(FILE, name=f"{first}.blob", first_row_id=first, row_count=5)
    for first in (0, 5, 10, 15, 20)
)
UNNUMBERED_BLOB = replace(BLOBS[0], first_row_id=None)


@pytest.mark.parametrize(
    ("files", "row_id", "found"),
    [
        (ROWS, None, "a b c d"),
        (ROWS, 0, "a c d"),
        (ROWS, 9, "a c d"),
        (ROWS, 10, "b c d"),
        (ROWS, 20, "c d"),
        ((*ROWS[:2], *BLOBS), 9, "a 0.blob 5.blob"),
        ((*ROWS[:2], *BLOBS), 10, "b 10.blob 15.blob"),
        ((*ROWS[:2], *BLOBS), 20, ""),
        ((ROWS[1], UNNUMBERED_BLOB), 0, "0.blob"),
        (BLOBS[:1], 7, "0.blob"),
        ((), 7, ""),
    ],
)
def test_row_id_is_looked_for_in_the_files_that_may_hold_it(
    files: tuple[DataFile, ...], row_id: int | None, found: str
) -> None:
    column = Column(ROW_ID, pa.int64())
    predicate = None if row_id is None else compare(column, Op.EQ, pa.scalar(row_id))

    mask = may_hold_row_ids(files, predicate)

    assert [file.name for file, may in zip(files, mask, strict=True) if may] == found.split()
