"""Checks that values for a ROW column have only its fields: DuckDB's cast would drop others."""

from __future__ import annotations

import pyarrow as pa

from lakecore.rows.fit import check_names

__all__ = ["check_fields"]


def check_fields(column: str, given: pa.DataType, wanted: pa.DataType) -> None:
    """Raise InvalidRequest if values of type `given` have a field that the column's type lacks.

    Names are compared in any case, as DuckDB does. Fields that are missing become null. The fields
    of `ROW(1, 2)`, which has no names, are taken by position.
    """
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in given]
        if names == [f"element{number}" for number in range(1, len(names) + 1)]:
            pairs = list(zip(given, wanted, strict=False))
        else:
            known = {field.name.lower(): field for field in wanted}
            strange = [name for name in names if name.lower() not in known]
            check_names(strange, [field.name for field in wanted], inside=f"{column}.")
            pairs = [(field, known[field.name.lower()]) for field in given]
        for field, other in pairs:
            check_fields(f"{column}.{other.name}", field.type, other.type)
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        check_fields(f"{column}.key", given.key_type, wanted.key_type)
        check_fields(f"{column}.value", given.item_type, wanted.item_type)
    elif _is_list(given) and _is_list(wanted):
        check_fields(f"{column}.element", given.value_type, wanted.value_type)


def _is_list(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))
