from __future__ import annotations

from typing import Any

import pytest

from lakecore.errors import InvalidRequest
from tests.merge.aggregators.histories import ROWS, Back, fold, rows

TIMED = "MAP<STRING, ROW<v INT, t STRING>>"


def entries(**values: tuple[int, str | None] | None) -> list[Any]:
    return [
        (key, None if value is None else {"v": value[0], "t": value[1]})
        for key, value in values.items()
    ]


def test_collect_puts_lists_one_after_another() -> None:
    collected = fold(
        "collect", "ARRAY<INT>", [[1, 2], None, [1, None]], [None, None], [[], None], [None, [3]]
    )

    assert collected == [[1, 2, 1, None], None, [], [3]]


def test_collect_takes_back_the_oldest_of_equal_elements() -> None:
    collected = fold(
        "collect",
        "ARRAY<INT>",
        [[1, 1, 2], Back([1, 3]), [3], Back([3])],
        [[1, 2, 1], Back([1])],
        [[None, 1], Back([None, None])],
        [[1, 2], Back(None), Back([])],
    )

    assert collected == [[1, 2], [2, 1], [1], [1, 2]]


def test_collect_never_owes_an_element() -> None:
    collected = fold(
        "collect",
        "ARRAY<INT>",
        [Back([1]), [1, 1]],
        [[1], Back([1, 1]), [1]],
        [[1], Back([1]), Back([1]), [1, 2]],
    )

    assert collected == [[1, 1], [1], [1, 2]]


def test_collect_of_retracts_alone_is_null_but_emptied_is_empty() -> None:
    assert fold("collect", "ARRAY<INT>", [Back(None), Back([1])], [[1], Back([1])]) == [None, []]


def test_distinct_collect_keeps_each_value_once() -> None:
    collected = fold(
        "collect",
        "ARRAY<INT>",
        [[1, 2], None, [1, None, None, 3]],
        [[2, 2], None],
        [[5, 5], Back([5])],
        [[5, 4], Back([5]), [4, 5]],
        [None, None],
        distinct=True,
    )

    assert collected == [[1, 2, None, 3], [2], [], [4, 5], None]


def test_elements_with_parts_are_compared_by_value() -> None:
    collected = fold(
        "collect",
        ROWS,
        [rows((1, 2, "a")), rows((1, 2, "a"), (1, None, "a"), (1, None, "a"), None)],
        [rows((1, 2, "a"), (3, 4, "b")), Back(rows((3, 4, "b")))],
        distinct=True,
    )

    assert collected == [rows((1, 2, "a"), (1, None, "a"), None), rows((1, 2, "a"))]

    lists = fold(
        "collect", "ARRAY<ARRAY<INT>>", [[[1, 2], None], [[1, 2], [2, 1], None, []]], distinct=True
    )

    assert lists == [[[1, 2], None, [2, 1], []]]


def test_maps_are_equal_whatever_the_order_of_their_entries() -> None:
    collected = fold(
        "collect",
        "ARRAY<MAP<STRING, INT>>",
        [[[("a", 1), ("b", 2)]], [[("b", 2), ("a", 1)], [("a", 1)]]],
        distinct=True,
    )

    assert collected == [[[("a", 1), ("b", 2)], [("a", 1)]]]


