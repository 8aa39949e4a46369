"""The public names of lakecore: a change here is a change for every user."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import lakecore as lc
from lakecore import errors
from tests.api_page import api_page

PUBLIC = [
    "AlreadyExists",
    "AnalyzeResult",
    "BlobDescriptor",
    "BlobView",
    "Branch",
    "ChangeStream",
    "ColumnStatistics",
    "CommitConflict",
    "CommitMessage",
    "CommitResult",
    "CommitUnknown",
    "CompactionResult",
    "Consumer",
    "CorruptTable",
    "ExpiredChangelogs",
    "ExpiredPartitions",
    "ExpiredSnapshots",
    "FastForwardResult",
    "FilesDeleted",
    "IcebergExport",
    "IndexesRewritten",
    "IngestResult",
    "InvalidRequest",
    "LakecoreError",
    "Lookup",
    "MergeInto",
    "Move",
    "NotFound",
    "OrphanFiles",
    "Purged",
    "RolledBack",
    "SchemaChange",
    "Session",
    "SqlExpression",
    "StorageError",
    "StreamWrite",
    "Table",
    "TableStatistics",
    "Tag",
    "TagDeletion",
    "Uncomputable",
    "Unsupported",
    "__version__",
    "connect",
    "memory",
    "open_table",
    "sql",
    "sql_expr",
    "variant_to_json",
]


def test_public_names_are_these() -> None:
    assert sorted(lc.__all__) == PUBLIC


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in PUBLIC if getattr(lc, name, None) is None] == []


def test_every_error_is_public() -> None:
    assert set(errors.__all__) <= set(lc.__all__)
    assert all(getattr(lc, name) is getattr(errors, name) for name in errors.__all__)


def test_dir_lists_the_public_names_and_no_others() -> None:
    code = "import lakecore; print(lakecore.__all__ == dir(lakecore))"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


def test_import_of_lakecore_alone_loads_no_heavy_package() -> None:
    code = (
        "import sys, lakecore;"
        "print([m for m in ('polars', 'pyarrow', 'duckdb', 'fsspec', 'numpy') if m in sys.modules])"
    )

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(lc, "spark")


def test_the_page_of_the_api_is_up_to_date() -> None:
    page = Path(__file__).parents[1] / "docs" / "api.md"

    assert page.read_text() == api_page(), (
        "write it again: python -m tests.api_page api > docs/api.md"
    )


def test_each_public_name_has_a_short_heading_on_the_page() -> None:
    headings = re.findall(r"^#{2,3} (.*)$", api_page(), re.MULTILINE)

    assert {name for name in lc.__all__ if not name.startswith("_")} <= set(headings)
    assert max(len(each) for each in headings) < 32
