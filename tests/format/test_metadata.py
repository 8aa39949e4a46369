"""Every metadata file of the golden tables decodes, says what Java said, and encodes again."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.avro_container import read_container, write_container
from lakecore.format.layout import Layout, parse_numbered
from lakecore.format.manifest_records import (
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
)
from lakecore.format.metadata import (
    decode_consumer,
    decode_hint,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_consumer,
    encode_hint,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    encode_schema,
    encode_snapshot,
    encode_tag,
)
from lakecore.model.files import (
    EMPTY_ROW,
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry, ManifestFile, fold
from lakecore.model.snapshot import CommitKind, Snapshot, Tag

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"
TABLES = sorted(
    path for path in FIXTURES.glob("*/table*") if path.is_dir() and (path / "schema").is_dir()
)
HEAD_TABLES = [path for path in TABLES if path.name == "table-head"]
SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="manifest-list-b",
    delta_manifest_list="manifest-list-d",
    commit_user="u",
    commit_identifier=7,
    commit_kind=CommitKind.APPEND,
    time_ms=1_700_000_000_000,
)
FILE = DataFile(
    name="data-u-0.parquet",
    size_bytes=10,
    row_count=3,
    key_min=b"\0\0\0\1min",
    key_max=b"\0\0\0\1max",
    key_stats=Stats(min_values=b"a", max_values=b"b", null_counts=(0,)),
    value_stats=Stats(min_values=b"c", max_values=b"d", null_counts=(0, None, 3)),
    sequence_min=0,
    sequence_max=2,
    schema_id=1,
    level=5,
    extra_files=("data-u-0.parquet.index",),
    creation_time_ms=1_700_000_000_001,
    delete_row_count=1,
    embedded_index=b"index",
    file_source=FileSource.COMPACT,
    value_stats_columns=("a", "b"),
    external_path="s3://b/data-u-0.parquet",
    first_row_id=100,
    write_columns=("a",),
    write_columns_sequences=(4, 5),
)
PLAIN_FILE = DataFile(
    name="data-u-1.parquet",
    size_bytes=10,
    row_count=3,
    sequence_min=0,
    sequence_max=2,
    schema_id=0,
)
ENTRIES = [
    ManifestEntry(kind=FileKind.ADD, partition=b"p", bucket=0, total_buckets=2, file=FILE),
    ManifestEntry(
        kind=FileKind.DELETE, partition=EMPTY_ROW, bucket=1, total_buckets=-1, file=PLAIN_FILE
    ),
]


def of(table: Path) -> str:
    return f"{table.parent.name}/{table.name}"


def snapshot_layouts(table: Path) -> list[Layout]:
    branches = [path.name.removeprefix("branch-") for path in table.glob("branch/branch-*")]
    return [Layout(root=str(table), branch=branch) for branch in ("main", *branches)]


def snapshots(layout: Layout) -> list[Snapshot]:
    return [
        decode_snapshot(path.read_bytes(), str(path))
        for path in Path(layout.snapshot_dir).iterdir()
        if parse_numbered(path.name, "snapshot-") is not None
    ]


def entries_of(layout: Layout, *lists: str | None) -> list[ManifestEntry]:
    out: list[ManifestEntry] = []
    for name in filter(None, lists):
        path = layout.manifest(name)
        for manifest in decode_manifest_list(Path(path).read_bytes(), path):
            data = Path(layout.manifest(manifest.name)).read_bytes()
            found = decode_manifest(data, manifest.name)
            assert len(data) == manifest.size_bytes
            assert len(found) == manifest.added_count + manifest.deleted_count
            out += found
    return out


def facts(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "bucket": entry.bucket,
        "totalBuckets": entry.total_buckets,
        "level": file.level,
        "rows": file.row_count,
        "deletes": -1 if file.delete_row_count is None else file.delete_row_count,
        "schema": file.schema_id,
        "minSeq": file.sequence_min,
        "maxSeq": file.sequence_max,
        "source": None if file.file_source is None else file.file_source.name,
        "format": file.format,
        "extraFiles": len(file.extra_files),
        "embeddedIndex": len(file.embedded_index or b""),
    }


def comparable(items: list[dict[str, Any]], names: set[str]) -> list[str]:
    return sorted(json.dumps({name: item.get(name) for name in sorted(names)}) for item in items)


def java_lines(table: Path, line: str, snapshot_id: int) -> list[dict[str, Any]]:
    name = "expected-head.json" if table.name == "table-head" else "expected.json"
    results = json.loads((table.parent / name).read_text("utf-8"))["results"]
    return [item for item in results if item["line"] == line and item["snapshot"] == snapshot_id]


# --- the golden tables --------------------------------------------------------------------------


def test_there_are_golden_tables() -> None:
    assert len(TABLES) >= 40


@pytest.mark.parametrize("table", TABLES, ids=of)
def test_snapshots_say_what_java_said(table: Path) -> None:
    for layout in snapshot_layouts(table):
        for snapshot in snapshots(layout):
            stated = {
                "line": "snapshot",
                "snapshot": snapshot.id,
                "kind": str(snapshot.commit_kind),
                "schema": snapshot.schema_id,
                "commitUser": snapshot.commit_user,
                "commitIdentifier": snapshot.commit_identifier,
                "totalRecords": snapshot.total_record_count,
                "deltaRecords": snapshot.delta_record_count,
                "changelogRecords": snapshot.changelog_record_count,
                "watermark": snapshot.watermark,
            }
            assert stated in java_lines(table, "snapshot", snapshot.id)


@pytest.mark.parametrize("table", TABLES, ids=of)
def test_live_files_are_those_java_saw(table: Path) -> None:
    names = set(facts(ENTRIES[0]))
    index_names = {"type", "bucket", "rowCount"}
    for layout in snapshot_layouts(table):
        for snapshot in snapshots(layout):
            live = fold(
                entries_of(layout, snapshot.base_manifest_list, snapshot.delta_manifest_list)
            )
            changelog = entries_of(layout, snapshot.changelog_manifest_list)
            index: list[dict[str, Any]] = []
            if snapshot.index_manifest is not None:
                path = layout.manifest(snapshot.index_manifest)
                index = [
                    {
                        "type": entry.file.index_type,
                        "bucket": entry.bucket,
                        "rowCount": entry.file.row_count,
                    }
                    for entry in decode_index_manifest(Path(path).read_bytes(), path)
                ]
            ours = (
                comparable([facts(entry) for entry in live], names),
                comparable([facts(entry) for entry in changelog], names),
                comparable(index, index_names),
            )
            theirs = [
                (
                    comparable(line["data"], names),
                    comparable(line["changelog"], names),
                    comparable(line["index"], index_names),
                )
                for line in java_lines(table, "files", snapshot.id)
            ]

            assert ours in theirs


@pytest.mark.parametrize("table", TABLES, ids=of)
def test_json_files_encode_to_what_decodes_the_same(table: Path) -> None:
    for path in table.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        again = data
        if path.name.startswith("schema-"):
            again = encode_schema(decode_schema(data, str(path)))
        elif path.name.startswith("snapshot-") or path.match("changelog/changelog-*"):
            snapshot = decode_snapshot(data, str(path))
            again = encode_snapshot(snapshot)
            assert decode_snapshot(again, "") == snapshot
        elif path.name.startswith("tag-"):
            tag = decode_tag(data, "t", str(path))
            again = encode_tag(tag)
            assert decode_tag(again, "t", "") == tag
        elif path.name.startswith("consumer-"):
            again = encode_consumer(decode_consumer(data, str(path)))
        elif path.name in ("LATEST", "EARLIEST"):
            hint = decode_hint(data)
            assert hint is not None
            again = encode_hint(hint)

        # 0.9 wrote `null`, 0 and empty maps for what is absent.
        assert again == data or (table.name == "table" and b'"logOffsets" : { }' in data), path


@pytest.mark.parametrize("table", TABLES, ids=of)
def test_avro_files_encode_to_what_decodes_the_same(table: Path) -> None:
    for path in (table / "manifest").iterdir():
        data, name = path.read_bytes(), str(path)
        if path.name.startswith("manifest-list-"):
            manifests = decode_manifest_list(data, name)
            again = encode_manifest_list(manifests)
            assert decode_manifest_list(again, "") == manifests
            assert encode_manifest_list(decode_manifest_list(again, "")) == again
        elif path.name.startswith("index-manifest-"):
            indexes = decode_index_manifest(data, name)
            again = encode_index_manifest(indexes)
            assert decode_index_manifest(again, "") == indexes
            assert encode_index_manifest(decode_index_manifest(again, "")) == again
        else:
            entries = decode_manifest(data, name)
            again = encode_manifest(entries)
            assert decode_manifest(again, "") == entries
            assert encode_manifest(decode_manifest(again, "")) == again


def java_schema_of(pattern: str) -> Any:
    path = min(HEAD_TABLES[0].glob(f"manifest/{pattern}"))
    return header_of(path.read_bytes())["schema"]


def header_of(data: bytes) -> dict[str, Any]:
    reader = fastavro.reader(io.BytesIO(data))
    return {"schema": reader.writer_schema, "codec": reader.codec, "names": set(reader.metadata)}


def as_java_writes(schema: Any) -> Any:
    """The schema without what does not count: order of keys, marks of the parser."""
    if isinstance(schema, dict):
        return {
            name: as_java_writes(part)
            for name, part in sorted(schema.items())
            if not name.startswith("__")
        }
    return [as_java_writes(part) for part in schema] if isinstance(schema, list) else schema


def test_avro_schemas_are_those_of_java() -> None:
    index_table = next(table for table in HEAD_TABLES if [*table.glob("manifest/index-*")])
    index = next(index_table.glob("manifest/index-manifest-*")).read_bytes()

    assert as_java_writes(MANIFEST_LIST_SCHEMA) == java_schema_of("manifest-list-*")
    assert as_java_writes(MANIFEST_SCHEMA) == java_schema_of("manifest-[0-9a-f]*")
    assert as_java_writes(INDEX_MANIFEST_SCHEMA) == header_of(index)["schema"]


def test_headers_are_those_of_java() -> None:
    for data, schema in [
        (encode_manifest(ENTRIES), MANIFEST_SCHEMA),
        (encode_manifest_list([]), MANIFEST_LIST_SCHEMA),
        (encode_index_manifest([]), INDEX_MANIFEST_SCHEMA),
    ]:
        header = header_of(data)

        assert header["codec"] == "zstandard"
        assert header["names"] == {"avro.codec", "avro.schema"}
        assert as_java_writes(header["schema"]) == as_java_writes(schema)
        assert b"__fastavro" not in data


def test_a_plain_avro_reader_sees_every_field() -> None:
    data = encode_manifest(ENTRIES, "none")

    full, plain = fastavro.reader(io.BytesIO(data))

    assert isinstance(full, dict)
    assert isinstance(plain, dict)
    assert (full["_VERSION"], full["_KIND"], plain["_KIND"]) == (2, 0, 1)
    assert full["_FILE"]["_VALUE_STATS"]["_NULL_COUNTS"] == [0, None, 3]
    assert full["_FILE"]["_CREATION_TIME"].timestamp() == pytest.approx(1_700_000_000.001)
    assert full["_FILE"]["_WRITE_COLS_SEQUENCES"] == [4, 5]
    assert plain["_FILE"]["_VALUE_STATS_COLS"] is None
    assert plain["_FILE"]["_KEY_STATS"]["_MIN_VALUES"] == EMPTY_ROW


# --- round trips of what the golden tables lack -------------------------------------------------


@pytest.mark.parametrize("compression", ["zstd", "none", "null", "snappy", "deflate", "bzip2"])
def test_manifest_survives_each_compression(compression: str) -> None:
    assert decode_manifest(encode_manifest(ENTRIES, compression), "") == ENTRIES


def test_manifest_of_many_blocks_keeps_its_order() -> None:
    entries = [
        replace(ENTRIES[0], bucket=number, file=replace(FILE, embedded_index=bytes(900)))
        for number in range(300)
    ]

    assert decode_manifest(encode_manifest(entries), "") == entries


def test_equal_partitions_are_one_object() -> None:
    entries = decode_manifest(encode_manifest([ENTRIES[0]] * 2), "")

    assert entries[0].partition is entries[1].partition


def test_equal_values_give_equal_bytes() -> None:
    assert encode_manifest(ENTRIES) == encode_manifest(list(ENTRIES))


def test_manifest_list_keeps_every_field() -> None:
    manifests = [
        ManifestFile(
            name="manifest-u-0",
            size_bytes=1,
            added_count=2,
            deleted_count=3,
            schema_id=4,
            partition_stats=Stats(min_values=b"a", max_values=b"b", null_counts=None),
            bucket_min=0,
            bucket_max=7,
            level_min=0,
            level_max=5,
            row_id_min=10,
            row_id_max=2**40,
        ),
        ManifestFile(name="m", size_bytes=1, added_count=0, deleted_count=0, schema_id=0),
    ]

    assert decode_manifest_list(encode_manifest_list(manifests), "") == manifests
    assert decode_manifest_list(encode_manifest_list([]), "") == []


def test_index_manifest_keeps_every_field() -> None:
    index = IndexFile(index_type="HASH", name="index-u-0", size_bytes=8, row_count=2)
    vectors = (
        VectorRange(data_file="a", offset=1, length=24, cardinality=2),
        VectorRange(data_file="b", offset=33, length=24),
    )
    whole = GlobalIndex(
        row_range_start=0,
        row_range_end=9,
        index_field_id=3,
        extra_field_ids=(4, 5),
        index_meta=b"m",
        source_meta=b"s",
    )
    files = [
        index,
        replace(index, index_type="DELETION_VECTORS", vectors=vectors, external_path="s3://b/i"),
        replace(index, index_type="DELETION_VECTORS", vectors=()),
        replace(index, index_type="btree", global_index=whole),
        replace(
            index,
            global_index=GlobalIndex(row_range_start=0, row_range_end=1, index_field_id=2),
        ),
    ]
    entries = [IndexEntry(partition=EMPTY_ROW, bucket=0, file=file) for file in files]

    assert decode_index_manifest(encode_index_manifest(entries), "") == entries


def test_snapshot_keeps_every_field() -> None:
    snapshot = replace(
        SNAPSHOT,
        uuid="x",
        base_manifest_list_size=1,
        delta_manifest_list_size=2,
        changelog_manifest_list="c",
        changelog_manifest_list_size=3,
        index_manifest="i",
        writer_version="lakecore",
        total_record_count=4,
        delta_record_count=-5,
        changelog_record_count=0,
        watermark=-(2**63),
        statistics="s",
        properties={"k": "ä"},
        next_row_id=0,
        operation="WRITE",
    )

    assert decode_snapshot(encode_snapshot(snapshot), "") == snapshot
    assert decode_snapshot(encode_snapshot(SNAPSHOT), "") == SNAPSHOT


def test_tag_keeps_its_retention() -> None:
    tag = Tag(
        name="t",
        snapshot=SNAPSHOT,
        create_time=(2024, 1, 2, 3, 4, 5, 678_000_000),
        retained_seconds=86400.5,
    )

    assert decode_tag(encode_tag(tag), "t", "") == tag
    assert decode_snapshot(encode_tag(tag), "") == SNAPSHOT


def test_tag_time_that_java_cut_short_is_filled_with_zeros() -> None:
    data = json.dumps(
        {**json.loads(encode_snapshot(SNAPSHOT)), "tagCreateTime": [2024, 1, 2, 3, 4]}
    )

    assert decode_tag(data.encode(), "t", "").create_time == (2024, 1, 2, 3, 4, 0, 0)


# --- old, new and broken files ------------------------------------------------------------------

SCHEMA_JSON: dict[str, Any] = {
    "version": 3,
    "id": 0,
    "fields": [{"id": 0, "name": "a", "type": "INT"}],
    "highestFieldId": 0,
    "partitionKeys": [],
    "primaryKeys": [],
    "options": {},
}


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (None, {"bucket": "1", "file.format": "orc"}),
        (1, {"bucket": "1", "file.format": "orc"}),
        (2, {"file.format": "orc"}),
        (3, {}),
    ],
)
def test_old_schema_spells_out_what_it_took_for_granted(
    version: int | None, options: dict[str, str]
) -> None:
    source = {**SCHEMA_JSON, "version": version}

    assert decode_schema(json.dumps(source).encode(), "").options == options


def test_old_schema_keeps_what_it_says() -> None:
    said = {"bucket": "4", "file.format": "avro"}
    source = {**SCHEMA_JSON, "version": 1, "options": said}

    assert decode_schema(json.dumps(source).encode(), "").options == said


def test_newer_versions_are_refused() -> None:
    schema = json.dumps({**SCHEMA_JSON, "version": 4}).encode()
    snapshot = encode_snapshot(replace(SNAPSHOT, version=4))

    with pytest.raises(Unsupported, match=r"newer format.*version=4.*path=schema-0"):
        decode_schema(schema, "schema-0")
    with pytest.raises(Unsupported, match=r"newer format.*version=4.*path=snapshot-1"):
        decode_snapshot(snapshot, "snapshot-1")
    with pytest.raises(Unsupported, match="newer format"):
        decode_tag(snapshot, "t", "tag-t")


def with_field(data: bytes, schema: dict[str, Any], name: str, value: int) -> bytes:
    (record,) = fastavro.reader(io.BytesIO(data))
    assert isinstance(record, dict)
    return write_container(schema, [{**record, name: value}], "zstd")


def test_other_manifest_versions_are_refused() -> None:
    one = ManifestFile(name="m", size_bytes=1, added_count=0, deleted_count=0, schema_id=0)
    manifest = encode_manifest(ENTRIES[:1], "none")
    listed = encode_manifest_list([one], "none")
    index = encode_index_manifest(
        [
            IndexEntry(
                partition=EMPTY_ROW,
                bucket=0,
                file=IndexFile(index_type="HASH", name="i", size_bytes=0, row_count=0),
            )
        ],
        "none",
    )

    with pytest.raises(Unsupported, match=r"another format.*version=1 known=2 path=p"):
        decode_manifest(with_field(manifest, MANIFEST_SCHEMA, "_VERSION", 1), "p")
    with pytest.raises(Unsupported, match=r"another format.*version=3 known=2 path=p"):
        decode_manifest_list(with_field(listed, MANIFEST_LIST_SCHEMA, "_VERSION", 3), "p")
    with pytest.raises(Unsupported, match=r"another format.*version=2 known=1 path=p"):
        decode_index_manifest(with_field(index, INDEX_MANIFEST_SCHEMA, "_VERSION", 2), "p")
    with pytest.raises(CorruptTable, match="adds files, and nothing else"):
        decode_index_manifest(with_field(index, INDEX_MANIFEST_SCHEMA, "_KIND", 1), "p")
    with pytest.raises(CorruptTable, match=r"unknown kind.*kind=2"):
        decode_manifest(with_field(manifest, MANIFEST_SCHEMA, "_KIND", 2), "p")


def test_unknown_json_fields_are_ignored() -> None:
    data = json.dumps({**json.loads(encode_snapshot(SNAPSHOT)), "fromTheFuture": [1]}).encode()

    assert decode_snapshot(data, "") == SNAPSHOT


def test_unknown_avro_fields_are_ignored_and_absent_ones_are_none() -> None:
    schema = {
        "type": "record",
        "name": "record",
        "fields": [
            {"name": "_NEW", "type": "string"},
            *[
                field
                for field in MANIFEST_LIST_SCHEMA["fields"]
                if not isinstance(field["type"], list)
            ],
        ],
    }
    (record,) = fastavro.reader(
        io.BytesIO(
            encode_manifest_list(
                [ManifestFile(name="m", size_bytes=1, added_count=2, deleted_count=3, schema_id=4)],
                "none",
            )
        )
    )
    assert isinstance(record, dict)
    parsed = fastavro.parse_schema(json.loads(json.dumps(as_java_writes(schema))))
    assert isinstance(parsed, dict)
    data = write_container(parsed, [{**record, "_NEW": "x"}], "zstd")

    (manifest,) = decode_manifest_list(data, "")

    assert manifest == ManifestFile(
        name="m", size_bytes=1, added_count=2, deleted_count=3, schema_id=4
    )


@pytest.mark.parametrize("missing", ["id", "commitKind", "deltaManifestList", "commitIdentifier"])
def test_snapshot_without_a_needed_field_is_corrupt(missing: str) -> None:
    source = json.loads(encode_snapshot(SNAPSHOT))
    del source[missing]

    with pytest.raises(CorruptTable, match=rf"lacks a field.*path=snapshot-1.*field={missing}"):
        decode_snapshot(json.dumps(source).encode(), "snapshot-1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "1"),
        ("id", True),
        ("totalRecordCount", 1 << 63),
        ("commitUser", 1),
        ("properties", {"a": 1}),
        ("properties", []),
    ],
)
def test_snapshot_field_of_another_type_is_corrupt(field: str, value: object) -> None:
    source = {**json.loads(encode_snapshot(SNAPSHOT)), field: value}

    with pytest.raises(CorruptTable, match="wrong type"):
        decode_snapshot(json.dumps(source).encode(), "snapshot-1")


def test_unknown_commit_kind_is_unsupported() -> None:
    source = {**json.loads(encode_snapshot(SNAPSHOT)), "commitKind": "REWRITE"}

    with pytest.raises(Unsupported, match="kind=REWRITE"):
        decode_snapshot(json.dumps(source).encode(), "snapshot-1")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"PAR1", b"12"])
def test_foreign_bytes_are_no_json_file(data: bytes) -> None:
    decoders: list[Callable[[bytes, str], object]] = [
        decode_schema,
        decode_snapshot,
        decode_consumer,
        lambda data, path: decode_tag(data, "t", path),
    ]
    for decode in decoders:
        with pytest.raises(CorruptTable, match="path=the/path"):
            decode(data, "the/path")


def test_schema_with_a_bad_column_is_corrupt() -> None:
    bad = json.dumps({**SCHEMA_JSON, "fields": [{"id": 0, "name": "a", "type": "INTT"}]}).encode()

    with pytest.raises(CorruptTable, match=r"bad column.*path=schema-0.*INTT"):
        decode_schema(bad, "schema-0")


@pytest.mark.parametrize("number", [None, "x", [1], True, 1.5, 1 << 40])
def test_id_of_a_column_is_a_number(number: object) -> None:
    bad = {**SCHEMA_JSON, "fields": [{"id": number, "name": "a", "type": "INT"}]}

    with pytest.raises(CorruptTable, match=r"bad column.*path=schema-0.*column=a"):
        decode_schema(json.dumps(bad).encode(), "schema-0")


@pytest.mark.parametrize("role", ["partitionKeys", "primaryKeys"])
@pytest.mark.parametrize("key", ["zz", None, 1])
def test_key_of_a_schema_is_one_of_its_columns(role: str, key: object) -> None:
    bad = {**SCHEMA_JSON, "fields": [{"id": 0, "name": "a", "type": "INT"}], role: ["a", key]}

    with pytest.raises(CorruptTable, match=rf"not a column.*path=schema-0.*field={role} key={key}"):
        decode_schema(json.dumps(bad).encode(), "schema-0")


@pytest.mark.parametrize(("ids", "names"), [((0, 0), "ab"), ((0, 1), "aa")])
def test_column_of_a_schema_is_there_once(ids: tuple[int, int], names: str) -> None:
    fields = [
        {"id": number, "name": name, "type": "INT"} for number, name in zip(ids, names, strict=True)
    ]

    with pytest.raises(CorruptTable, match=r"the same name or id.*path=schema-0"):
        decode_schema(json.dumps({**SCHEMA_JSON, "fields": fields}).encode(), "schema-0")


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1 2", b"\xff", b"9" * 30])
def test_unreadable_hint_is_no_hint(text: bytes) -> None:
    assert decode_hint(text) is None


def test_hint_may_end_in_a_newline() -> None:
    assert decode_hint(b"12\n") == 12


def test_truncated_manifest_is_corrupt_wherever_it_is_cut() -> None:
    for compression in ("zstd", "none"):
        data = encode_manifest(ENTRIES, compression)
        header_end = len(encode_manifest([], compression))
        for end in (*range(0, header_end, 37), *range(header_end + 1, len(data))):
            with pytest.raises(CorruptTable, match="path=m-0"):
                decode_manifest(data[:end], "m-0")


def test_damaged_block_is_corrupt() -> None:
    data = bytearray(encode_manifest(ENTRIES))
    data[-40:-16] = bytes(24)

    with pytest.raises(CorruptTable, match="path=m-0"):
        decode_manifest(bytes(data), "m-0")


def test_file_of_another_kind_is_corrupt() -> None:
    with pytest.raises(CorruptTable, match=r"lacks a field.*path=p"):
        decode_manifest(encode_manifest_list([]), "p")
    with pytest.raises(CorruptTable, match=r"not an Avro file.*path=p"):
        decode_manifest(b'{"version": 3}', "p")


def test_avro_field_of_another_type_is_corrupt() -> None:
    other = as_java_writes(MANIFEST_LIST_SCHEMA)
    other["fields"][1]["type"] = "bytes"
    parsed = fastavro.parse_schema(json.loads(json.dumps(other)))
    assert isinstance(parsed, dict)

    with pytest.raises(CorruptTable, match=r"another type.*_FILE_NAME"):
        list(read_container(write_container(parsed, [], "zstd"), "p", MANIFEST_LIST_SCHEMA))


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown manifest compression"):
        encode_manifest([], "lz4")


def test_large_manifest_is_decoded_and_encoded_fast() -> None:
    entries = [
        replace(
            ENTRIES[0],
            bucket=number % 8,
            file=replace(
                FILE,
                name=f"data-{number:032x}-0.parquet",
                value_stats=Stats(
                    min_values=bytes(150), max_values=bytes(150), null_counts=(0,) * 10
                ),
            ),
        )
        for number in range(2_000)
    ]

    started = time.process_time()
    data = encode_manifest(entries)
    encoded = time.process_time()
    assert decode_manifest(data, "") == entries
    decoded = time.process_time()

    # A generous bound: on an idle core it is 0.03 ms an entry to encode, 0.02 ms to decode.
    assert encoded - started < 1
    assert decoded - encoded < 1
