"""The pictures in docs/img are those that the code draws now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pictures.list import PICTURES

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_up_to_date(name: str, tmp_path: Path) -> None:
    drawn = PICTURES[name](tmp_path)

    remedy = f"draw it again: python -m tests.pictures {name}"
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawn, remedy


def test_each_picture_is_shown_and_asks_no_server() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path in IMAGES.glob("*.svg"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|url\((?!#)|<script|@import|<image", text), path.name
        assert path.stem in {"logo", "favicon"} or f"img/{path.name})" in shown, path.name
