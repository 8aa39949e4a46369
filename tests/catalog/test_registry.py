from __future__ import annotations

from inspect import getmembers, isfunction, signature
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.metastore_catalog import MetastoreNames
from lakecore.catalog.names import Names
from lakecore.catalog.registry import CATALOGS, open_catalog
from lakecore.catalog.rest.rest_catalog import ServedNames
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from pathlib import Path

OFFERED, ASKED = (
    {
        name: signature(method)
        for name, method in getmembers(kind, isfunction)
        if not name.startswith("_")
    }
    for kind in (Catalog, Names)
)

CLASSES = {
    "filesystem": DirectoryNames,
    "jdbc": MetastoreNames,
    "hive": MetastoreNames,
    "rest": ServedNames,
}


def test_unknown_metastore_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match=r"unknown metastore.*known=\[filesystem, jdbc"):
        lc.connect({"warehouse": "/data/w", "metastore": "filesytem"})


@pytest.mark.parametrize("stated", [{}, {"metastore": "filesystem"}])
def test_filesystem_metastore_is_the_default(stated: dict[str, str], tmp_path: Path) -> None:
    catalog = open_catalog({"warehouse": str(tmp_path), **stated}, create=False)

    assert isinstance(catalog.names, DirectoryNames)
    assert catalog.warehouse == str(tmp_path)


def test_missing_warehouse_is_made_only_where_the_caller_says_so(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path / "w")}
    with pytest.raises(NotFound, match="no such warehouse"):
        open_catalog(options, create=False)

    open_catalog(options, create=True)

    assert (tmp_path / "w").is_dir()


@pytest.mark.parametrize("metastore", CATALOGS)
def test_the_names_of_every_catalog_have_all_calls(metastore: str) -> None:
    names = CLASSES[metastore]
    found = {name: signature(getattr(names, name, lambda: None)) for name in ASKED}
    found["find"] = found["find"].replace(return_annotation="Place | None")

    assert found == ASKED


def test_a_session_passes_on_the_verbs_of_a_catalog_unchanged() -> None:
    passed_on = {name: given for name, given in OFFERED.items() if hasattr(lc.Session, name)}

    assert OFFERED.keys() - passed_on.keys() == {"list_branches", "list_tags"}
    assert {name: signature(getattr(lc.Session, name)) for name in passed_on} == passed_on
