"""The machine of `lakecore.testing`, as its users subclass it: tables of every merge engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from hypothesis import settings

import lakecore as lc
from lakecore.testing import TableMachine, schemas
from lakecore.testing.machine import VERBS
from lakecore.testing.strategies import ENGINES

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakecore.model.schema_change import Change
    from lakecore.testing import Shape


class LakecoreMachine(TableMachine):
    """Writes, overwrites, deletions, compactions, rollbacks, tags, expiry and schema changes."""

    shapes = schemas(engines=ENGINES)
    verbs: ClassVar[Collection[str]] = VERBS

    def open_table(self, shape: Shape) -> lc.Table:
        self.session = lc.connect(f"memory://{uuid4()}", create=True)
        self.session.create_database("d")
        return self.session.create_table(
            "d.t",
            shape.columns,
            primary_keys=shape.primary_keys,
            partition_keys=shape.partition_keys,
            options=shape.options,
        )

    def reopen(self, table: lc.Table) -> lc.Table:  # noqa: ARG002 - by its name
        return self.session.get_table("d.t")

    def alter_table(self, table: lc.Table, change: Change) -> lc.Table:
        self.session.alter_table("d.t", [change])
        return self.reopen(table)


TestLakecore = LakecoreMachine.TestCase
TestLakecore.settings = settings(stateful_step_count=12)
