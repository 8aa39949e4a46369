"""The testing kit: a model of a table, strategies, storage that fails, golden tables, a suite.

The names below are the public ones; each is imported when it is first used. The names are unstable
until 1.0: a minor version may change them, and the changelog says so. The strategies need the extra
`testing`, which brings Hypothesis; the other names do not. Nothing else of lakecore imports this
package. docs/testing.md explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.deferred import named
from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from lakecore.io.ambient import Clock
    from lakecore.io.ambient import seeded as seeded_ambient
    from lakecore.testing import suite
    from lakecore.testing.aggregates import Refused
    from lakecore.testing.condition_draws import Condition, conditions
    from lakecore.testing.machine import Replay, Step, TableMachine, histories
    from lakecore.testing.model import Model
    from lakecore.testing.stores import Crashed, Faults, StoreCall
    from lakecore.testing.strategies import options, rows, schemas
    from lakecore.testing.suite import GoldenTable, golden, golden_names
    from lakecore.testing.table_draws import Shape, schema_changes
    from lakecore.testing.values import apply_changes, assert_same_rows
    from lakecore.testing.warehouse import FaultyWarehouse, every_call, faulty_warehouse

__all__ = [
    "Clock",
    "Condition",
    "Crashed",
    "Faults",
    "FaultyWarehouse",
    "GoldenTable",
    "Model",
    "Refused",
    "Replay",
    "Shape",
    "Step",
    "StoreCall",
    "TableMachine",
    "apply_changes",
    "assert_same_rows",
    "conditions",
    "every_call",
    "faulty_warehouse",
    "golden",
    "golden_names",
    "histories",
    "options",
    "rows",
    "schema_changes",
    "schemas",
    "seeded_ambient",
    "suite",
]

_HOMES = {
    "lakecore.testing": "suite",
    "lakecore.io.ambient": "Clock seeded",
    "lakecore.testing.aggregates": "Refused",
    "lakecore.testing.condition_draws": "Condition conditions",
    "lakecore.testing.suite": "GoldenTable golden golden_names",
    "lakecore.testing.machine": "Replay Step TableMachine histories",
    "lakecore.testing.model": "Model",
    "lakecore.testing.stores": "Crashed Faults StoreCall",
    "lakecore.testing.strategies": "options rows schemas",
    "lakecore.testing.table_draws": "Shape schema_changes",
    "lakecore.testing.values": "apply_changes assert_same_rows",
    "lakecore.testing.warehouse": "FaultyWarehouse every_call faulty_warehouse",
}
_named = named(__name__, _HOMES)


def __getattr__(name: str) -> object:
    """Import the public name when it is first used. Raises Unsupported without Hypothesis."""
    try:
        return _named("seeded" if name == "seeded_ambient" else name)
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise Unsupported(
            "the strategies need a package that is not installed",
            name=name,
            package="hypothesis",
            install="pip install 'lakecore[testing]'",
        ) from error


def __dir__() -> list[str]:
    return list(__all__)
