"""Which changes are made to a source, and which are not."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import compiles, mutants


def changed(body: str) -> list[str]:
    """The bodies that mutants make of the body of a function."""
    head = "def f(a, b):\n    "
    source = f"{head}{body}\n".encode()
    found = mutants("m.py", source)
    assert all(compiles(each, source) for each in found)
    return [each.applied(source).decode().removeprefix(head).strip() for each in found]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return a < b", ["return None", "return (a <= b)"]),
        ("x = a is None and b", ["x = (a is None or b)", "x = (a is not None) and b"]),
        ("a += 1", ["pass", "a += 2"]),
        ("a.close()", ["pass"]),
        ("x = a[1:]", ["x = a[2:]"]),
        ("x = not a", ["x = (a)"]),
        ("x = a if b else 0", ["x = (0 if b else a)", "x = a if b else 1"]),
        ("return None", []),
        ("raise ValueError(f'{a + 1}')", []),
        ("log.info('%d', a + 1)", []),
        ("x: int = a - b", ["x: int = (a + b)"]),
        ("é = a + b", ["é = (a - b)"]),
    ],
)  # fmt: skip
def test_operators_constants_conditions_results_and_statements_change(
    body: str, found: list[str]
) -> None:
    assert changed(body) == found


def test_what_is_outside_functions_stays() -> None:
    assert mutants("m.py", b"import os\nX = 1 + 2\nif TYPE_CHECKING:\n    Y = 1\n") == []
    assert mutants("m.py", b"class C:\n    x: int = 1\n    y = not x\n") == []


def test_equal_changes_of_a_function_have_keys_of_their_own() -> None:
    found = mutants("m.py", b"def f(a):\n    a += 1\n    a[1]()\n")

    assert len({each.key for each in found}) == len(found) == 4
