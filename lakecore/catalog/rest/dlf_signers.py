"""The signatures of Alibaba's Data Lake Formation (DLF).

https://paimon.apache.org/docs/master/concepts/rest/dlf/

- `default`: DLF4-HMAC-SHA256 over a canonical form of the request;
- `openapi`: HMAC-SHA1 over the headers, for endpoints of the OpenAPI gateway.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote_plus, unquote_plus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.io.ambient import Ambient

__all__ = ["Credentials", "DefaultSigner", "OpenApiSigner", "Request", "Signer"]


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """An access key. A temporary one also has a `security_token` and the time when it expires."""

    key_id: str
    secret: str
    security_token: str | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request to sign. `path` is URL-encoded, `params` are not."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None


class Signer(Protocol):
    """Signs requests."""

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        """The headers to add; one of them is the signature."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSigner:
    """Signs requests by DLF4-HMAC-SHA256."""

    region: str

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        """The headers to add."""
        time = _now(ambient).strftime("%Y%m%dT%H%M%SZ")
        headers = {
            "x-dlf-date": time,
            "x-dlf-content-sha256": "UNSIGNED-PAYLOAD",
            "x-dlf-version": "v1",
        }
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            headers["Content-MD5"] = _md5(request.body)
        if credentials.security_token:
            headers["x-dlf-security-token"] = credentials.security_token
        query = "&".join(
            quote_plus(key) + (f"={quote_plus(request.params[key])}" if request.params[key] else "")
            for key in sorted(request.params)
        )
        lower = {key.lower(): text for key, text in headers.items()}
        canonical = "\n".join(
            [
                request.method,
                request.path,
                query,
                *(f"{key}:{lower[key].strip()}" for key in sorted(lower)),
                "UNSIGNED-PAYLOAD",
            ]
        )
        scope = f"{time[:8]}/{self.region}/DlfNext/aliyun_v4_request"
        text = "\n".join(
            ["DLF4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()]
        )
        key = f"aliyun_v4{credentials.secret}".encode()
        for part in (time[:8], self.region, "DlfNext", "aliyun_v4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["Authorization"] = (
            f"DLF4-HMAC-SHA256 Credential={credentials.key_id}/{scope},Signature={signature}"
        )
        return headers


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiSigner:
    """Signs requests by HMAC-SHA1, for the OpenAPI gateway."""

    host: str

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        """The headers to add."""
        headers = {
            "Date": format_datetime(_now(ambient), usegmt=True),
            "Accept": "application/json",
            "Host": self.host,
            "x-acs-signature-method": "HMAC-SHA1",
            "x-acs-signature-nonce": ambient.new_uuid(),
            "x-acs-signature-version": "1.0",
            "x-acs-version": "2026-01-18",
        }
        if request.body is not None:
            headers["Content-MD5"] = _md5(request.body)
            headers["Content-Type"] = "application/json"
        if credentials.security_token:
            headers["x-acs-security-token"] = credentials.security_token
        signed = sorted(key for key in headers if key.startswith("x-acs-"))
        query = "&".join(
            key + (f"={request.params[key]}" if request.params[key] else "")
            for key in sorted(request.params)
        )
        resource = unquote_plus(request.path) + (f"?{query}" if query else "")
        text = "".join(
            [
                f"{request.method}\n",
                f"{headers['Accept']}\n",
                f"{headers.get('Content-MD5', '')}\n",
                f"{headers.get('Content-Type', '')}\n",
                f"{headers['Date']}\n",
                *(f"{key}:{headers[key]}\n" for key in signed),
                resource,
            ]
        )
        digest = hmac.digest(credentials.secret.encode(), text.encode(), "sha1")
        signature = base64.b64encode(digest).decode()
        headers["Authorization"] = f"acs {credentials.key_id}:{signature}"
        return headers


def _now(ambient: Ambient) -> datetime:
    return datetime.fromtimestamp(ambient.now_ms() / 1000, UTC)


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
