from __future__ import annotations

from inspect import getmembers, isfunction, signature
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import FilesystemCatalog
from lakecore.catalog.metastore_catalog import MetastoreCatalog
from lakecore.catalog.registry import CATALOGS, open_catalog
from lakecore.catalog.rest.rest_catalog import RestCatalog
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from pathlib import Path

OFFERED = {
    name: signature(method)
    for name, method in getmembers(Catalog, isfunction)
    if not name.startswith("_")
}

CLASSES = {
    "filesystem": FilesystemCatalog,
    "jdbc": MetastoreCatalog,
    "hive": MetastoreCatalog,
    "rest": RestCatalog,
}


def test_unknown_metastore_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match=r"unknown metastore.*known=\[filesystem, jdbc"):
        lc.connect({"warehouse": "/data/w", "metastore": "filesytem"})


@pytest.mark.parametrize("stated", [{}, {"metastore": "filesystem"}])
def test_filesystem_metastore_is_the_default(stated: dict[str, str], tmp_path: Path) -> None:
    catalog = open_catalog({"warehouse": str(tmp_path), **stated}, create=False)

    assert isinstance(catalog, FilesystemCatalog)
    assert catalog.warehouse == str(tmp_path)


def test_missing_warehouse_is_made_only_where_the_caller_says_so(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path / "w")}
    with pytest.raises(NotFound, match="no such warehouse"):
        open_catalog(options, create=False)

    open_catalog(options, create=True)

    assert (tmp_path / "w").is_dir()


@pytest.mark.parametrize("metastore", CATALOGS)
def test_every_catalog_has_the_calls_of_the_protocol(metastore: str) -> None:
    offered = CLASSES[metastore]

    assert {name: signature(getattr(offered, name, lambda: None)) for name in OFFERED} == OFFERED


def test_a_session_passes_on_the_verbs_of_a_catalog_unchanged() -> None:
    passed_on = {name: given for name, given in OFFERED.items() if hasattr(lc.Session, name)}

    assert OFFERED.keys() - passed_on.keys() == {"list_branches", "list_tags"}
    assert {name: signature(getattr(lc.Session, name)) for name in passed_on} == passed_on
