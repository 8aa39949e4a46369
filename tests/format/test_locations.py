from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.layout import canonical, is_local, is_within


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("/data/w", "/data/w"),
        ("data/w", "data/w"),
        ("a:b", "a:b"),
        ("file:/x", "/x"),
        ("file:///x", "/x"),
        ("file://localhost/x", "/x"),
        ("FILE://LOCALHOST/x", "/x"),
        ("File:/X", "/X"),
        ("file:x/y", "x/y"),
        ("file:///a%20b?c#d", "/a%20b?c#d"),
        ("/dt=a%2Fb", "/dt=a%2Fb"),
        ("S3://Bucket/Key", "s3://Bucket/Key"),
        ("s3A://b/a%2Fb", "s3a://b/a%2Fb"),
        ("MEMORY://Name/x", "memory://Name/x"),
        ("abfss://box@account.host/x", "abfss://box@account.host/x"),
    ],
)
def test_place_has_one_spelling(given: str, place: str) -> None:
    assert canonical(given) == place
    assert canonical(place) == place
    assert is_local(given) == ("://" not in place)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "empty"),
        ("file:", "empty"),
        ("file://", "empty"),
        ("file://server/share", "cannot name a host"),
        ("a\0b", "NUL"),
        ("s3://b/\ud800", "Unicode"),
        ("s3://b/a/../c", "does not resolve"),
        ("gs://b/./c", "does not resolve"),
        ("s3://key:secret@b/c", "credentials"),
        ("s3://key@b/c", "credentials"),
        ("abfss://user:secret@account.host/x", "credentials"),
        ("abfss://box:secret@x@account.host/x", "credentials"),
    ],
)
def test_text_that_names_no_place_is_refused(given: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        canonical(given)


@pytest.mark.parametrize(
    ("path", "root", "inside"),
    [
        ("/w/a", "/w", True),
        ("/w/a/b", "/w/", True),
        ("/w", "/w", False),
        ("/w/", "/w", False),
        ("/wide/a", "/w", False),
        ("/w/../a", "/w", False),
        ("/w/./a", "/w", False),
        ("/w//a", "/w", False),
        ("/a", "/", True),
        ("s3://b/a", "s3://b", True),
        ("s3://bb/a", "s3://b", False),
    ],
)
def test_place_is_within_a_root_by_whole_names(path: str, root: str, *, inside: bool) -> None:
    assert is_within(path, root) == inside
