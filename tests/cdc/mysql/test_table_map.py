"""The names of an ENUM or SET: how they become texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lakecore.cdc.mysql.column import Code
from lakecore.cdc.mysql.table_map import _column
from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence


def named(
    collation: str, members: Sequence[bytes], asked: list[Sequence[object]]
) -> tuple[str, ...]:
    """The names in an ENUM with this collation; `asked` gets what the server is asked for."""

    def texts(charset: str, values: Sequence[object]) -> list[str | None]:
        assert charset == collation.partition("_")[0]
        asked.append(values)
        return [cast("bytes", each).decode() for each in values]

    found = cast(
        "Any", SimpleNamespace(type=Code.ENUM, name="e", unsigned=False, collation_name=collation)
    )
    return _column(found, nullable=True, members=members, texts=texts).values


def test_the_server_is_asked_for_all_names_of_a_column_at_once() -> None:
    asked: list[Sequence[object]] = []

    assert named("sjis_japanese_ci", [b"a", b"", b"c"], asked) == ("a", "", "c")
    assert asked == [[b"a", b"", b"c"]]


def test_names_in_a_set_that_python_has_are_not_asked_for() -> None:
    asked: list[Sequence[object]] = []

    assert named("latin1_swedish_ci", [b"\xe9", b""], asked) == ("é", "")
    assert asked == []


def test_a_name_of_bytes_that_are_no_text_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"no text.*column=e"):
        named("binary", [b"a", b"\xff"], [])
