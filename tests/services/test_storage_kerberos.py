"""HDFS that asks for Kerberos: the client takes the ticket that `kinit` would have got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import StorageError
from tests.services.storage_servers import secure_hdfs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.storage_servers import Lake


@pytest.fixture(scope="module")
def secure() -> Iterator[tuple[Lake, Path]]:
    with secure_hdfs() as found:
        yield found


@pytest.mark.parametrize("prefix", ["", "FILE:"])
def test_ticket_in_the_cache_is_taken(
    secure: tuple[Lake, Path], monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    lake, folder = secure
    monkeypatch.setenv("KRB5_CONFIG", str(folder / "krb5.conf"))
    monkeypatch.setenv("KRB5CCNAME", f"{prefix}{folder}/ann.ccache")
    session = lc.connect({"warehouse": lake.root, **lake.options}, create=True)
    session.create_database("shop", ignore_if_exists=True)
    name = f"shop.t{len(prefix)}"
    table = session.create_table(name, {"id": "INT NOT NULL"}, primary_keys=["id"])
    table.write([{"id": 1}, {"id": 2}])

    assert sorted(session.get_table(name).to_polars()["id"]) == [1, 2]


def test_missing_ticket_is_an_error_that_names_the_command(
    secure: tuple[Lake, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, folder = secure
    monkeypatch.setenv("KRB5_CONFIG", str(folder / "krb5.conf"))
    monkeypatch.setenv("KRB5CCNAME", str(folder / "nothing"))

    with pytest.raises(StorageError, match=r"kinit -kt.*KRB5CCNAME.*No Kerberos credentials"):
        lc.connect({"warehouse": lake.root, **lake.options})
