from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported
from lakecore.format.layout import (
    Layout,
    checksum_in,
    data_file_name,
    file_index_name,
    index_file_name,
    index_manifest_name,
    is_named_by_lakecore,
    manifest_list_name,
    manifest_name,
    parse_numbered,
    statistics_name,
)
from lakecore.model.files import DataFile, IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"
MAIN = Layout(root="/w/s.db/t")


def a_file(name: str, external_path: str | None = None) -> DataFile:
    return DataFile(
        name=name,
        size_bytes=1,
        row_count=1,
        sequence_min=0,
        sequence_max=0,
        schema_id=0,
        external_path=external_path,
    )


def test_metadata_lies_where_java_puts_it() -> None:
    assert MAIN.schema(0) == "/w/s.db/t/schema/schema-0"
    assert MAIN.snapshot(12) == "/w/s.db/t/snapshot/snapshot-12"
    assert MAIN.latest_hint == "/w/s.db/t/snapshot/LATEST"
    assert MAIN.earliest_hint == "/w/s.db/t/snapshot/EARLIEST"
    assert MAIN.tag("v1") == "/w/s.db/t/tag/tag-v1"
    assert MAIN.consumer("c") == "/w/s.db/t/consumer/consumer-c"
    assert MAIN.changelog(3) == "/w/s.db/t/changelog/changelog-3"
    assert MAIN.changelog_latest_hint == "/w/s.db/t/changelog/LATEST"
    assert MAIN.changelog_earliest_hint == "/w/s.db/t/changelog/EARLIEST"
    assert MAIN.manifest("manifest-x-0") == "/w/s.db/t/manifest/manifest-x-0"
    assert MAIN.index_file("index-x-0") == "/w/s.db/t/index/index-x-0"
    assert MAIN.statistics("stat-x-0") == "/w/s.db/t/statistics/stat-x-0"


def test_branch_has_its_own_metadata_and_the_table_s_data() -> None:
    branch = MAIN.on_branch("dev")

    assert branch.metadata_dir == "/w/s.db/t/branch/branch-dev"
    assert branch.schema(1) == "/w/s.db/t/branch/branch-dev/schema/schema-1"
    assert branch.snapshot(1) == "/w/s.db/t/branch/branch-dev/snapshot/snapshot-1"
    assert branch.tag("v1") == "/w/s.db/t/branch/branch-dev/tag/tag-v1"
    assert branch.consumer("c") == "/w/s.db/t/branch/branch-dev/consumer/consumer-c"
    assert branch.changelog(1) == "/w/s.db/t/branch/branch-dev/changelog/changelog-1"
    assert branch.manifest("m") == MAIN.manifest("m")
    assert branch.index_file("i") == MAIN.index_file("i")
    assert branch.statistics("s") == MAIN.statistics("s")
    assert branch.bucket_dir("", 0) == MAIN.bucket_dir("", 0)
    assert branch.on_branch("main") == MAIN


def test_buckets_lie_below_partitions() -> None:
    assert MAIN.bucket_dir("", 0) == "/w/s.db/t/bucket-0"
    assert MAIN.bucket_dir("dt=1/h=2", 3) == "/w/s.db/t/dt=1/h=2/bucket-3"
    assert MAIN.bucket_dir("", -2) == "/w/s.db/t/bucket-postpone"
    assert MAIN.partition_dir("dt=1") == "/w/s.db/t/dt=1"


def test_data_directory_moves_data_only() -> None:
    layout = Layout(root="/t", data_directory="data")

    assert layout.bucket_dir("dt=1", 0) == "/t/data/dt=1/bucket-0"
    assert layout.manifest("m") == "/t/manifest/m"


