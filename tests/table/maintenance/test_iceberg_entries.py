"""Which entry of an Iceberg catalog is one of a table."""

from __future__ import annotations

import pytest

from lakecore.table.maintenance.iceberg_entries import Named


@pytest.mark.parametrize(
    ("root", "location", "is_own"),
    [
        ("/lake/shop.db/t", "/lake/shop.db/t/metadata/v1.metadata.json", True),
        ("/lake/shop.db/t", "file:///lake/shop.db/t/metadata/v1.metadata.json", True),
        ("/lake/shop.db/t", "/lake/iceberg/shop/t/metadata/v1.metadata.json", True),
        ("/lake/shop.db/t", "/lake/shop.db/t/v1.metadata.json", False),
        ("/lake/shop.db/t", "/lake/shop.db/t2/metadata/v1.metadata.json", False),
        ("/lake/shop.db/t", None, False),
        ("/lake/t", "/lake/t/metadata/v1.metadata.json", True),
        ("/lake/t", "/lake/iceberg/t/metadata/v1.metadata.json", False),
    ],
)
def test_document_is_one_of_the_table(root: str, location: str | None, *, is_own: bool) -> None:
    named = Named(databases=("shop",), table="t", root=root)
    assert named.has_metadata(location) is is_own
