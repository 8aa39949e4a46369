from __future__ import annotations

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.hive.client import parse_hosts


def test_hosts_are_read_in_their_order() -> None:
    assert parse_hosts("thrift://a:1, thrift://b") == (("a", 1), ("b", 9083))


@pytest.mark.parametrize("uri", ["", "http://a:1", "thrift://", "thrift://a:x", "thrift://a/b"])
def test_uri_that_names_no_metastore_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="option=uri"):
        parse_hosts(uri)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"case-sensitive": "true"}, Unsupported),
        ({"table.type": "other"}, InvalidRequest),
        ({"hive-conf-dir": "/etc/hive"}, Unsupported),
        ({"jdbc.user": "me"}, Unsupported),
        ({"alter-table-cascades": "true"}, InvalidRequest),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], error: type[lc.LakecoreError]) -> None:
    given = {"metastore": "hive", "uri": "thrift://127.0.0.1:1", "warehouse": "/x", **options}

    with pytest.raises(error, match=next(iter(options))):
        lc.connect(given)
