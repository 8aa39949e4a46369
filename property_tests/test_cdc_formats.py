"""Laws of the formats of change data capture: reading in bulk changes no value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakecore.cdc.formats.decoder import BadMessage, Messages
from lakecore.cdc.formats.registry import FORMATS, decoder_for
from lakecore.cdc.formats.shapes import RowReader

NAMES = ("a", "b", "é", "")
NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.from_regex(
    r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["2020-01-01", "2020-01-01 00:00:00", "true", "1", "null"]
)
SCALARS = st.none() | st.booleans() | TEXTS
VALUES = st.one_of(NUMBERS, SCALARS.map(json.dumps), st.lists(st.integers(0, 9)).map(json.dumps))
ROWS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), min_size=1, max_size=6)


def raw(row: dict[str, str]) -> bytes:
    return ("{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in row.items()) + "}").encode()


def expected(text: str | None) -> str | None:
    """Paimon's text of a JSON value, in the plainest way."""
    if text is None or text == "null":
        return None
    if text[0] == '"':
        return str(json.loads(text))
    if text[0] in "[tf":
        return text.replace(" ", "")
    if text.lstrip("-").isdigit():
        return str(int(text))
    number = Decimal(text)
    return str(number or number.copy_abs())


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_rows_are_read_in_bulk_as_one_by_one(batches: list[list[dict[str, str]]]) -> None:
    reader = RowReader()
    for rows in batches:
        table = reader.read([raw(row) for row in rows])

        assert table.num_rows == len(rows)
        for name in {name for row in rows for name in row}:
            shown = [
                str(each).lower() if isinstance(each, bool) else each
                for each in table.column(name).to_pylist()
            ]
            wanted = [expected(row.get(name)) for row in rows]
            assert [None if each is None else str(each) for each in shown] == wanted


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_a_decoder_reads_a_message_or_reports_it(name: str, data: st.DataObject) -> None:
    keys = ("op", "before", "after", "source", "data", "type", "table", "database", "metadata")
    leaves: Any = (
        SCALARS | st.integers(-5, 5) | st.sampled_from(["c", "u", "d", "INSERT", "update"])
    )
    documents = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=5)
        ),
        max_leaves=12,
    )
    values: list[bytes | None] = [
        json.dumps(data.draw(documents)).encode(),
        data.draw(st.binary(max_size=20)),
        None,
    ]
    caught: list[BadMessage] = []

    batches = decoder_for(name).decode(Messages(values=values), caught.append)

    assert {error.facts["number"] for error in caught} <= {0, 1}
    assert all(len(batch.kinds) == batch.rows.num_rows for batch in batches)
