from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.local import LocalStore
from lakecore.io.open import open_store
from lakecore.io.remote import RemoteStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("uri", ["/w", "w", "file:/w", "file:///w", "FILE:///w"])
def test_path_without_scheme_is_local(uri: str) -> None:
    assert isinstance(open_store(uri, {}), LocalStore)


def test_memory_store_is_shared_by_name() -> None:
    open_store("memory://open-a/w", {}).put("memory://open-a/w/x", b"1")

    assert open_store("memory://open-a", {}).read("memory://open-a/w/x") == b"1"
    assert open_store("memory://open-a/", {}) is not open_store("memory://open-b/", {})


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3", "gs", "abfss", "oss"])
def test_object_stores_are_remote(scheme: str) -> None:
    assert isinstance(open_store(f"{scheme}://bucket/w", {}), RemoteStore)


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
        "from lakecore.io.open import open_store\n"
        "open_store('s3://b/w', {}), open_store(sys.argv[1], {}).list(sys.argv[1])\n"
        "assert not {'fsspec', 's3fs'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
