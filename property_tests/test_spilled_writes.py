"""How much memory a writer has changes nothing in what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.io.files.data_files import read_file
from lakecore.model.rows import ROW_KIND
from lakecore.table.run_writer.file_shape import data_shape
from lakecore.table.writes import bucket_buffer
from lakecore.testing.model import Model
from lakecore.testing.strategies import ENGINES, Merging, mergings
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def written(merging: Merging, batches: Sequence[pa.Table], **options: str) -> str:
    """The rows of the data files that one commit of the batches makes, or that it is refused."""
    stated: dict[str, Any] = {**merging.shape.options, "write-only": "true", **options}
    table = new_table(merging.shape.columns, keys=merging.shape.primary_keys, **stated)
    fields = data_shape(table.schema, table.options).physical_fields
    found = []
    try:
        with table.new_write() as writer:
            for batch in batches:
                writer.write(batch)
            messages = writer.prepare_commit()
    except InvalidRequest:
        return "refused"
    for message in messages:
        for file in message.new_files:
            path = table.context.layout.file_in_bucket("", message.bucket, file.name)
            for batch in read_file(table.context.store, path, fields=fields):
                found += batch.to_pylist()
    # NaN is not equal to itself, and -0.0 is equal to 0.0; their texts are as the values are.
    return repr(found)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_rows_that_spill_merge_as_rows_that_do_not(engine: str, data: st.DataObject) -> None:
    merging = data.draw(mergings(engine), "table")
    drawn = data.draw(st.lists(merging.rows(6), min_size=1, max_size=8), "batches")
    runs_merged = data.draw(st.integers(2, 4), "runs merged")
    piece_rows = data.draw(st.integers(1, 4), "rows of a piece")
    model = Model(merging.schema)
    batches = [model.arrow([{ROW_KIND: kind, **values} for kind, values in rows]) for rows in drawn]

    roomy = written(merging, batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_buffer, "RUNS_MERGED", runs_merged)
        patch.setattr(bucket_buffer, "_PIECE_ROWS", piece_rows)
        narrow = written(merging, batches, **{"write-buffer-size": "1 b"})

    assert narrow == roomy
