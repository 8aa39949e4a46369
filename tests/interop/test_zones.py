"""Times travel between engines in different zones, but for one kind in ORC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import Engine, PeerEngine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

LAKECORE = LakecoreEngine()
TRUE_INSTANTS = {"orc.timestamp-ltz.legacy.type": "false"}


def _times(file_format: str, options: dict[str, str] | None = None) -> Case:
    """A table of times; the last column is the local-zoned one."""
    return case(
        file_format,
        columns(k="INT", d="DATE", t="TIME(3)", ts="TIMESTAMP(6)", tz="TIMESTAMP_LTZ(6)"),
        [
            [
                ("+I", [1, "2024-02-29", "23:59:59.999", *_both("2024-02-29T23:59:59.123456")]),
                # Shanghai had summer time that day.
                ("+I", [2, "1986-05-05", "12:30:00", *_both("1986-05-05T12:30:00")]),
                ("+I", [3, "1969-12-31", "00:00:00", *_both("1969-12-31T23:59:58")]),
            ]
        ],
        options={"file.format": file_format, **(options or {})},
    )


def _both(text: str) -> tuple[str, str]:
    return text, f"{text}Z"


def _exchange(writer: Engine, reader: Engine, table: Path, found: Case) -> list[str]:
    writer.create(table, found)
    for changes in found.commits:
        writer.write(table, changes)
    return values.difference(reader.read(table), found.expected(), found.columns)


@pytest.mark.parametrize("writes", ["lakecore", "java"])
@pytest.mark.parametrize("file_format", cases.FORMATS)
def test_times_are_the_same_in_shanghai(
    file_format: str, writes: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    pair: list[Engine] = [LAKECORE, peers(limits.JAVA_SHANGHAI)]
    writer, reader = pair if writes == "lakecore" else pair[::-1]

    wrong = _exchange(writer, reader, tmp_path / "d.db" / "t", _times(file_format))

    if file_format == "orc":
        # Java takes the instant of ORC for the wall clock of its own zone (12, trap 16).
        assert len(wrong) == 3, wrong
        assert all(line.startswith("tz ") for line in wrong), wrong
    else:
        assert wrong == []


@pytest.mark.parametrize("writes", ["lakecore", "java"])
def test_orc_holds_true_instants_by_option(
    writes: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    pair: list[Engine] = [LAKECORE, peers(limits.JAVA_SHANGHAI)]
    writer, reader = pair if writes == "lakecore" else pair[::-1]

    wrong = _exchange(writer, reader, tmp_path / "d.db" / "t", _times("orc", TRUE_INSTANTS))

    assert wrong == []
