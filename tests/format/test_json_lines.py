from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.text_lines import json_columns, json_text

KINDS = {
    "s": pa.string(),
    "l": pa.list_(pa.string()),
    "m": pa.map_(pa.string(), pa.string()),
    "r": pa.struct([("x", pa.string()), ("y", pa.list_(pa.string()))]),
}
FIELDS = [pa.field(name, kind) for name, kind in KINDS.items()]
WHOLE = {"s": "a\x1fé\n", "l": ["1", None], "m": [("k", "2")], "r": {"x": None, "y": ["3"]}}
LINE = (
    '{"s":"a\\u001Fé\\n","l":["1",null],"m":{"k":"2"},"r":{"x":null,"y":["3"]}}\n'
    '{"s":null,"l":null,"m":null,"r":null}\n'
)


def test_rows_are_objects_of_texts() -> None:
    rows = pa.Table.from_pylist([WHOLE, {}], schema=pa.schema(FIELDS))

    assert json_text(rows, "\n") == LINE
    found = json_columns(LINE.splitlines(), FIELDS, "p")
    assert found == [column.combine_chunks() for column in rows.columns]


def test_numbers_and_booleans_are_taken_by_their_text() -> None:
    lines = ['{"s": 1.50, "l": [1, true], "m": {"k": 2}}', '{"s": false, "l": ["x"]}']
    found = json_columns(lines, FIELDS[:3], "p")

    assert [each.to_pylist() for each in found] == [
        ["1.50", "false"],
        [["1", "true"], ["x"]],
        [[("k", "2")], None],
    ]


def test_a_column_that_a_line_lacks_is_null() -> None:
    assert json_columns(['{"other": "1"}'], FIELDS, "p") == [
        pa.nulls(1, kind) for kind in KINDS.values()
    ]


@pytest.mark.parametrize(
    "line", ["", "[]", '{"s": ', '{"s": {}}', '{"l": "x"}', '{"r": []}', '{"m": [1]}', "{},{}", "1"]
)
def test_a_damaged_line_is_corrupt(line: str) -> None:
    with pytest.raises(CorruptTable, match="path=p"):
        json_columns(['{"s": "fine"}', line], FIELDS, "p")


def test_a_key_twice_in_one_map_is_refused() -> None:
    rows = pa.table([pa.array([[("k", "1"), ("k", "2")]], KINDS["m"])], names=["m"])

    with pytest.raises(InvalidRequest, match="a key twice"):
        json_text(rows, "\n")
