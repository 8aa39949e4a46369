"""A deprecated name still works, and says what to use."""

from __future__ import annotations

import pytest

from lakecore.deprecation import deprecated


@deprecated(instead="Table.compact", since="0.3", removed_in="0.4")
def tidy(text: str) -> str:
    """Tidies a text."""
    return text.strip()


def test_a_deprecated_function_works_and_names_its_successor_at_the_line_of_the_call() -> None:
    with pytest.warns(DeprecationWarning, match="use Table.compact") as caught:
        assert tidy(" a ") == "a"

    assert str(caught[0].message) == (
        "tidy is deprecated since lakecore 0.3, and lakecore 0.4 removes it; use Table.compact"
    )
    assert caught[0].filename == __file__
    assert (tidy.__name__, tidy.__doc__) == ("tidy", "Tidies a text.")
