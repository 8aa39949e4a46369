"""Fixtures of the tests of SQL."""

from __future__ import annotations

import pytest

from lakecore.sql.native_views import NativeViews


@pytest.fixture
def by_lakecore(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB scans no files itself: lakecore reads every table, as if its files were not local."""
    for name in ("find", "create", "shown"):
        monkeypatch.setattr(NativeViews, name, lambda *_arguments, **_options: None)
