from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from lakecore.cli.cdc import log_lines

if TYPE_CHECKING:
    import pytest

LOG = logging.getLogger("lakecore.cdc")


def test_a_line_has_time_level_pipeline_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines("shop", as_json=True, level=logging.INFO):
        LOG.warning("table set aside: it is lost. table=%s rows=%s", "shop.orders", 7)
        LOG.debug("not shown")
    with log_lines("shop", as_json=False, level=logging.INFO):
        LOG.info("checkpoint. number=%s", 3)
    LOG.info("not shown")
    first, second = capsys.readouterr().err.splitlines()

    found = json.loads(first)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "table": "shop.orders",
        "rows": 7,
        "level": "WARNING",
        "pipeline": "shop",
        "message": "table set aside: it is lost",
    }
    assert second.partition(" ")[2] == "INFO shop: checkpoint. number=3"
