from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import orc

from lakecore.format.orc_tail import stripe_rows


def tail_of(*pieces: int) -> bytes:
    """The tail of a file whose rows were written in such pieces, to stripes as small as may be."""
    out = io.BytesIO()
    writer = orc.ORCWriter(out, stripe_size=1, compression="uncompressed")
    for rows in pieces:
        text = [f"{number:064}" for number in range(rows)]
        writer.write(pa.table({"a": pa.array(text, pa.string())}))
    writer.close()
    tail: bytes = orc.ORCFile(io.BytesIO(out.getvalue())).reader.serialized_file_tail()
    return tail


def test_rows_of_each_stripe_are_told_in_order() -> None:
    pieces = (1_000, 900, 800)

    assert stripe_rows(tail_of(*pieces)) == pieces


def test_file_without_rows_has_no_stripes() -> None:
    assert stripe_rows(tail_of(0)) == ()


@pytest.mark.parametrize("cut", [1, 40])
def test_tail_cut_short_is_told(cut: int) -> None:
    tail = tail_of(1_000, 900)

    with pytest.raises(ValueError, match="cut short"):
        stripe_rows(tail[:-cut])


def test_field_of_no_known_kind_is_told() -> None:
    with pytest.raises(ValueError, match="unknown wire type"):
        stripe_rows(b"\x0b")
