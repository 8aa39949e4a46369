from __future__ import annotations

from typing import Any

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from tests.merge.aggregators.histories import ROWS, Back, fold, rows


def nested(*histories: list[Any], **options: Any) -> list[Any]:
    return fold("nested_update", ROWS, *histories, **options)


def test_without_key_rows_are_appended() -> None:
    updated = nested(
        [rows((1, 1, "a"), None), rows((1, 1, "a"), (2, 2, "b"))], [None, None], [None, []]
    )

    assert updated == [rows((1, 1, "a"), (1, 1, "a"), (2, 2, "b")), None, []]


def test_without_key_every_equal_row_is_taken_back() -> None:
    updated = nested(
        [rows((1, 1, "a"), (1, 1, "a"), (2, 2, "b")), Back(rows((1, 1, "a"))), rows((1, 1, "a"))],
        [Back(rows((1, 1, "a"))), rows((1, 1, "a"))],
        [Back(rows((1, 1, "a")))],
        [rows((1, None, None)), Back(rows((1, None, None), None))],
    )

    assert updated == [rows((2, 2, "b"), (1, 1, "a")), rows((1, 1, "a")), None, []]


def test_limit_keeps_the_rows_that_come_first() -> None:
    updated = nested(
        [rows((1, 1, "a")), rows((2, 1, "a"), (3, 2, "b")), rows((4, 1, "a"))],
        [rows((1, 1, "a"), (2, 2, "b"), (3, 3, "c")), None],
        count_limit=2,
    )

    assert updated == [rows((1, 1, "a"), (2, 1, "a")), rows((1, 1, "a"), (2, 2, "b"))]


def test_taking_back_makes_room_below_the_limit() -> None:
    updated = nested(
        [
            rows((1, 1, "a"), (2, 2, "b"), (3, 3, "c")),
            Back(rows((1, 1, "a"))),
            rows((4, 4, "d"), (5, 5, "e")),
        ],
        [rows((1, 1, "a"))],
        [Back(rows((1, 1, "a"))), rows((1, 1, "a"), (2, 2, "b"), (3, 3, "c"))],
        count_limit=2,
    )

    assert updated == [
        rows((2, 2, "b"), (4, 4, "d")),
        rows((1, 1, "a")),
        rows((1, 1, "a"), (2, 2, "b")),
    ]


def test_later_row_of_a_key_wins() -> None:
    updated = nested(
        [rows((1, 1, "a"), None), rows((1, 0, "b"), (2, 2, "b"))],
        [rows((1, 1, "a"), (2, 2, "b")), Back(rows((1, 9, "z"))), rows((3, 1, "c"))],
        [rows((1, 1, "a")), Back(rows((1, 1, "a"))), rows((1, 0, "b"))],
        [None, None],
        nested_key=("k",),
    )

    assert updated == [
        rows((1, 0, "b"), (2, 2, "b")),
        rows((2, 2, "b"), (3, 1, "c")),
        rows((1, 0, "b")),
        None,
    ]


def test_limit_lets_in_the_keys_that_come_first_and_updates_them() -> None:
    updated = nested(
        [rows((1, 1, "a"), (2, 2, "b"), (3, 3, "c")), rows((1, 0, "b"), (4, 2, "b"))],
        [
            rows((1, 1, "a"), (2, 2, "b")),
            Back(rows((1, 9, "z"))),
            rows((3, 1, "c"), (4, 1, "d"), (2, 5, "e")),
        ],
        nested_key=("k",),
        count_limit=2,
    )

    assert updated == [rows((1, 0, "b"), (2, 2, "b")), rows((2, 5, "e"), (3, 1, "c"))]


def test_row_of_the_greatest_nested_sequence_wins_and_the_later_of_equals() -> None:
    updated = nested(
        [rows((1, 1, "a")), rows((1, 0, "b"), (2, 2, "b")), rows((2, 2, "c"), (1, None, "d"))],
        [rows((1, 9, "a")), Back(rows((1, 0, "z"))), rows((1, 1, "c"))],
        nested_key=("k",),
        nested_sequence_field=("s",),
    )

    assert updated == [rows((1, 1, "a"), (2, 2, "c")), rows((1, 1, "c"))]


def test_null_in_a_nested_key_merges_is_ignored_or_refused() -> None:
    history = [rows((None, 1, "a"), (1, 1, "x")), rows((None, 2, "b"))]

    assert nested(history, nested_key=("k",)) == [rows((None, 2, "b"), (1, 1, "x"))]
    ignored = nested(history, nested_key=("k",), nested_key_null_strategy="IGNORE")
    assert ignored == [rows((1, 1, "x"))]
    with pytest.raises(InvalidRequest, match="a nested key is null"):
        nested(history, nested_key=("k",), nested_key_null_strategy="error")
    # An element that is null has no key.
    whole = [[*rows((1, 1, "x")), None], rows((1, 2, "y"), (2, 2, "z"))]
    kept = nested(whole, nested_key=("k",), nested_key_null_strategy="error")
    assert kept == [rows((1, 2, "y"), (2, 2, "z"))]


def test_partial_update_keeps_the_last_non_null_of_each_field() -> None:
    updated = fold(
        "nested_partial_update",
        ROWS,
        [rows((1, 1, None), None), rows((1, None, "b"), (2, 2, None)), rows((2, None, "q"))],
        [None, None],
        [rows((None, 1, None)), rows((None, None, "b"))],
        [[], None],
        nested_key=("k",),
    )

    assert updated == [rows((1, 1, "b"), (2, 2, "q")), None, rows((None, 1, "b")), []]


def test_no_rows_give_no_rows() -> None:
    assert nested() == []
    assert fold("nested_partial_update", ROWS, nested_key=("k",)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nested_key": ("z",)}, "nested-key value=z fields=\\[k, s, v\\]"),
        ({"nested_sequence_field": ("s",)}, "nested-sequence-field needs=fields.x.nested-key"),
        ({"nested_key_null_strategy": "merge"}, "null-strategy needs=fields.x.nested-key"),
        (
            {"nested_key": ("k",), "nested_key_null_strategy": "drop"},
            "unknown strategy .* value=drop allowed=\\[merge, ignore, error\\]",
        ),
    ],
)
def test_option_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        nested([None], **options)


def test_partial_update_needs_a_nested_key() -> None:
    with pytest.raises(InvalidRequest, match="the function needs a nested key"):
        fold("nested_partial_update", ROWS, [None])


def test_nested_sequence_with_parts_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="nested sequence field must not be of a nested type"):
        fold(
            "nested_update",
            "ARRAY<ROW<k INT, s ARRAY<INT>>>",
            [None],
            nested_key=("k",),
            nested_sequence_field=("s",),
        )
