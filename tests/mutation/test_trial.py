from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from tests.mutation.mutants import mutants
from tests.mutation.trial import Patch

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
def above(least):
    def test(number):
        return number > least
    return test

TESTS = {"positive": above(0), "large": above(9)}
"""


def test_functions_that_were_made_on_import_are_mutated_too(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location("made", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    changes = {(each.function, each.text): each for each in mutants("made.py", SOURCE.encode())}
    builtins = made.__dict__["__builtins__"]
    builtins["__mutant_is_reached__"] = lambda: None

    def found() -> list[bool | None]:
        return [made.TESTS["positive"](0), made.TESTS["large"](9), made.above(5)(5)]

    try:
        for text, result in (("(number >= least)", True), ("return None", None)):
            patch = Patch.of(changes["above.test", text], tmp_path)
            assert patch is not None
            before = patch.applied()
            assert found() == [result] * 3
            before.applied()
            assert found() == [False] * 3
    finally:
        del builtins["__mutant_is_reached__"]
