"""The public names of the kit, and what they cost who does not use them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.pypaimon_compliance import TestPypaimon as Pypaimon
from lakecore import testing
from tests.api_page import page_of

ROOT = Path(__file__).parents[2]
PUBLIC = [
    *("Clock", "Condition", "Crashed", "Faults", "FaultyWarehouse", "GoldenTable", "Model"),
    *("Refused", "Replay", "Shape", "Step", "StoreCall", "TableMachine", "apply_changes"),
    *("assert_same_rows", "conditions", "every_call", "faulty_warehouse", "golden"),
    *("golden_names", "histories", "options", "rows", "schema_changes", "schemas"),
    *("seeded_ambient", "suite"),
]
NEED_HYPOTHESIS = {
    *("Condition", "Replay", "Shape", "Step", "TableMachine", "conditions", "histories"),
    *("options", "rows", "schema_changes", "schemas"),
}


def run(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def test_public_names_are_these() -> None:
    assert sorted(testing.__all__) == PUBLIC
    assert dir(testing) == testing.__all__
    assert not hasattr(testing, "Tabel")


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "suite"])
def test_name_has_a_docstring_with_an_example(name: str) -> None:
    doc = inspect.getdoc(getattr(testing, name)) or ""

    assert re.search(r"\n\n    \S", doc), doc


def test_the_page_of_the_names_is_up_to_date() -> None:
    page = (ROOT / "docs" / "api-testing.md").read_text()

    assert page == page_of("api-testing"), "write it again, as it says at its top"


def test_no_module_has_the_name_of_something_else() -> None:
    # Importing it would replace the name.
    modules = {path.stem for path in (ROOT / "lakecore" / "testing").glob("*.py")}

    assert modules & {*PUBLIC} == {"suite"}


def test_without_hypothesis_the_strategies_name_the_extra_and_all_else_works() -> None:
    code = """
import sys
sys.modules["hypothesis"] = None
from lakecore import testing
from lakecore.errors import Unsupported
lacking = set()
for name in testing.__all__:
    try:
        getattr(testing, name)
    except Unsupported as error:
        assert "pip install 'lakecore[testing]'" in str(error), error
        lacking.add(name)
print(sorted(lacking))
"""

    assert run(code) == str(sorted(NEED_HYPOTHESIS))


def test_lakecore_imports_no_part_of_the_kit_and_the_kit_only_what_is_used() -> None:
    code = """
import sys, lakecore as lc
lc.open_table("memory://x/t", create=True, schema={"n": "INT"}).write([{"n": 1}])
print([name for name in sys.modules if name.startswith("lakecore.testing")])
import lakecore.testing
lakecore.testing.Faults
print("hypothesis" in sys.modules)
"""

    assert run(code).splitlines() == ["[]", "False"]


def test_page_lists_what_pypaimon_fails() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    listed = set(re.findall(r"`(paimon-2\.1/\w+)`", page.partition("wrong rows of none")[2]))

    assert listed == {name for name in Pypaimon.known_failures if name.startswith("paimon-2.1/")}
    assert sum(name.startswith("paimon-0.9/") for name in testing.golden_names()) == 16
    assert len(testing.golden_names()) - len(Pypaimon.known_failures) == 21
