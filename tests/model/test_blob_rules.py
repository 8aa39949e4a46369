"""Which columns may hold BLOB values."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.validation import create_schema


def refused(
    text: str = "a map of BLOB values cannot have keys of this type",
) -> AbstractContextManager[object]:
    return pytest.raises(InvalidRequest, match=text)


@pytest.mark.parametrize(
    ("key", "outcome"),
    [
        ("INT", nullcontext()),
        ("STRING", nullcontext()),
        ("DECIMAL(38, 3)", nullcontext()),
        ("BYTES", nullcontext()),
        ("FLOAT", refused()),
        ("DOUBLE", refused()),
        ("TIMESTAMP(3)", refused()),
        ("ARRAY<INT>", refused()),
        ("ROW<a INT>", refused()),
    ],
)
def test_keys_of_a_map_of_blobs_are_of_types_that_its_files_can_store(
    key: str, outcome: AbstractContextManager[object]
) -> None:
    options = {"data-evolution.enabled": "true", "row-tracking.enabled": "true"}
    with outcome:
        create_schema({"k": "INT", "m": f"MAP<{key}, BLOB>"}, options=options, now_ms=0)


@pytest.mark.parametrize("key", ["blob-descriptor-field", "blob-view-field"])
@pytest.mark.parametrize(
    ("column", "outcome"),
    [
        ("b", nullcontext()),
        ("many", refused("is not a column of the type BLOB")),
        ("k", refused("is not a column of the type BLOB")),
    ],
)
def test_references_are_in_columns_of_the_type_blob_alone(
    key: str, column: str, outcome: AbstractContextManager[object]
) -> None:
    options = {"data-evolution.enabled": "true", "row-tracking.enabled": "true", key: column}
    with outcome:
        create_schema({"k": "INT", "b": "BLOB", "many": "ARRAY<BLOB>"}, options=options, now_ms=0)
