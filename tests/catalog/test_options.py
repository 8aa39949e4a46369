from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.options import is_storage_option, parse_catalog_options
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.session import connect, open_table

if TYPE_CHECKING:
    from pathlib import Path

WAREHOUSE = {"warehouse": "/data/w"}


@pytest.mark.parametrize("options", [{}, {"warehouse": ""}, {"warehouse": "  "}])
def test_catalog_needs_a_warehouse(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="no warehouse"):
        parse_catalog_options(options)


def test_table_defaults_lose_their_prefix() -> None:
    options = parse_catalog_options({**WAREHOUSE, "table-default.file.format": "orc"})

    assert options.table_defaults == {"file.format": "orc"}


def test_unknown_table_default_is_refused_before_a_table_is_made() -> None:
    with pytest.raises(InvalidRequest, match=r"file\.fromat"):
        parse_catalog_options({**WAREHOUSE, "table-default.file.fromat": "orc"})


def test_unknown_option_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidRequest, match="option=warehous did_you_mean=warehouse"):
        parse_catalog_options({**WAREHOUSE, "warehous": "x"})


def test_table_option_is_no_catalog_option() -> None:
    with pytest.raises(InvalidRequest, match=r"begin with table-default\."):
        parse_catalog_options({**WAREHOUSE, "bucket": "4"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lock.enabled", "true"),
        ("lock.type", "zookeeper"),
        ("cache-enabled", "true"),
        ("cache.expire-after-write", "1 min"),
        ("case-sensitive", "false"),
        ("uri", "thrift://h:9083"),
        ("table.type", "external"),
    ],
)
def test_known_option_that_asks_for_more_is_unsupported(key: str, value: str) -> None:
    with pytest.raises(Unsupported, match=f"option={key}"):
        parse_catalog_options({**WAREHOUSE, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("lock.enabled", "false"), ("cache-enabled", "false"), ("case-sensitive", "true")],
)
def test_option_that_says_what_holds_anyway_passes(key: str, value: str) -> None:
    assert parse_catalog_options({**WAREHOUSE, key: value}).texts[key] == value


def test_single_writer_is_a_flag() -> None:
    assert parse_catalog_options({**WAREHOUSE, "commit.single-writer": "true"}).single_writer
    with pytest.raises(InvalidRequest, match="neither true nor false"):
        parse_catalog_options({**WAREHOUSE, "commit.single-writer": "yes"})


def test_options_have_one_text() -> None:
    assert parse_catalog_options({**WAREHOUSE, "commit.single-writer": True}).single_writer
    with pytest.raises(InvalidRequest, match=r"option=commit\.single-writer given=list"):
        parse_catalog_options({**WAREHOUSE, "commit.single-writer": [1]})  # type: ignore[dict-item]


def test_storage_options_are_known_by_their_prefix() -> None:
    keys = ["s3.endpoint", "fs.s3a.access.key", "bucket", "s3"]

    assert [key for key in keys if is_storage_option(key)] == keys[:2]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("s3.endpiont", "s3.endpoint"),
        ("fs.s3a.access_keys", "fs.s3a.accesskey"),
        ("oss.end-point", None),
        ("azure.nothing", "known="),
    ],
)
@pytest.mark.parametrize("place", ["local", "memory://storage-options"])
def test_misspelt_storage_option_is_refused_for_every_storage(
    key: str, meant: str | None, place: str, tmp_path: Path
) -> None:
    warehouse = str(tmp_path) if place == "local" else place
    if meant is None:
        connect({"warehouse": warehouse, key: "x"}, create=True)
        return
    with pytest.raises(InvalidRequest, match=f"unknown storage option.*{re.escape(meant)}"):
        connect({"warehouse": warehouse, key: "x"}, create=True)
    with pytest.raises(InvalidRequest, match="unknown storage option"):
        open_table(f"{warehouse}/t", create=True, schema={"n": "INT"}, options={key: "x"})


@pytest.mark.parametrize(
    "key",
    [
        "security.kerberos.login.keytab",
        "security.kerberos.login.principal",
        "security.kerberos.login.use-ticket-cache",
        "security.keytab",
        "hive.metastore.sasl.enabled",
        "hive.metastore.kerberos.principal",
    ],
)
@pytest.mark.parametrize(
    "catalog",
    [
        {},
        {"metastore": "jdbc", "uri": "jdbc:sqlite:never.db"},
        {"metastore": "hive", "uri": "thrift://127.0.0.1:1"},
        {"metastore": "rest", "uri": "http://127.0.0.1:1", "token.provider": "bear", "token": "x"},
    ],
    ids=lambda catalog: catalog.get("metastore", "filesystem"),
)
def test_login_by_kerberos_is_refused_before_anything_is_opened(
    catalog: dict[str, str], key: str
) -> None:
    with pytest.raises(Unsupported, match=rf"Kerberos.*kinit.*option={re.escape(key)}"):
        connect({**WAREHOUSE, **catalog, key: "x"})


def test_refusal_of_a_keytab_has_the_command_that_gets_a_ticket() -> None:
    login = "security.kerberos.login."
    options = {**WAREHOUSE, f"{login}keytab": "/etc/my lake.keytab", f"{login}principal": "a@B.C"}

    with pytest.raises(Unsupported, match=r"`kinit -kt '/etc/my lake\.keytab' a@B\.C`"):
        connect(options)
