from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import Pipeline
from lakecore.rest_server import pipeline_endpoint
from lakecore.rest_server.pipeline_endpoint import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def answer(app: Endpoint, path: str, method: str = "GET") -> tuple[int, str]:
    sent: list[Any] = []

    async def receive() -> object:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"method": method, "path": path, "headers": [(b"host", b"localhost:1")]}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def test_live_says_when_the_pipeline_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    pipeline = Pipeline(action="mysql_sync_database", arguments=Arguments(database="d"))
    app = Endpoint(catalog, pipeline, "127.0.0.1", None)
    assert answer(app, "/live") == (200, "alive\n")

    monkeypatch.setattr(pipeline_endpoint, "STUCK_SECONDS", -1.0)
    assert answer(app, "/live")[0] == 503
    assert answer(app, "/live", "POST")[0] == 405
    status, text = answer(app, "/metrics")  # before the first checkpoint
    assert status == 200
    assert 'lakecore_cdc_step_age_seconds{pipeline="mysql_sync_database-d"} 0' in text
