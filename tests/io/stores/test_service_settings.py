from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.service_settings import check_storage_options, client_settings
from lakecore.io.stores.services import SERVICES


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
    options = {option: "k", "s3.secret-key": "s"}
    assert client_settings(SERVICES["s3a"], "s3a://b", options)["key"] == "k"


def test_two_spellings_may_agree_and_may_not_differ() -> None:
    agreeing = {"s3.access-key": "k", "fs.s3a.access.key": "k", "s3.secret-key": "s"}
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


@pytest.mark.parametrize(
    ("kind", "token"),
    [
        ("UNAUTHENTICATED", "anon"),
        ("COMPUTE_ENGINE", "cloud"),
        ("APPLICATION_DEFAULT", "google_default"),
    ],
)
def test_gcs_authenticates_as_hadoop_is_told_to(kind: str, token: str) -> None:
    options = {"gs.auth.type": kind, "fs.gs.storage.root.url": "http://127.0.0.1:1/"}
    settings = client_settings(SERVICES["gs"], "gs://b", options)

    assert (settings["token"], settings["endpoint_url"]) == (token, "http://127.0.0.1:1")


def test_gcs_authentication_that_lacks_its_file_or_is_unknown_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="keyfile"):
        client_settings(SERVICES["gs"], "gs://b", {"gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"})
    with pytest.raises(Unsupported, match="USER_CREDENTIALS"):
        client_settings(SERVICES["gs"], "gs://b", {"gs.auth.type": "USER_CREDENTIALS"})
    both = {
        "gs.auth.type": "UNAUTHENTICATED",
        "gs.auth.service.account.json.keyfile": "/key.json",
    }
    with pytest.raises(InvalidRequest, match="takes none"):
        client_settings(SERVICES["gs"], "gs://b", both)


ACCOUNT_KEY = "fs.azure.account.key.acct.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("uri", "option"),
    [
        ("abfss://box@acct.dfs.core.windows.net/w", ACCOUNT_KEY),
        ("abfs://box/w", ACCOUNT_KEY),
        ("wasbs://box@acct.blob.core.windows.net/w", ACCOUNT_KEY.replace("dfs", "blob")),
    ],
)
def test_azure_account_is_the_one_of_the_uri_or_of_the_key(uri: str, option: str) -> None:
    assert client_settings(SERVICES["abfss"], uri, {option: "k"}) == {
        "use_listings_cache": False,
        "account_name": "acct",
        "connection_string": "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=k;"
        "BlobEndpoint=https://acct.blob.core.windows.net;",
    }


def test_azure_outside_of_the_public_cloud_keeps_its_host() -> None:
    settings = client_settings(
        SERVICES["abfss"], "abfss://box@acct.dfs.core.chinacloudapi.cn/w", {}
    )

    assert settings["account_host"] == "acct.blob.core.chinacloudapi.cn"
    assert "account_host" not in client_settings(
        SERVICES["abfss"], "abfss://box@acct.dfs.core.windows.net/w", {}
    )


def test_key_of_another_azure_account_is_not_used() -> None:
    options = {ACCOUNT_KEY: "k", ACCOUNT_KEY.replace("acct", "other"): "l"}
    uri = "abfss://box@acct.dfs.core.windows.net/w"

    assert "AccountKey=k;" in str(client_settings(SERVICES["abfss"], uri, options))
    del options[ACCOUNT_KEY]
    assert client_settings(SERVICES["abfss"], uri, options) == {
        "use_listings_cache": False,
        "account_name": "acct",
    }


def test_azure_sas_and_oauth_reach_the_client() -> None:
    uri = "abfss://box@acct.dfs.core.windows.net/w"
    signed = client_settings(SERVICES["abfss"], uri, {"fs.azure.sas.fixed.token": "?sv=1&sig=x"})
    client = {
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2."
        "ClientCredsTokenProvider",
        "fs.azure.account.oauth2.client.id": "i",
        "fs.azure.account.oauth2.client.secret": "s",
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
    }

    assert signed["connection_string"] == (
        "BlobEndpoint=https://acct.blob.core.windows.net;SharedAccessSignature=sv=1&sig=x"
    )
    assert client_settings(SERVICES["abfss"], uri, client) == {
        "use_listings_cache": False,
        "client_id": "i",
        "client_secret": "s",
        "tenant_id": "t",
        "account_name": "acct",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"azure.account.key": "k", "azure.sas.token": "s"},
        {"azure.account.auth.type": "SAS", "azure.account.key": "k"},
        {"azure.account.oauth2.client.id": "i"},
    ],
)
def test_azure_credentials_that_do_not_fit_together_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        client_settings(SERVICES["abfss"], "abfss://box@acct.dfs.core.windows.net/w", options)


