"""The blocks of the documents that need a server run against one (fences marked `py`)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import lakecore as lc
from tests.services.servers import PASSWORD
from tests.services.storage_servers import ACCOUNT_KEY

if TYPE_CHECKING:
    import pytest

    from tests.services.jdbc import JdbcServer
    from tests.services.servers import Server
    from tests.services.storage_servers import Lake

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STORAGE = BLOCK.findall((DOCS / "storage.md").read_text(encoding="utf-8"))
CATALOGS = [
    block
    for page in ("catalogs.md", "hive-catalog.md")
    for block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
]


def run(block: str, replaced: dict[str, str], root: Path, patch: pytest.MonkeyPatch) -> None:
    """Run a block with the addresses of the servers of this machine."""
    for text, own in replaced.items():
        assert text in block, f"the block names {text}"
        block = block.replace(text, own)
    patch.chdir(root)
    exec(compile(block, "docs", "exec"), {"lc": lc, "os": os})  # noqa: S102 - ours


def test_blocks_that_need_a_server_are_all_here() -> None:
    others = [
        page.name for page in DOCS.glob("*.md") if BLOCK.search(page.read_text(encoding="utf-8"))
    ]

    in_spark = ["spark-cdc.md"]  # its block runs in tests/spark/test_cdc.py
    assert sorted(others) == sorted(["catalogs.md", "hive-catalog.md", "storage.md", *in_spark])
    assert (len(STORAGE), len(CATALOGS)) == (5, 2)


def test_storage_page(
    s3: Lake,
    gcs: Lake,
    azure: Lake,
    hdfs: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("S3_KEY", "key")
    monkeypatch.setenv("S3_SECRET", "secret")
    monkeypatch.setenv("AZURE_KEY", ACCOUNT_KEY)
    addresses = [
        {"https://s3.eu-central-1.amazonaws.com": s3.options["s3.endpoint"]},
        {"https://storage.googleapis.com/": gcs.options["fs.gs.storage.root.url"]},
        {"http://127.0.0.1:10000/devstoreaccount1": azure.options["fs.azure.endpoint"]},
        {"namenode:8020": f"127.0.0.1:{hdfs.port}"},
        {"oss-cn-hangzhou.aliyuncs.com": s3.options["s3.endpoint"]},
    ]
    for block, replaced in zip(STORAGE, addresses, strict=True):
        run(block, replaced, tmp_path, monkeypatch)


def test_catalogs_page(
    postgresql: JdbcServer, hive: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_PASSWORD", PASSWORD)
    jdbc, metastore = CATALOGS
    uri = postgresql.options["uri"]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    # The servers are shared with tests that leave a database `shop`.
    own = {"shop": "shop_of_the_page"}
    replaced = {"jdbc:postgresql://host:5432/database": uri, "/data/warehouse": one}
    run(jdbc, replaced | own, tmp_path, monkeypatch)
    replaced = {"thrift://host:9083": f"thrift://127.0.0.1:{hive.port}", "/data/warehouse": two}
    run(metastore, replaced | own, tmp_path, monkeypatch)
