from __future__ import annotations

import re
from pathlib import Path

from lakecore.options import Effect
from tests.reference_pages import describe_options, options_page

ROOT = Path(__file__).parents[2]


def test_every_option_is_declared_once_and_its_default_is_in_its_domain() -> None:
    known = describe_options()
    keys = [each.key for each in known]

    assert len(keys) == len(set(keys))
    for each in known:
        assert each.meaning.endswith("."), each.key
        if each.default_text and each.key != "snapshot.num-retained.max":
            assert each.kind.parse(each.default_text) == each.default, each.key
        assert each.supported or each.effect in {Effect.READ, Effect.WRITE}, each.key


def test_page_of_options_is_up_to_date() -> None:
    page = ROOT / "docs" / "options.md"
    remedy = "python -m tests.reference_pages options"

    assert page.read_text() == options_page(), f"write it again: {remedy} > docs/options.md"


def test_each_option_is_one_row_with_an_anchor() -> None:
    rows = [line for line in options_page().splitlines() if line.startswith("| <a id=")]
    anchors = re.findall(r'<a id="([^"]+)"></a>`', "\n".join(rows))

    assert sorted(anchors) == sorted(each.key for each in describe_options())
    assert {re.sub(r"\\\|", "", row).count("|") for row in rows} == {3}
