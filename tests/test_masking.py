"""No representation, message, log or page shows a secret."""

from __future__ import annotations

import logging
import pickle
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakecore as lc
from lakecore.catalog.options import parse_catalog_options
from lakecore.errors import LakecoreError
from lakecore.io.stores.open import open_store
from lakecore.io.stores.storage_errors import plain_remote_errors
from lakecore.masking import MASK, is_secret, masked, masked_options, secret_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "wJalrXUtnFEMI"
KEYS = [
    "s3.secret-key",
    "s3.access-key",
    "fs.s3a.secret.key",
    "fs.s3a.access.key",
    "s3.session-token",
    "fs.oss.accessKeySecret",
    "fs.oss.accessKeyId",
    "fs.oss.securityToken",
    "fs.azure.account.key.box.host",
    "azure.sas-token",
    "fs.azure.account.oauth2.client.secret",
    "jdbc.password",
    "token",
    "fs.gs.auth.service.account.json.keyfile",
]


@pytest.mark.parametrize("key", KEYS)
def test_key_of_a_secret_is_known(key: str) -> None:
    assert is_secret(key)
    assert masked_options({key: SECRET, "s3.endpoint": "http://u:p@h/"}) == {
        key: MASK,
        "s3.endpoint": f"http://{MASK}@h/",
    }


@pytest.mark.parametrize("key", ["s3.endpoint", "warehouse", "fields.secret.aggregate-function"])
def test_other_keys_are_shown(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    "text",
    [
        f"s3://key:{SECRET}@bucket/w",
        f"cannot reach http://user:{SECRET}@host:9000/x (timeout)",
        f"jdbc:mysql://root:{SECRET}@db/x",
        f"secret_key={SECRET}",
        f"aws_secret_access_key: {SECRET}",
        f"{{'secret': '{SECRET}', 'x': 1}}",
        f'"sessionToken": "{SECRET}"',
        f"?X-Amz-Signature={SECRET}&x=1",
    ],
)
def test_secret_in_a_text_is_hidden(text: str) -> None:
    assert SECRET not in masked(text)
    assert masked(masked(text)) == masked(text)


@given(st.text())
def test_masking_ends_and_leaves_plain_text(text: str) -> None:
    assert masked(masked(text)) == masked(text)
    if not any(mark in text for mark in ("@", "=", ":")):
        assert masked(text) == text


def shown(error: BaseException) -> str:
    parts = [str(error), repr(error), "".join(traceback.format_exception(error))]
    if isinstance(error, LakecoreError):
        parts += [repr(error.facts), str(pickle.loads(pickle.dumps(error)))]
    return " ".join(parts)


def _open(path: str, **options: Any) -> object:
    return lc.open_table(path, options=options)


CALLS: dict[str, Callable[[], object]] = {
    "value that is no text": lambda: lc.connect(
        {"warehouse": "/w", "s3.secret-key": (SECRET,)}  # type: ignore[dict-item]
    ),
    "value of a table": lambda: _open("/w", **{"s3.secret-key": [SECRET]}),
    "credentials in a warehouse": lambda: lc.connect(f"s3://key:{SECRET}@bucket/w"),
    "credentials of an option": lambda: lc.connect({"warehouse": f"s3://key:{SECRET}@bucket/w"}),
    "credentials in a path": lambda: lc.open_table(f"S3A://key:{SECRET}@bucket/t"),
    "unknown scheme": lambda: lc.connect(f"gopher://key:{SECRET}@bucket/w"),
    "unknown option": lambda: lc.connect({"warehouse": "/w", "secret": SECRET}),
    "jdbc": lambda: lc.connect({"warehouse": "/w", "jdbc.password": SECRET}),
    "uri": lambda: lc.connect({"warehouse": "/w", "uri": f"jdbc:x://u:{SECRET}@h/"}),
    "two that differ": lambda: lc.connect(
        {"warehouse": "s3://b/w", "s3.secret-key": SECRET, "fs.s3a.secret.key": "other"}
    ),
    "no service": lambda: lc.connect(
        {
            "warehouse": "s3://bucket/w",
            "s3.secret-key": SECRET,
            "s3.access-key": SECRET + "id",
            "s3.endpoint": f"http://u:{SECRET}@127.0.0.1:1",
        }
    ),
}


@pytest.mark.parametrize("name", [*CALLS])
def test_error_shows_no_secret(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="lakecore"), pytest.raises(LakecoreError) as caught:
        CALLS[name]()

    assert SECRET not in shown(caught.value)
    assert SECRET not in caplog.text


def test_what_a_client_raises_shows_no_secret_of_the_store() -> None:
    def fail() -> None:
        with plain_remote_errors("s3://b/x", (ValueError,), (SECRET,)):
            raise ValueError(f"the key {SECRET} is bad") from KeyError(SECRET)

    with pytest.raises(lc.StorageError) as caught:
        fail()

    assert SECRET not in shown(caught.value)

    with (
        pytest.raises(lc.StorageError) as caught,
        plain_remote_errors("s3://b/x", (), (SECRET,)),
    ):
        raise OSError(5, f"refused {SECRET}")
    assert SECRET not in shown(caught.value)


def test_representations_show_no_secret(tmp_path: Path) -> None:
    given = {
        "warehouse": str(tmp_path),
        "s3.secret-key": SECRET,
        "s3.access-key": SECRET,
        "table-default.file.compression": "lz4",
    }
    session = lc.connect(given)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT"})
    store = open_store("s3://b/w", given)
    things = [parse_catalog_options(given), session, table, table.context, store, table.schema]
    things += [table.options, table.inspect, table.explain(), table.write([{"id": 1}])]
    for thing in things:
        pages = [repr(thing), str(thing), f"{thing!r:}"]
        pages += [thing._repr_html_()] if hasattr(thing, "_repr_html_") else []
        assert SECRET not in " ".join(pages), type(thing)
    found = lc.open_table(table.path, options={"s3.secret-key": SECRET})
    assert SECRET not in f"{found!r} {found} {found.inspect.options()} {found.explain()}"


def test_signature_of_a_signed_address_is_hidden_and_names_that_begin_alike_are_not() -> None:
    assert masked("GET /lake?sv=1&sig=bm90%2FaQ%3D%3D&se=2") == "GET /lake?sv=1&sig=***&se=2"
    assert masked("sigma=3, signal: 4") == "sigma=3, signal: 4"


def test_secrets_are_also_hidden_as_a_url_shows_them() -> None:
    values = secret_values({"fs.azure.sas.token": "a/b+c=", "s3.region": "eu"})

    assert masked("x a/b+c= y a%2Fb%2Bc%3D z", values) == "x *** y *** z"
    assert "eu" not in values


@pytest.mark.parametrize("part", ["a", "a://:", "token", "a://", "token=", "token'", "a:", "t "])
def test_long_strings_take_linear_time(part: str) -> None:
    began = time.monotonic()
    masked(part * (50_000 // len(part)))
    masked("a://" + part[-1] * 50_000)

    assert time.monotonic() - began < 2