def test_external_path_is_where_a_file_lies() -> None:
    inside, outside = a_file("data-1.parquet"), a_file("data-2.parquet", "s3://b/x/data-2.parquet")

    assert MAIN.data_file("p=1", 0, inside) == "/w/s.db/t/p=1/bucket-0/data-1.parquet"
    assert MAIN.extra_file("", 0, inside, "a.index") == "/w/s.db/t/bucket-0/a.index"
    remote = Layout(root="s3://a/t", external_roots=("S3://b/x/", "/y"))
    assert remote.data_file("p=1", 0, outside) == "s3://b/x/data-2.parquet"
    assert remote.extra_file("", 0, outside, "a.index") == "s3://b/x/a.index"
    local = Layout(root="/t", external_roots=("file:/y",))
    assert local.data_file("", 0, a_file("d", "FILE://localhost/y/z/d")) == "/y/z/d"


@pytest.mark.parametrize(
    ("external", "error"),
    [
        ("s3://b/x/data", Unsupported),
        ("/y/../etc/passwd", InvalidRequest),
        ("/etc/passwd", InvalidRequest),
        ("/yy/data", InvalidRequest),
        ("/y", InvalidRequest),
        ("y/data", InvalidRequest),
        ("file:///etc/passwd", InvalidRequest),
        ("file://host/y/data", CorruptTable),
        ("s3://key:secret@b/x/data", CorruptTable),
        ("/y/a\0b", CorruptTable),
    ],
)
def test_external_path_is_within_a_declared_place(
    external: str, error: type[LakecoreError]
) -> None:
    layout = Layout(root="/w/s.db/t", external_roots=("/y", "s3://b/x"))

    with pytest.raises(error):
        layout.data_file("", 0, a_file("data", external))
    index = IndexFile(
        index_type="HASH", name="i", size_bytes=0, row_count=0, external_path=external
    )
    with pytest.raises(error):
        layout.live_index_file("", 0, index)


HOSTILE = ["", ".", "..", "/", "/etc/passwd", "../x", "a/b", "a\\b", "a\0b", "a\nb", "x" * 256]
HOSTILE += ["\ud800", "é" * 128, "s3://b/x", "file:///etc/passwd", "a/../../b", "\x7f", "a/"]
PATHS: dict[str, Callable[[str], str]] = {
    "manifest": MAIN.manifest,
    "statistics": MAIN.statistics,
    "index file": MAIN.index_file,
    "index file beside data": lambda name: replace(MAIN, index_in_data_dir=True).index_file(name),
    "data file": lambda name: MAIN.data_file("p=1", 0, a_file(name)),
    "new data file": lambda name: MAIN.file_in_bucket("", 0, name),
    "extra file": lambda name: MAIN.extra_file("", 0, a_file("d"), name),
    "live index file": lambda name: MAIN.live_index_file(
        "", 0, IndexFile(index_type="HASH", name=name, size_bytes=0, row_count=0)
    ),
}
GIVEN: dict[str, Callable[[str], str]] = {
    "tag": MAIN.tag,
    "success file": MAIN.tag_success,
    "consumer": MAIN.consumer,
    "branch": lambda name: MAIN.on_branch(name).snapshot_dir,
}


@pytest.mark.parametrize("what", [*PATHS, *GIVEN])
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_leads_out_of_its_directory(what: str, name: str) -> None:
    if what in GIVEN and name in {"", ".", ".."}:  # `tag-..` is a name like any other
        assert GIVEN[what](name).startswith("/w/s.db/t/")
        return
    with pytest.raises(InvalidRequest if what in GIVEN else CorruptTable, match="leads out"):
        {**PATHS, **GIVEN}[what](name)


@given(name=st.text(max_size=300))
@pytest.mark.parametrize("what", [*PATHS, *GIVEN])
def test_name_is_one_below_its_directory_or_refused(what: str, name: str) -> None:
    make = {**PATHS, **GIVEN}[what]
    try:
        path = make(name)
    except (CorruptTable, InvalidRequest):
        return
    plain = make("x")
    depth = 1 if what != "branch" else 2
    names, parent = path.split("/"), plain.split("/")
    assert len(names) == len(parent)
    assert names[:-depth] == parent[:-depth]
    assert os.path.normpath(path) == path
    assert "\0" not in path
    assert all(len(each.encode()) <= 255 for each in names)


