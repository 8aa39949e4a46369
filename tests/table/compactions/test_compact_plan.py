"""Which buckets are compacted: none whose rows a deletion vector hides."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakecore as lc
from lakecore.errors import Unsupported
from tests.tables import reopened, rolled_back, with_options

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"


@pytest.mark.parametrize("full", [True, False])
def test_bucket_of_a_keyed_table_with_vectors_is_refused(tmp_path: Path, *, full: bool) -> None:
    shutil.copytree(FIXTURES / "pk_deletion_vectors" / "table", tmp_path / "t")
    table = rolled_back(lc.open_table(tmp_path / "t"), 8)
    with_options(table, deletion_vectors__enabled="false")
    off = reopened(table)
    files = off.inspect.files()

    with pytest.raises(Unsupported, match="a bucket that has deletion vectors"):
        off.compact(full=full)

    assert reopened(table).inspect.files().equals(files)
