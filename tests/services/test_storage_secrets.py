"""No message, representation, log, plan or system table shows a secret of a storage."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import LakecoreError
from lakecore.io.stores.open import open_store
from tests.services.storage_servers import ACCOUNT, ACCOUNT_KEY

if TYPE_CHECKING:
    from tests.services.storage_servers import Lake

KEY = f"fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net"
WRONG_KEY = base64.b64encode(b"a key that is not the right one/+?").decode()
SIGNATURE = (
    "sv=2025-01-05&ss=b&srt=sco&sp=rwdl&se=2099-01-01T00:00:00Z&sig=bm90L3JpZ2h0K2F0IGFsbA=="
)


def chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(cause)
    return found


def test_a_table_that_works_shows_none(azure: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="lakecore")
    options = {**azure.options, "warehouse": azure.folder("secrets")}
    session = lc.connect(options, create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT NOT NULL"}, primary_keys=["id"])
    result = table.write([{"id": 1}])
    shown = [
        *(repr(each) for each in (session, table, result, table.explain())),
        str(table.explain()),
        str(session.get_table("sys.catalog_options").to_polars().rows()),
        str(session.get_table("sys.all_table_options").to_polars().rows()),
        caplog.text,
    ]

    assert not [text for text in shown if ACCOUNT_KEY in text]
    again = pickle.loads(pickle.dumps(open_store(azure.root, azure.options)))
    assert again.exists(table.path), "another process has what it needs"


@pytest.mark.parametrize(
    ("option", "secret", "hidden"),
    [(KEY, WRONG_KEY, WRONG_KEY), ("fs.azure.sas.fixed.token", SIGNATURE, "bm90L3JpZ2h0")],
)
def test_a_refused_request_shows_none(
    azure: Lake, option: str, secret: str, hidden: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="lakecore")
    options = {key: azure.options[key] for key in azure.options if key != KEY}
    store = open_store(azure.root, {**options, option: secret})
    with pytest.raises(LakecoreError) as caught:
        store.read(azure.folder("secrets/none"))
    shown = [repr(store), caplog.text]
    for error in chain(caught.value):
        shown += [str(error), repr(error)]

    assert not [text for text in shown if hidden in text]
