from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.merge.aggregators.histories import fold

if TYPE_CHECKING:
    from collections.abc import Sequence


def listagg(*histories: Sequence[str | None], **options: object) -> list[str | None]:
    return fold("listagg", "STRING", *histories, **options)


def test_texts_are_joined_in_order_and_nulls_left_out() -> None:
    joined = listagg(["a", "b", None, "c"], [None, None], [None, "x"], ["a,a", "a,b,,b"])

    assert joined == ["a,b,c", None, "x", "a,a,a,b,,b"]


def test_blank_texts_count_for_nothing() -> None:
    joined = listagg(
        ["", "a", " \t", "b", "\u3000"], ["  ", ""], ["\u00a0", "a"], ["\x1f", "\x1e", "a"]
    )

    assert joined == ["a,b", None, "\u00a0,a", "a"]


def test_delimiter_may_be_any_text() -> None:
    assert listagg(["a", "b"], delimiter="; ") == ["a; b"]
    assert listagg(["a", "b"], delimiter="") == ["ab"]


def test_distinct_adds_only_new_tokens_after_the_first_text() -> None:
    joined = listagg(
        ["a,b", "b,c,c", "a", "d"],
        ["a,a", "a,b,,b"],
        ["a,", "b"],
        [None, "x", "x"],
        [None, " "],
        distinct=True,
    )

    assert joined == ["a,b,c,d", "a,a,b", "a,,b", "x", None]


def test_distinct_leaves_out_blank_tokens() -> None:
    assert listagg(["x", "y, ,x"], distinct=True) == ["x,y"]


@pytest.mark.parametrize(
    ("delimiter", "texts", "joined"),
    [
        ("; ", ["a; b", "b; c", "a; "], "a; b; c"),
        # What was joined splits otherwise than it was joined: "a|||b" is "a" and "|b".
        ("||", ["a|", "b", "b", "|b", "c||a"], "a|||b||b||c"),
        ("||", ["a", "b||a", "c"], "a||b||c"),
        # Without a delimiter texts split at spaces.
        ("", ["a b", "b c", "c bc d"], "a bccd"),
    ],
)
def test_distinct_splits_what_it_has_joined(delimiter: str, texts: list[str], joined: str) -> None:
    folded = listagg(texts, ["z"], [None], texts, distinct=True, delimiter=delimiter)

    assert folded == [joined, "z", None, joined]


def test_no_text_gives_no_text() -> None:
    assert listagg() == []
    assert listagg(distinct=True) == []
