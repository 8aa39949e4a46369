"""Credentials: where they come from, when they are read again, and what is signed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.rest.rest_options import (
    Credentials,
    DefaultSigner,
    OpenApiSigner,
    Request,
    authorization_of,
    parse_rest_options,
)
from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_701_605_532_000  # 2023-12-03T12:12:12Z
CREDENTIALS = Credentials("access-key-id", "access-key-secret", "securityToken")
BASE = {"uri": "http://cn-hangzhou-vpc.dlf.aliyuncs.com", "token.provider": "dlf"}


def at(now_ms: int) -> object:
    return replace(SYSTEM, now_ms=lambda: now_ms, sleep=lambda _: None, new_uuid=lambda: "nonce")


def test_signature_is_a_function_of_the_request() -> None:
    ambient = at(NOW_MS)
    request = Request(method="POST", path="/v1/p/databases", params={"b": "2", "a": ""}, body=b"{}")
    signed = DefaultSigner(region="cn-hangzhou").sign(request, CREDENTIALS, ambient)  # type: ignore[arg-type]

    assert signed["x-dlf-date"] == "20231203T121212Z"
    assert signed["Content-MD5"] == "mZFLkyvTelC5g8XnyQrpOw=="
    assert signed["x-dlf-security-token"] == "securityToken"
    begin = "DLF4-HMAC-SHA256 Credential=access-key-id/20231203/cn-hangzhou/DlfNext/"
    assert signed["Authorization"].startswith(f"{begin}aliyun_v4_request,Signature=")
    other = DefaultSigner(region="cn-hangzhou").sign(
        replace(request, params={"b": "3", "a": ""}),
        CREDENTIALS,
        ambient,  # type: ignore[arg-type]
    )
    assert other["Authorization"] != signed["Authorization"]


def test_gateway_signature_has_its_headers() -> None:
    request = Request(method="GET", path="/v1/a+b", params={}, body=None)
    signed = OpenApiSigner(host="dlfnext.cn-beijing.aliyuncs.com").sign(
        request,
        CREDENTIALS,
        at(NOW_MS),  # type: ignore[arg-type]
    )

    assert signed["Date"] == "Sun, 03 Dec 2023 12:12:12 GMT"
    assert signed["x-acs-signature-nonce"] == "nonce"
    assert "Content-MD5" not in signed
    assert signed["Authorization"].startswith("acs access-key-id:")


def token_file(path: Path, key: str, expires: str) -> None:
    parts = {"AccessKeyId": key, "AccessKeySecret": "s", "SecurityToken": "t"}
    path.write_text(json.dumps({**parts, "Expiration": expires}))


def test_token_file_is_read_again_an_hour_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "token.json"
    clock = [NOW_MS]
    ambient = replace(SYSTEM, now_ms=lambda: clock[0], sleep=lambda _: None)
    token_file(path, "first", "2023-12-03T14:12:12Z")
    options = parse_rest_options({**BASE, "dlf.token-path": str(path)})
    authorization = authorization_of(options, ambient)

    def key() -> str:
        headers = authorization.headers("GET", "/v1/config", {}, None)
        return headers["Authorization"].partition("Credential=")[2].partition("/")[0]

    assert key() == "first"
    token_file(path, "second", "2023-12-04T14:12:12Z")
    assert key() == "first"
    clock[0] += 3_600_001
    assert key() == "second"


@pytest.mark.parametrize("text", ["", "{", "{}", '{"AccessKeyId": "a"}'])
def test_token_file_that_holds_no_token_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token.json"
    path.write_text(text)
    options = parse_rest_options({**BASE, "dlf.token-path": str(path)})
    authorization = authorization_of(options, at(NOW_MS))  # type: ignore[arg-type]

    with pytest.raises(StorageError, match="token file cannot be read"):
        authorization.headers("GET", "/v1/config", {}, None)


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        ({}, InvalidRequest, "needs credentials"),
        ({"dlf.token-loader": "ftp"}, InvalidRequest, "unknown loader"),
        ({"dlf.token-loader": "local_file"}, InvalidRequest, "not named"),
        (
            {"dlf.access-key-id": "a", "dlf.access-key-secret": "b", "uri": "http://h"},
            InvalidRequest,
            "region is not in the address",
        ),
        (
            {
                "dlf.access-key-id": "a",
                "dlf.access-key-secret": "b",
                "dlf.signing-algorithm": "openapi-v4",
            },
            Unsupported,
            "signing algorithm",
        ),
    ],
)
def test_options_are_checked(given: dict[str, str], kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        authorization_of(parse_rest_options({**BASE, **given}))