def test_index_files_may_lie_beside_data() -> None:
    beside = Layout(root="/t", index_in_data_dir=True)
    index = IndexFile(index_type="HASH", name="index-u-0", size_bytes=0, row_count=0)

    assert beside.index_file("index-u-0", "p=1", 2) == "/t/p=1/bucket-2/index-u-0"
    assert beside.live_index_file("p=1", 2, index) == "/t/p=1/bucket-2/index-u-0"
    assert MAIN.live_index_file("p=1", 2, index) == "/w/s.db/t/index/index-u-0"


def test_root_may_be_a_uri_or_end_in_a_slash() -> None:
    assert Layout(root="s3://b/t/").snapshot(1) == "s3://b/t/snapshot/snapshot-1"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("snapshot-1", 1),
        ("snapshot-007", 7),
        ("snapshot-9223372036854775807", 2**63 - 1),
        ("snapshot-9223372036854775808", None),
        ("snapshot-", None),
        ("snapshot-1.tmp", None),
        ("snapshot--1", None),
        ("snapshot-1 ", None),
        ("snapshot-\u0661", None),
        (".snapshot-1.6b7a.tmp", None),
        ("LATEST", None),
        ("1", None),
    ],
)
def test_only_exact_names_have_a_number(name: str, number: int | None) -> None:
    assert parse_numbered(name, "snapshot-") == number


def test_file_names_are_prefix_writer_and_counter() -> None:
    assert data_file_name("data-", "u", 0, "parquet") == "data-u-lc0.parquet"
    assert data_file_name("c-", "u", 7, "avro", "zstd") == "c-u-lc7.zst.avro"
    assert data_file_name("data-", "u", 0, "orc", "none") == "data-u-lc0.orc"
    assert data_file_name("data-", "u", 0, "parquet", "SNAPPY") == "data-u-lc0.snappy.parquet"
    assert file_index_name("data-u-0.parquet") == "data-u-0.parquet.index"
    assert manifest_name("u", 1) == "manifest-u-1"
    assert manifest_list_name("u", 1) == "manifest-list-u-1"
    assert index_manifest_name("u", 1) == "index-manifest-u-1"
    assert index_file_name("u", 1) == "index-u-1"


@pytest.mark.parametrize("prefix", ["data-", "-lc0.", "x-lc1"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_name_says_whether_lakecore_gave_it(prefix: str, compression: str | None) -> None:
    writer = "7d4e8a52-0c3f-4b1e-9a66-1f2b3c4d5e6f"
    own = data_file_name(prefix, writer, 12, "parquet", compression)

    assert is_named_by_lakecore(own)
    assert not is_named_by_lakecore(own.replace("-lc12", "-12"))
    assert index_file_name("u", 0, 0xAB) == "index-u-0-crc32-000000ab"
    assert statistics_name("u", 1) == "stat-u-1"


def test_checksum_of_an_index_file_is_in_its_name() -> None:
    assert checksum_in(index_file_name("u", 0, 2**32 - 1)) == 2**32 - 1
    assert checksum_in(index_file_name("u", 12345678)) is None
    assert checksum_in("index-u-crc32-000000ab-0") is None


def test_paths_of_a_real_table_are_there() -> None:
    root = FIXTURES / "tag_branch_consumer_statistics" / "table-head"
    layout = Layout(root=str(root))
    branch = layout.on_branch("dev")

    for path in [
        layout.schema(0),
        layout.snapshot(3),
        layout.latest_hint,
        layout.earliest_hint,
        layout.tag("v1"),
        layout.consumer("reader"),
        layout.changelog(1),
        layout.changelog_latest_hint,
        layout.changelog_earliest_hint,
        branch.schema(0),
        branch.snapshot(1),
        branch.latest_hint,
        branch.tag("v1"),
    ]:
        assert Path(path).is_file(), path