@pytest.mark.parametrize(
    "options",
    [
        {"azure.account.auth.type": "Custom"},
        {"azure.account.oauth.provider.type": "a.b.UserPasswordTokenProvider"},
    ],
)
def test_azure_authentication_that_is_not_here_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(Unsupported):
        client_settings(SERVICES["abfss"], "abfss://box@acct.dfs.core.windows.net/w", options)


def test_keys_of_several_azure_accounts_are_refused() -> None:
    keys = {
        "fs.azure.account.key.one.dfs.core.windows.net": "k",
        "fs.azure.account.key.two.dfs.core.windows.net": "k",
    }

    with pytest.raises(Unsupported, match="several storage accounts"):
        client_settings(SERVICES["abfs"], "abfs://box/w", keys)


ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
BY_KEYS = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
KEYS = {"s3.access-key": "k", "s3.secret-key": "s"}


def test_s3_is_anonymous_or_uses_a_profile() -> None:
    anonymous = {"fs.s3a.aws.credentials.provider": ANONYMOUS}

    assert client_settings(SERVICES["s3"], "s3://b", anonymous)["anon"] is True
    assert client_settings(SERVICES["s3"], "s3://b", {"s3.profile": "p"})["profile"] == "p"
    by_keys = client_settings(
        SERVICES["s3"], "s3://b", {**KEYS, "s3a.aws.credentials.provider": BY_KEYS}
    )
    assert "anon" not in by_keys
    assert by_keys["key"] == "k"


@pytest.mark.parametrize(
    "options",
    [
        {**KEYS, "s3.aws.credentials.provider": ANONYMOUS},
        {"s3.aws.credentials.provider": BY_KEYS},
        {**KEYS, "s3.profile": "p"},
        {"s3.access-key": "k"},
        {"fs.oss.accessKeyId": "k"},
    ],
)
def test_s3_credentials_that_do_not_fit_together_are_refused(options: dict[str, str]) -> None:
    service = SERVICES["oss" if "fs.oss.accessKeyId" in options else "s3"]
    with pytest.raises(InvalidRequest):
        client_settings(service, "s3://b", options)


def test_provider_of_credentials_that_is_not_here_is_refused() -> None:
    options = {
        "s3.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
    }
    with pytest.raises(Unsupported, match="not supported"):
        client_settings(SERVICES["s3"], "s3://b", options)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("oss-cn-hangzhou.aliyuncs.com", "https://s3.oss-cn-hangzhou.aliyuncs.com"),
        (
            "http://oss-eu-central-1-internal.aliyuncs.com",
            "http://s3.oss-eu-central-1-internal.aliyuncs.com",
        ),
        ("https://s3.oss-cn-hangzhou.aliyuncs.com", "https://s3.oss-cn-hangzhou.aliyuncs.com"),
        ("http://oss.own-host:9000", "http://oss.own-host:9000"),
    ],
)
def test_oss_is_reached_by_its_s3_address(endpoint: str, address: str) -> None:
    options = {
        "fs.oss.endpoint": endpoint,
        "fs.oss.accessKeyId": "k",
        "fs.oss.accessKeySecret": "s",
    }
    settings = client_settings(SERVICES["oss"], "oss://b", options)

    assert settings["endpoint_url"] == address
    assert (settings["key"], settings["secret"]) == ("k", "s")
    config = settings["config_kwargs"]
    assert isinstance(config, dict)
    assert config["s3"] == {"addressing_style": "virtual"}


def test_options_of_every_storage_are_checked() -> None:
    check_storage_options({"fs.oss.endpoint": "h", ACCOUNT_KEY: "k", "gs.project.id": "p"})
    for option in ("fs.oss.endpont", "gs.projekt.id", "azure.account.kee"):
        with pytest.raises(InvalidRequest, match=option):
            check_storage_options({option: "x"})