def test_maps_of_the_same_keys_differ_by_their_values() -> None:
    collected = fold(
        "collect",
        "ARRAY<MAP<STRING, INT>>",
        [[[("a", 1)]], [[("a", 2)], [("a", None)], [("a", 1)]]],
        [[[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]]],
        [[[("a", 1)], [("a", 2)]], Back([[("a", 2)]])],
        distinct=True,
    )

    assert collected == [
        [[("a", 1)], [("a", 2)], [("a", None)]],
        [[("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
        [[("a", 1)]],
    ]


def test_binaries_are_compared_by_value() -> None:
    assert fold("collect", "ARRAY<BYTES>", [[b"a"], [b"a", b"b"]], distinct=True) == [[b"a", b"b"]]
    assert fold("collect", "ARRAY<BYTES>", [[b"a"], Back([b"a"])]) == [[]]


def test_zeros_of_either_sign_differ_and_nan_equals_nan() -> None:
    nan = float("nan")
    collected = fold(
        "collect", "ARRAY<DOUBLE>", [[0.0], [-0.0], [0.0]], [[nan], [nan]], distinct=True
    )
    inside = fold(
        "collect", "ARRAY<ARRAY<FLOAT>>", [[[nan]], [[nan], [-0.0], [0.0]]], distinct=True
    )

    assert [list(map(repr, values)) for values in collected] == [["0.0", "-0.0"], ["nan"]]
    assert repr(inside) == "[[[nan], [-0.0], [0.0]]]"


def test_merged_map_holds_the_last_value_of_each_key() -> None:
    merged = fold(
        "merge_map",
        "MAP<STRING, INT>",
        [[("a", 1), ("b", 2)], None, [("a", 3), ("c", None)]],
        [None, None],
        [[], None],
    )

    assert merged == [[("b", 2), ("a", 3), ("c", None)], None, []]


def test_merged_map_loses_the_keys_taken_back() -> None:
    merged = fold(
        "merge_map",
        "MAP<STRING, INT>",
        [[("a", 1), ("b", 2)], Back([("a", 9)])],
        [Back([("a", 1)]), [("a", 2)]],
        [[("a", 1)], Back([("a", 1)]), None],
        [Back([("a", 1)]), Back(None)],
        [[("a", 1)], Back([("a", 1)]), [("a", 5)]],
    )

    assert merged == [[("b", 2)], [("a", 2)], [], None, [("a", 5)]]


def test_merged_map_of_no_rows() -> None:
    assert fold("merge_map", "MAP<STRING, INT>") == []


def test_entry_of_the_greatest_time_stays() -> None:
    merged = fold(
        "merge_map_with_keytime",
        TIMED,
        [entries(a=(1, "5")), entries(a=(2, "10"), b=(3, "1"))],
        [entries(a=(1, "5")), entries(a=(2, "5"), b=(1, None)), entries(a=(3, "6"), c=None)],
        [None, None],
    )

    assert merged == [entries(a=(1, "5"), b=(3, "1")), entries(a=(3, "6")), None]


def test_null_removes_the_key_and_forgets_its_time() -> None:
    merged = fold(
        "merge_map_with_keytime",
        TIMED,
        [entries(a=(1, "5")), entries(a=None), entries(a=(7, "1"))],
        [entries(a=(1, "5")), entries(a=(7, "9")), entries(a=None)],
    )

    assert merged == [entries(a=(7, "1")), []]


def test_first_map_is_taken_as_it_is() -> None:
    first = entries(a=(1, "5"), b=None, c=(3, None))
    merged = fold(
        "merge_map_with_keytime",
        TIMED,
        [first, entries(a=(2, "1"))],
        [first, entries(b=(2, "1"), c=(4, "1"), a=None)],
    )

    assert merged == [first, entries(b=(2, "1"), c=(4, "1"))]


def test_time_field_may_be_named() -> None:
    kind = "MAP<STRING, ROW<t STRING, v STRING>>"
    merged = fold(
        "merge_map_with_keytime",
        kind,
        [[("a", {"t": "2", "v": "x"})], [("a", {"t": "1", "v": "y"})]],
        ts_field="t",
    )

    assert merged == [[("a", {"t": "2", "v": "x"})]]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("MAP<STRING, INT>", {}, "must be rows of at least two fields"),
        (TIMED, {"ts_field": "u"}, "names a field that does not exist"),
        (TIMED, {"ts_field": "v"}, "the time of an entry must be a string"),
    ],
)
def test_column_without_a_time_is_refused(kind: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        fold("merge_map_with_keytime", kind, [None], **options)
