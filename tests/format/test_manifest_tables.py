"""Manifests in Parquet and ORC say what the same ones in Avro say."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format import manifest_files, metadata
from lakecore.format.avro_container import read_container
from lakecore.format.manifest_files import decode_entries, encode_entries
from lakecore.format.manifest_records import (
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
    read_records,
)
from tests.tables import entry, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"
FORMATS = ("parquet", "orc")
BYTE = {"_KIND", "_FILE_SOURCE"}
KINDS: dict[str, tuple[str, dict[str, Any], Callable[[bytes, str], list[Any]]]] = {
    "lists": ("manifest-list-*", MANIFEST_LIST_SCHEMA, manifest_files.decode_manifest_list),
    "entries": ("manifest-[!l]*", MANIFEST_SCHEMA, manifest_files.decode_manifest),
    "indexes": (
        "index-manifest-*",
        INDEX_MANIFEST_SCHEMA,
        metadata.decode_index_manifest,
    ),
}


def golden(pattern: str) -> list[Path]:
    """Some of the files of that name, of all fixtures."""
    found = sorted(FIXTURES.glob(f"*/**/manifest/{pattern}"))
    return found[:: max(1, len(found) // 12)]


def stored(schema: dict[str, Any], values: Iterator[Any]) -> tuple[pa.Schema, Any]:
    """Types and values as Java stores them: the numbers of kinds are bytes."""
    fields, record = [], {}
    for field in schema["fields"]:
        name, of = field["name"], field["type"]
        bare = of[1] if isinstance(of, list) else of
        if isinstance(of, dict) and of["type"] == "record":
            inner, record[name] = stored(of, values)
            kind: pa.DataType = pa.struct(list(inner))
        else:
            record[name] = next(values)
            kind = pa.int8() if name in BYTE else type_of(bare)
        fields.append(pa.field(name, kind, nullable=isinstance(of, list)))
    return pa.schema(fields), record


def type_of(of: Any) -> pa.DataType:
    if isinstance(of, list):
        return type_of(of[1])
    if isinstance(of, str):
        plain = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "bytes": pa.binary()}
        return plain[of]
    if of["type"] == "record":
        return pa.struct([(each["name"], type_of(each["type"])) for each in of["fields"]])
    return pa.list_(type_of(of["items"])) if of["type"] == "array" else pa.timestamp("ms")


def as_table(data: bytes, schema: dict[str, Any], file_format: str) -> bytes:
    """An Avro file as another engine writes it by the option `manifest.format`."""
    records = [stored(schema, iter(values)) for values in read_container(data, "avro", schema)]
    (types, _), *_ = records
    table = pa.Table.from_pylist([record for _, record in records], schema=types)
    sink = io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        orc.write_table(table, sink, compression="zstd")
    return sink.getvalue()


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_tables_hold_what_containers_hold(kind: str, file_format: str) -> None:
    pattern, schema, decode = KINDS[kind]
    compared = 0
    for path in golden(pattern):
        data = path.read_bytes()
        wanted = decode(data, str(path))
        if wanted:
            other = as_table(data, schema, file_format)
            compared += 1

            assert decode(other, str(path)) == wanted, path
            if kind == "entries":
                assert decode_entries(other, "other").equals(decode_entries(data, "avro"))

    assert compared > 3


def one_list() -> bytes:
    found = (path.read_bytes() for path in golden(KINDS["lists"][0]))
    return next(data for data in found if manifest_files.decode_manifest_list(data, "avro"))


@pytest.mark.parametrize("file_format", FORMATS)
def test_damaged_table_is_named(file_format: str) -> None:
    data = as_table(one_list(), MANIFEST_LIST_SCHEMA, file_format)
    for broken in (data[:4], data[: len(data) // 2], data[:-10]):
        with pytest.raises(CorruptTable, match=r"damaged.* path=m "):
            manifest_files.decode_manifest_list(broken, "m")


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_text_that_is_no_text_is_damage() -> None:
    data = pq.read_table(io.BytesIO(as_table(one_list(), MANIFEST_LIST_SCHEMA, "parquet")))
    sink = io.BytesIO()
    pq.write_table(data, sink, compression="none")
    name = data["_FILE_NAME"][0].as_py().encode()
    broken = sink.getvalue().replace(name, name[:-1] + b"\xff")

    with pytest.raises(CorruptTable, match=r"damaged.* path=m "):
        manifest_files.decode_manifest_list(broken, "m")


def test_field_that_may_be_null_may_be_missing_and_no_other() -> None:
    table = pq.read_table(io.BytesIO(as_table(one_list(), MANIFEST_LIST_SCHEMA, "parquet")))
    older = written(table.drop_columns(["_MIN_BUCKET", "_MAX_ROW_ID"]))
    first = manifest_files.decode_manifest_list(older, "m")[0]
    broken = written(table.drop_columns(["_FILE_SIZE"]))

    assert (first.bucket_min, first.row_id_max) == (None, None)
    with pytest.raises(CorruptTable, match=r"lacks a field. path=m field=_FILE_SIZE"):
        manifest_files.decode_manifest_list(broken, "m")


def test_field_of_another_type_and_a_null_where_none_may_be_are_refused() -> None:
    table = pq.read_table(io.BytesIO(as_table(one_list(), MANIFEST_LIST_SCHEMA, "parquet")))
    at = table.column_names.index("_FILE_SIZE")
    texts = table.set_column(at, "_FILE_SIZE", pa.array(["x"] * table.num_rows))
    nulls = table.set_column(at, "_FILE_SIZE", pa.nulls(table.num_rows, pa.int64()))

    with pytest.raises(CorruptTable, match="other columns"):
        read_records(written(texts), "m", MANIFEST_LIST_SCHEMA)
    with pytest.raises(CorruptTable, match=r"lacks a value. path=m field=_FILE_SIZE"):
        read_records(written(nulls), "m", MANIFEST_LIST_SCHEMA)


ENCODERS: dict[str, Callable[..., bytes]] = {
    "lists": manifest_files.encode_manifest_list,
    "entries": manifest_files.encode_manifest,
    "indexes": metadata.encode_index_manifest,
}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back_and_none_is_a_file_too(kind: str, file_format: str) -> None:
    pattern, _, decode = KINDS[kind]
    encode = ENCODERS[kind]
    for path in golden(pattern):
        wanted = decode(path.read_bytes(), str(path))

        assert decode(encode(wanted, "zstd", file_format), "m") == wanted, path
    assert decode(encode([], "none", file_format), "m") == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_codec_that_the_format_has_not_is_refused(file_format: str) -> None:
    with pytest.raises(InvalidRequest, match=f"value=bzip2 manifest_format={file_format}"):
        manifest_files.encode_manifest_list([], "bzip2", file_format)


@pytest.mark.parametrize("target", [300, 1 << 20])
@pytest.mark.parametrize("file_format", FORMATS)
def test_manifests_are_cut_at_the_target_and_none_is_smaller(file_format: str, target: int) -> None:
    first = entry(files("L0 a-m")[0])
    wanted = [
        replace(first, bucket=number, file=replace(first.file, name=f"data-{number * 7919}"))
        for number in range(2_000)
    ]
    frame = decode_entries(manifest_files.encode_manifest(wanted), "m")
    cut = list(encode_entries(frame, "zstd", target, file_format))

    assert [
        each for part in cut for each in manifest_files.decode_manifest(part.data, "m")
    ] == wanted
    assert [part.first for part in cut] == [
        sum(each.count for each in cut[:number]) for number in range(len(cut))
    ]
    assert len(cut) == 1 or all(len(part.data) >= target for part in cut)
    assert (len(cut) > 1) == (target < 1 << 20)
    assert list(encode_entries(frame.clear(), "zstd", target, file_format)) == []


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_manifest_that_says_it_is_huge_is_refused_unread(file_format: str) -> None:
    rows = pa.table({"_FILE_NAME": pa.repeat("m", 4_000_000)})
    out = io.BytesIO()
    if file_format == "parquet":
        pages = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 30}
        pq.write_table(rows, out, row_group_size=len(rows), write_batch_size=1 << 26, **pages)
    else:
        orc.write_table(rows, out, compression="zstd", dictionary_key_size_threshold=1.0)
    data = out.getvalue()
    assert len(data) < 3_000

    with pytest.raises(CorruptTable, match=r"cannot hold 4000000 rows.*"):
        metadata.decode_manifest_list(data, "p")
