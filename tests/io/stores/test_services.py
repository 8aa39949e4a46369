from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.services import SERVICES, client_settings


def test_s3_options_reach_the_client() -> None:
    options = {
        "s3.endpoint": "http://minio:9000",
        "s3.access-key": "k",
        "s3.secret-key": "s",
        "s3.session-token": "t",
        "s3.region": "eu-west-1",
        "s3.path.style.access": "true",
        "s3.connection.maximum": "64",
        "warehouse": "s3://b/w",
        "fs.oss.endpoint": "of another service",
    }

    assert client_settings(SERVICES["s3"], "s3://b/w", options) == {
        "use_listings_cache": False,
        "max_concurrency": 1,
        "endpoint_url": "http://minio:9000",
        "key": "k",
        "secret": "s",
        "token": "t",
        "client_kwargs": {"region_name": "eu-west-1"},
        "config_kwargs": {"s3": {"addressing_style": "path"}, "max_pool_connections": 64},
    }


@pytest.mark.parametrize(
    "option", ["s3.access-key", "s3.access.key", "fs.s3a.access.key", "fs.s3.accessKeyId"]
)
def test_spellings_of_hadoop_and_of_paimon_mean_the_same(option: str) -> None:
    assert client_settings(SERVICES["s3a"], "s3a://b", {option: "k"})["key"] == "k"


def test_two_spellings_may_agree_and_may_not_differ() -> None:
    agreeing = {"s3.access-key": "k", "fs.s3a.access.key": "k"}
    differing = {"s3.access-key": "k", "fs.s3a.access.key": "l"}

    assert client_settings(SERVICES["s3"], "s3://b", agreeing)["key"] == "k"
    with pytest.raises(InvalidRequest, match="keep one") as caught:
        client_settings(SERVICES["s3"], "s3://b", differing)
    assert "l" not in str(caught.value).split("=")  # an error never shows a secret


@pytest.mark.parametrize(
    ("ssl", "endpoint"), [("true", "https://oss.host"), ("false", "http://oss.host")]
)
def test_bare_host_becomes_a_url(ssl: str, endpoint: str) -> None:
    options = {"s3.endpoint": "oss.host", "fs.s3a.connection.ssl.enabled": ssl}

    assert client_settings(SERVICES["s3"], "s3://b", options)["endpoint_url"] == endpoint


def test_unknown_option_of_the_service_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"s3\.acces-key"):
        client_settings(SERVICES["s3"], "s3://b", {"s3.acces-key": "k"})


@pytest.mark.parametrize(
    ("option", "text"), [("s3.path.style.access", "yes"), ("s3.connection.maximum", "many")]
)
def test_option_of_the_wrong_kind_is_refused(option: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        client_settings(SERVICES["s3"], "s3://b", {option: text})


def test_gcs_key_file_and_project_reach_the_client() -> None:
    options = {"fs.gs.auth.service.account.json.keyfile": "/key.json", "fs.gs.project.id": "p"}

    assert client_settings(SERVICES["gs"], "gs://b", options) == {
        "use_listings_cache": False,
        "token": "/key.json",
        "project": "p",
    }


def test_azure_account_is_the_one_of_the_uri_or_of_the_key() -> None:
    key = {"fs.azure.account.key.acct.dfs.core.windows.net": "k"}
    expected = {"use_listings_cache": False, "account_key": "k", "account_name": "acct"}
    uri = "abfss://box@acct.dfs.core.windows.net/w"

    assert client_settings(SERVICES["abfss"], uri, key) == expected
    assert client_settings(SERVICES["abfs"], "abfs://box/w", key) == expected


def test_keys_of_several_azure_accounts_are_refused() -> None:
    keys = {
        "fs.azure.account.key.one.dfs.core.windows.net": "k",
        "fs.azure.account.key.two.dfs.core.windows.net": "k",
    }

    with pytest.raises(Unsupported, match="several storage accounts"):
        client_settings(SERVICES["abfs"], "abfs://box/w", keys)


def test_oss_options_reach_the_client() -> None:
    options = {"fs.oss.endpoint": "e", "fs.oss.accessKeyId": "k", "fs.oss.accessKeySecret": "s"}

    assert client_settings(SERVICES["oss"], "oss://b", options) == {
        "use_listings_cache": False,
        "endpoint": "e",
        "key": "k",
        "secret": "s",
    }
