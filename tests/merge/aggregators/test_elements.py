from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakecore.merge.aggregators.collections import elements_of, equal_codes
from lakecore.merge.keys import Groups


def groups(*starts: int, length: int) -> Groups:
    return Groups(np.array(starts, np.int64), length)


def test_elements_of_a_null_do_not_count() -> None:
    spanning = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5], pa.int32()),
        pa.array([1, 2, 3, 4, 5]),
        mask=pa.array([False, True, False]),
    )
    elements = elements_of(spanning, groups(0, 2, length=3))

    assert elements.child().to_pylist() == [1, 2, 5]
    assert elements.rows.tolist() == [0, 0, 2]
    assert elements.groups.tolist() == [0, 0, 1]


def test_elements_of_a_slice_are_those_of_its_rows() -> None:
    maps = pa.array([[("a", 1)], [("b", 2)], None, [("c", 3), ("d", 4)]], pa.map_("string", "int8"))
    elements = elements_of(maps.slice(1), groups(0, length=3))

    assert elements.child(0).to_pylist() == ["b", "c", "d"]
    assert elements.child(1).to_pylist() == [2, 3, 4]
    assert elements.rows.tolist() == [0, 2, 2]


def test_kept_elements_become_one_list_a_group() -> None:
    lists = pa.array([[1, 2], [3], [4, 5], None], pa.list_(pa.int8()))
    elements = elements_of(lists, groups(0, 2, 3, length=4))
    folded = elements.of_groups(np.array([2, 0, 4]), np.array([True, True, False]))

    assert folded.type == lists.type
    assert folded.to_pylist() == [[3, 1], [5], None]


def test_code_is_the_first_row_that_equals() -> None:
    rows = pa.array(
        [{"a": 1, "b": [1.0]}, None, {"a": 1, "b": [1.0]}, {"a": None, "b": None}, None],
        pa.struct({"a": pa.int8(), "b": pa.list_(pa.float32())}),
    )

    assert equal_codes([rows]).tolist() == [0, 1, 0, 3, 1]
    assert equal_codes([np.array([0, 0, 1, 1, 1]), rows]).tolist() == [0, 1, 2, 3, 4]
    assert equal_codes([rows.slice(1)]).tolist() == [0, 1, 2, 0]


def test_sliced_parts_are_compared_as_they_stand() -> None:
    maps = pa.array(
        [[("x", 1)], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)], None],
        pa.map_("string", "int8"),
    )

    assert equal_codes([maps.slice(1)]).tolist() == [0, 0, 2, 3]
