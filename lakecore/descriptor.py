"""A table as a frozen value that another process can open.

INVARIANT: the value holds no open files or connections. Its schema and options are those that the
driver chose, whatever others commit while the job runs. Driver and executors run the same version
of lakecore, because the values between them are pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lakecore
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history import History
from lakecore.io.stores.guarded import guarded, unguarded
from lakecore.io.stores.store import MemoryStore, Store
from lakecore.memory import Budget
from lakecore.options import parse_options
from lakecore.plan.partitions import Partitions
from lakecore.table.context import TableContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.format.layout import Layout
    from lakecore.model.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescriptor:
    """A table without its files: names, schema, options, and how to reach the storage."""

    version: str
    identifier: str
    schema: TableSchema
    options: Mapping[str, str]
    layout: Layout
    store: Store

    def context(self, memory_bytes: int, ambient: Ambient = SYSTEM) -> TableContext:
        """The table as lakecore's verbs need it, with its own memory budget.

        Raises InvalidRequest if another version of lakecore made the descriptor.
        """
        if self.version != lakecore.__version__:
            raise InvalidRequest(
                "driver and executor run different versions of lakecore: install the same one",
                driver=self.version,
                executor=lakecore.__version__,
                table=self.identifier,
            )
        options = parse_options(self.options, table=self.identifier)
        return TableContext(
            identifier=self.identifier,
            schema=self.schema,
            options=options,
            layout=self.layout,
            store=self.store,
            history=History(self.store, self.layout),
            partitions=Partitions(self.schema, options),
            ambient=ambient,
            budget=Budget(memory_bytes),
        )


def describe(
    context: TableContext, dynamic_options: Mapping[str, str] | None = None
) -> TableDescriptor:
    """The descriptor of a table. Raises Unsupported for a table in the memory of this process."""
    if isinstance(unguarded(context.store), MemoryStore):
        raise Unsupported(
            "a table in the memory of one process is out of reach for other processes",
            table=context.identifier,
        )
    layout = anchored(context.layout, context.store)
    return TableDescriptor(
        version=lakecore.__version__,
        identifier=context.identifier,
        schema=context.schema,
        options={**context.options.texts, **(dynamic_options or {})},
        layout=layout,
        store=guarded(context.store, layout),
    )


def anchored(layout: Layout, store: Store) -> Layout:
    """The paths made absolute, because an executor has a different working directory."""
    local = store.local_path(layout.root)
    return layout if local is None else replace(layout, root=local)
