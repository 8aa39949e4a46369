from __future__ import annotations

import pytest

import lakecore as lc
from lakecore.catalog.hive.metastore import parse_hosts
from lakecore.catalog.hive.views import HiveTables, location_of
from lakecore.catalog.identifier import Identifier
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.schema import TableSchema


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


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("key", ["paimon_location", "lakecore.renamed-from"])
def test_option_of_a_table_never_says_where_its_files_are(key: str, *, copies: bool) -> None:
    made = HiveTables(
        copies_properties=copies, location_in_properties=False, external=False, owner="me"
    )
    options = {key: "/victim", f"hive.{key}": "/victim", "lakecore.ignore-options": f"{key},hive.*"}
    schema = TableSchema(id=0, fields=(), highest_field_id=0, options=options)
    table = made.new_table(Identifier(database="d", table="t"), "/w/d.db/t", schema, now_ms=0)
    made.set_schema(table, schema, None)

    assert location_of(table.parameters, table.sd.location) == "/w/d.db/t"
    assert key not in table.parameters
