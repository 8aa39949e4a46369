"""Which files descriptors of BLOB values may name."""

from __future__ import annotations

import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.blob_references import managed_here, referenced
from lakecore.format.layout import Layout

LOCAL = Layout(root="/w/d.db/t", blob_roots=("/images/", "file:/scans"))
REMOTE = Layout(root="s3://b/w/t", blob_roots=("s3a://b/images", "oss://c/scans"))


@pytest.mark.parametrize(
    ("layout", "uri", "expected"),
    [
        (LOCAL, "/w/d.db/t/bucket-0/a.blob", "/w/d.db/t/bucket-0/a.blob"),
        (LOCAL, "file:///images/a/b c%20.png", "/images/a/b c%20.png"),
        (LOCAL, "/scans/x", "/scans/x"),
        (REMOTE, "s3n://b/w/t/a", "s3://b/w/t/a"),
        (REMOTE, "s3://b/images/a", "s3://b/images/a"),
        (REMOTE, "oss://c/scans/a", "oss://c/scans/a"),
    ],
)
def test_files_that_may_be_read(layout: Layout, uri: str, expected: str) -> None:
    assert referenced(layout, uri) == expected


@pytest.mark.parametrize(
    ("layout", "uri"),
    [
        *((LOCAL, uri) for uri in ("/etc/passwd", "/w/d.db/u/a", "/w/d.db/t", "/images", "a")),
        *((LOCAL, uri) for uri in ("/images/../etc/x", "/w/d.db/t/../u/a", "/w/d.db/t//a", "")),
        *((LOCAL, uri) for uri in ("https://h/images/a", "s3://images/a", "file://h/images/a")),
        *(
            (REMOTE, uri)
            for uri in ("s3://other/w/t/a", "/w/t/a", "s3://b/w/t/../u", "oss://b/w/t/a")
        ),
        *((REMOTE, uri) for uri in ("s3://k:s@b/w/t/a", "s3://b/images\0/a", "s3://b/imagesx/a")),
    ],
)
def test_other_files_are_refused(layout: Layout, uri: str) -> None:
    with pytest.raises(InvalidRequest):
        referenced(layout, uri)


def test_managed_files_are_found_by_partition_bucket_and_name() -> None:
    old = "/old/t/p=a/q=b/bucket-3/data-9.managed.blob"
    assert managed_here(LOCAL, old) == "/w/d.db/t/p=a/q=b/bucket-3/data-9.managed.blob"
    assert managed_here(LOCAL, "bucket-3/x.managed.blob") == "/w/d.db/t/bucket-3/x.managed.blob"
    for other in ("/old/t/bucket-3/data-9.blob", "/old/x.managed.blob", "x.managed.blob", ""):
        assert managed_here(LOCAL, other) is None
    for damaged in ("/t/bucket-\n/x.managed.blob", "/t/p=\0/bucket-0/x.managed.blob"):
        with pytest.raises(CorruptTable, match="leads out"):
            managed_here(LOCAL, damaged)
