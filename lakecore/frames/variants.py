"""VARIANT columns as JSON text."""

from __future__ import annotations

from typing import TypeVar

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.format.variant import json_of_variants
from lakecore.model.types import Variant, arrow_type

Column = TypeVar("Column", pa.Array, pa.ChunkedArray, pl.Series)


def variant_to_json(column: Column) -> Column:
    """The JSON text of each value of a VARIANT column, as strings in a column of the same kind.

    Takes a column as a read returns it: a Polars series, an Arrow array or a chunked array of
    structs of `value` and `metadata`. Null stays null; a VARIANT that is null is the text `null`.
    Dates, timestamps (in UTC), UUIDs and binaries (as Base64) are quoted texts.

    Raises InvalidRequest for another column; CorruptTable for bytes that are not a VARIANT.

        lakecore.variant_to_json(table.to_polars()["payload"])

    https://paimon.apache.org/docs/master/concepts/data-types/
    """
    if isinstance(column, pl.Series):
        texts = _texts(column.to_arrow())
        return pl.Series(column.name, texts)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_texts(chunk) for chunk in column.chunks], pa.string())
    return _texts(column)


def _texts(array: pa.Array) -> pa.Array:
    wanted = arrow_type(Variant())
    kind = getattr(array, "type", None)
    if kind is None or not pa.types.is_struct(kind) or {f.name for f in kind} != _PARTS:
        raise InvalidRequest(
            "a VARIANT column has structs of `value` and `metadata`",
            given=type(array).__name__ if kind is None else kind,
        )
    return json_of_variants(array.cast(pa.struct([field.with_nullable(True) for field in wanted])))


_PARTS = {field.name for field in arrow_type(Variant())}
