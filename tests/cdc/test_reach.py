"""The page on servers that cannot be reached has the reasons that errors give."""

from __future__ import annotations

import re
from pathlib import Path

from lakecore.cdc import retry
from lakecore.cdc.mysql.connection import REFUSALS


def test_the_page_has_the_reasons() -> None:
    page = (Path(__file__).parents[2] / "docs/troubleshooting.md").read_text()
    _, _, rest = page.partition("### the pipeline cannot connect")
    rows = re.findall(r"^\| (the .*?|nothing .*?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    known = [*retry._REASONS.values(), *REFUSALS.values()]  # noqa: SLF001
    rows.remove("the error goes on with")
    assert len(rows) == 8
    for row in rows:
        assert any(each.startswith(row) for each in known), row
