"""The strategies of the kit: tables, rows, options and conditions that a law is checked with.

Domains are small on purpose: few keys, so that rows meet again and files overlap, and the values at
the ends of each type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import Atomic
from lakecore.testing.engine_draws import ENGINES, FREE, kinds_of, mergings
from lakecore.testing.function_draws import Case, values_for, values_of
from lakecore.testing.table_draws import (
    FILES,
    MANIFESTS,
    POOLS,
    TYPE_NAMES,
    WRITES,
    Shape,
    append_shapes,
    key_values,
    keyed_shapes,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field


def schemas(
    *,
    keyed: bool | None = None,
    engines: Sequence[str] = ("deduplicate",),
    types: Sequence[str] | None = None,
) -> st.SearchStrategy[Shape]:
    """Tables to create, as `Shape`: columns, keys, partitions and options that fit together.

    `keyed`: with a primary key, without one, or both (None). `engines` are the merge engines of
    tables with a key: `deduplicate`, `first-row`, `partial-update`, `aggregation`. `types` are the
    types, as Paimon states them, of the columns that are no keys and have no aggregate function.
    Aggregate functions are those whose result does not depend on compaction and leaves no order
    open.

    Raises InvalidRequest for an unknown engine or type.

        @given(shape=schemas(keyed=True, engines=["deduplicate", "partial-update"]))
        def test_create(shape): ...
    """
    chosen = TYPE_NAMES if types is None else tuple(types)
    if unknown := [*{*engines} - {*ENGINES}, *{*chosen} - {*POOLS}]:
        raise InvalidRequest(
            "no such merge engine or type to draw",
            given=sorted(unknown),
            engines=ENGINES,
            types=TYPE_NAMES,
        )
    found: list[st.SearchStrategy[Shape]] = []
    if keyed is not False:
        found += [_of_engine(engine, FREE if types is None else chosen) for engine in engines]
        if "deduplicate" in engines:
            found.append(keyed_shapes(chosen))
    if keyed is not True:
        found.append(append_shapes(chosen))
    return st.one_of(found)


@st.composite
def _of_engine(draw: st.DrawFn, engine: str, types: Sequence[str]) -> Shape:
    merging = draw(mergings(engine, regroups=True, exact=True, types=types))
    options = {**merging.shape.options, **draw(FILES)}
    taken = kinds_of(options)
    kinds = tuple(kind for kind in merging.kinds if kind in taken)
    return Shape(
        columns=merging.shape.columns,
        primary_keys=merging.shape.primary_keys,
        options=options,
        kinds=kinds,
    )


def rows(
    schema: TableSchema | Shape, *, kinds: bool = True, max_size: int = 8
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists of rows of a table, as dictionaries that `write` and `Model.write` take.

    With `kinds`, a row of a table with a primary key has `_row_kind`, one of the kinds that the
    table takes; in a table with `rowkind.field`, that column has them. Rows may be equal, and their
    keys meet often.

        @given(data=st.data())
        def test_write(data): table.write(data.draw(rows(shape)))
    """
    shape = schema if isinstance(schema, Shape) else None
    stated = schema.schema if isinstance(schema, Shape) else schema
    taken = shape.kinds if shape is not None else kinds_of(stated.options)
    taken = taken if kinds and stated.primary_keys else ("+I",)
    of_kind = stated.parsed_options().rowkind_field
    columns = {
        field.name: st.sampled_from(taken) if field.name == of_kind else _column(field, stated)
        for field in stated.fields
    }
    if kinds and stated.primary_keys and of_kind is None:
        columns[ROW_KIND] = st.sampled_from(taken)
    return st.lists(st.fixed_dictionaries(columns), max_size=max_size)


def _column(field: Field, schema: TableSchema) -> st.SearchStrategy[Any]:
    prefix = f"fields.{field.name}."
    own = {
        option.removeprefix(prefix): text
        for option, text in schema.options.items()
        if option.startswith(prefix)
    }
    function = own.pop("aggregate-function", None)
    if field.name in schema.primary_keys:
        return key_values(field.type)
    if function is not None:
        case = Case(function=function, type=str(field.type), options=own)
        return values_for(case, wide=False)
    if not isinstance(field.type, Atomic):
        return values_of(field.type)
    return values(field.type)


def options() -> st.SearchStrategy[dict[str, str]]:
    """Options that decide how rows lie in files and memory, and so must change no row.

    They fit every table, as options of `create_table` or of `table.copy`: formats, file and buffer
    sizes, statistics, manifests.

        @given(neutral=options())
        def test_law(neutral): catalog.create_table("d.t", columns, options=neutral)
    """
    plain_writes = WRITES.filter(lambda each: not {*each} & {*_NOT_NEUTRAL})
    return st.tuples(FILES, MANIFESTS, plain_writes).map(
        lambda drawn: {key: text for each in drawn for key, text in each.items()}
    )


_NOT_NEUTRAL = ("write-only", "full-compaction.delta-commits")
"""They decide when a table compacts, which adds snapshots."""
