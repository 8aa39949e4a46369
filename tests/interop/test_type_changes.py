"""The types that a column may change to: those that Java can read older files as."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from lakecore.model.casts import may_cast
from lakecore.model.types import parse_type
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(10, 2)", "DECIMAL(20, 4)"),
    *("CHAR(5)", "CHAR(9)", "VARCHAR(5)", "VARCHAR(9)", "STRING"),
    *("BINARY(5)", "BINARY(9)", "VARBINARY(5)", "VARBINARY(9)", "BYTES"),
    *("DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(9)"),
    *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
)


def test_columns_change_to_the_types_that_java_casts_to(
    peers: Callable[[str], PeerEngine],
) -> None:
    texts = [text + null for text in TYPES for null in ("", " NOT NULL")]
    types = [parse_type(text) for text in texts]
    theirs = cast("list[list[bool]]", peers(limits.JAVA).peer.ask("may_cast", types=texts))

    others = [
        f"{texts[old]} -> {texts[new]}: Java {'casts' if casts else 'does not'}"
        for old, row in enumerate(theirs)
        for new, casts in enumerate(row)
        # A nullable column becomes NOT NULL by a rule of its own.
        if types[old].nullable <= types[new].nullable
        if may_cast(types[old], types[new], explicit=True) != casts
        # Java sees no cast in what is left as it is, which it needs none for.
        and not (not casts and TYPES[old // 2] == TYPES[new // 2])
    ]
    assert not others
