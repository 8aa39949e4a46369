from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.hdfs import HdfsStore
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.open import locate, open_store
from lakecore.io.stores.remote import RemoteStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("uri", ["/w", "w", "file:/w", "file:///w", "FILE:///w"])
def test_path_without_scheme_is_local(uri: str) -> None:
    assert isinstance(open_store(uri, {}), LocalStore)


def test_memory_store_is_shared_by_name() -> None:
    open_store("memory://open-a/w", {}).put("memory://open-a/w/x", b"1")

    assert open_store("memory://open-a", {}).read("memory://open-a/w/x") == b"1"
    assert open_store("memory://open-a/", {}) is not open_store("memory://open-b/", {})


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3", "gs", "abfss", "wasb", "oss"])
def test_object_stores_are_remote(scheme: str) -> None:
    options = {"fs.oss.endpoint": "oss-cn-hangzhou.aliyuncs.com"}
    assert isinstance(open_store(f"{scheme}://bucket/w", options), RemoteStore)


def test_hdfs_may_leave_its_name_node_to_the_configuration() -> None:
    assert isinstance(open_store("hdfs:///w", {}), HdfsStore)
    assert isinstance(open_store("HDFS://lake/w", {}), HdfsStore)


@pytest.mark.parametrize("uri", ["/w", "s3://bucket/w", "memory://open-c/w"])
def test_hadoops_files_are_refused_where_nothing_reads_them(uri: str) -> None:
    with pytest.raises(Unsupported, match="hadoop-conf-dir"):
        open_store(uri, {"hadoop-conf-dir": "/etc/hadoop"})


def test_unknown_scheme_and_empty_path_are_refused() -> None:
    with pytest.raises(Unsupported, match="gopher"):
        open_store("gopher://w", {})
    with pytest.raises(InvalidRequest, match="empty"):
        open_store("", {})


@pytest.mark.parametrize("uri", ["s3://", "s3:///w", "gs://", "oss:///"])
def test_uri_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"no bucket.*://bucket/path"):
        open_store(uri, {})


def test_fsspec_is_imported_at_first_use_alone(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from lakecore.io.stores.open import locate, open_store\n"
        "open_store('s3://b/w', {}), open_store(sys.argv[1], {}).list(sys.argv[1])\n"
        "assert not {'fsspec', 's3fs'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_place_is_absolute_and_has_no_slash_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    assert locate("w//t/") == locate("./w/t") == locate("file:w/t") == f"{tmp_path}/w/t"
    assert locate("../w") == f"{tmp_path.parent}/w"
    assert locate("/data/w/") == locate("FILE://localhost/data/w") == "/data/w"
    assert locate("~/w") == "/home/me/w"
    assert locate("file:~/w") == f"{tmp_path}/~/w"
    assert [locate(root) for root in ("/", "file:///", "S3://b/w//")] == ["/", "/", "s3://b/w"]


def test_two_dots_after_a_link_are_where_the_system_goes(tmp_path: Path) -> None:
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "inner")

    assert locate(f"{tmp_path}/link/../w") == f"{tmp_path}/far/w"
    assert locate(f"{tmp_path}/link/w") == f"{tmp_path}/link/w"


def test_relative_path_needs_a_working_directory(tmp_path: Path) -> None:
    code = (
        "import os, sys, lakecore as lc\n"
        "os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
        "try: lc.connect('w')\n"
        "except lc.InvalidRequest as error: print(error)\n"
        "print(lc.connect(sys.argv[2], create=True).list_databases())\n"
    )
    gone, there = tmp_path / "gone", tmp_path / "w"
    gone.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", code, str(gone), str(there)], capture_output=True, check=True
    )

    assert b"working directory is gone" in done.stdout
    assert done.stdout.endswith(b"()\n")
