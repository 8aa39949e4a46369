"""Values of columns in the form that file indexes store, and their codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lakecore.format.file_index.coded import (
    NULL,
    CodedParts,
    stored_size,
    stored_values,
    value_form,
)
from lakecore.model.types import arrow_type, parse_type


@pytest.mark.parametrize(
    ("kind", "unit", "numbers", "stored"),
    [
        ("TIME", "ms", [0, 86_399_999, None], [0, 86_399_999, None]),
        ("DATE", "day", [-1, 2, None], [-1, 2, None]),
        ("TIMESTAMP(3)", "ms", [-1, 2, None], [-1, 2, None]),
        ("TIMESTAMP(6)", "us", [-1, 2, None], [-1, 2, None]),
        ("TIMESTAMP(9)", "ns", [-1, 1_999, 2_000, None], [-1, 1, 2, None]),
        ("TIMESTAMP(6)", "ms", [-1, 2, None], [-1_000, 2_000, None]),
    ],
)
def test_times_are_numbers(kind: str, unit: str, numbers: list[Any], stored: list[Any]) -> None:
    form = value_form(parse_type(kind))
    assert form is not None
    arrow = pa.timestamp(unit) if "STAMP" in kind else arrow_type(parse_type(kind))
    column = pa.array(numbers, f"int{arrow.bit_width}").view(arrow)

    assert stored_values(column, form).equals(pa.array(stored, pa.int64()))


@pytest.mark.parametrize("count", [127, 128, 32_767, 32_768, 40_000])
def test_codes_are_places_in_the_dictionary_however_many_values(count: int) -> None:
    form = value_form(parse_type("INT"))
    assert form is not None
    parts, values = CodedParts(form), np.arange(count)[::-1]
    parts.add(pa.array([*values.tolist(), None], pa.int32()))
    parts.add(pa.array([count, 0], pa.int32()))
    coded = parts.finish()

    assert coded.keys.to_numpy().tolist() == list(range(count + 1))
    assert coded.codes.tolist() == [*values.tolist(), NULL, count, 0]


@pytest.mark.parametrize("containers", [1, 3, 4, 9])
@pytest.mark.parametrize("has_runs", [False, True])
def test_size_of_a_bitmap_follows_from_its_header(containers: int, *, has_runs: bool) -> None:
    values = [key << 16 | low for key in range(containers) for low in (1, 5, 70 + key)]
    values += range(3 << 16, (3 << 16) + 20_000, 2)
    if has_runs:
        values += [*range((containers << 16) + 200, (containers << 16) + 9_000), 1 << 30]
    bitmap = BitMap(values)
    bitmap.run_optimize()
    data = bitmap.serialize()

    assert stored_size(b"xy" + data + b"more", 2) == len(data)
