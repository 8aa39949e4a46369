from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import Unsupported
from lakecore.io.stores.engine_files import EngineFiles

if TYPE_CHECKING:
    from tests.stores import S3Service


def test_files_and_directories_are_told_apart(s3: S3Service) -> None:
    files = EngineFiles(lambda _: s3.options)
    with s3.client() as client:
        client.put_object(Bucket="warehouse", Key="engine/a.csv", Body=b"x")
    directory, file = "s3://warehouse/engine", "s3://warehouse/engine/a.csv"

    assert [files.exists(path) for path in (directory, file, f"{file}2")] == [True, True, False]
    assert [files.isdir(path) for path in (directory, file, f"{file}2")] == [True, False, False]
    assert files.open(file).read() == b"x"
    with pytest.raises(Unsupported, match="only reads"):
        files.open(file, "wb")
