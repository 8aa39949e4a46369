"""Which tests run a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutation.reach import Reach

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tests_of_a_line_are_those_that_run_it(tmp_path: Path) -> None:
    for name, text in {
        "pytest.ini": "[pytest]\npythonpath = .\n",
        "small/m.py": "def f(a):\n    if a:\n        return 1\n    return 2\n",
        "tests/test_m.py": (
            "from small.m import f\n"
            "def test_one():\n    assert f(1)\n"
            "def test_two():\n    assert f(0)\n"
            "def test_nothing():\n    pass\n"
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")

    def reach() -> Reach:
        return Reach.of(tmp_path, tmp_path / "kept", ["tests/test_m.py"], ["."], "small")

    def tests(first: int, last: int) -> set[str]:
        return {name.partition("::")[2] for name in reach().tests("small/m.py", first, last)}

    assert tests(2, 2) == {"test_one", "test_two"}
    assert tests(3, 3) == {"test_one"}
    assert tests(3, 4) == {"test_one", "test_two"}
    assert tests(1, 1) == {
        "test_one",
        "test_two",
    }  # the import of the file runs it: all of the file
    assert "tests/test_m.py::test_two" in reach().names

    kept = reach().log.stat().st_mtime_ns
    assert reach().log.stat().st_mtime_ns == kept
    (tmp_path / "small/m.py").write_text("def f(a):\n    return a + 3\n", "utf-8")
    assert tests(2, 2) == {"test_one", "test_two"}  # run again for the new code
