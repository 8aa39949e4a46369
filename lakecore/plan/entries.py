"""The entries that remain when manifests are merged, computed on columns.

A frame has one row for each entry (`format/manifest_columns.py`). The rules are those of
`model/manifest.py`, applied to columns, because the cost of merging grows with the table.

INVARIANT: entries of one file keep their order, so that an ADD comes before its DELETE. Entries of
one bucket keep their order too, so that its files stay in commit order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lakecore.errors import CorruptTable
from lakecore.format.manifest_columns import entry_identities
from lakecore.model.manifest import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.plan.partitions import Partitions

_IS_ADD = pl.col("_KIND") == int(FileKind.ADD)


def cancel(entries: pl.DataFrame) -> pl.DataFrame:
    """The entries, without each pair of an ADD and a DELETE of the same file.

    A DELETE without an ADD here stays: an earlier manifest has its ADD. Raises CorruptTable if a
    file is added, or deleted, twice in a row.
    """
    named = entries.select("_KIND", identity=entry_identities(entries)).with_row_index("at")
    several = named.filter(pl.len().over("identity") > 1).sort("identity", "at")
    if several.is_empty():
        return entries
    follows = pl.col("identity") == pl.col("identity").shift(1)
    marked = several.with_columns(
        again=(follows & (pl.col("_KIND") == pl.col("_KIND").shift(1))).fill_null(value=False),
        # Each entry is cancelled by the next one; of an odd number, the last one remains.
        kept=(pl.len().over("identity") % 2 == 1) & ~follows.shift(-1).fill_null(value=False),
    )
    again = marked.filter("again")
    if not again.is_empty():
        at, kind = again.row(0)[0], FileKind(again["_KIND"][0])
        name = entries["_FILE_NAME"][at]
        raise CorruptTable("a file is added or deleted twice", file=name, kind=kind.name)
    keep = np.ones(entries.height, np.bool_)
    keep[marked.filter(~pl.col("kept"))["at"].to_numpy()] = False
    return entries.filter(keep)


class Deletions:
    """The files that the manifests of a snapshot delete. Each DELETE cancels one ADD."""

    def __init__(self, frames: Iterable[pl.DataFrame]) -> None:
        deleted = [frame.filter(~_IS_ADD) for frame in frames]
        parts = [
            frame.select("_PARTITION", "_FILE_NAME", identity=entry_identities(frame))
            for frame in deleted
            if frame.height
        ]
        none = pl.DataFrame(
            schema={"_PARTITION": pl.Binary, "_FILE_NAME": pl.String, "identity": pl.Binary}
        )
        together = pl.concat([none, *parts])
        self.partitions: list[bytes] = together["_PARTITION"].unique(maintain_order=True).to_list()
        self._left = together.group_by("identity", maintain_order=True).agg(
            pl.col("_FILE_NAME").first(), left=pl.len().cast(pl.Int64)
        )

    def take(self, entries: pl.DataFrame) -> pl.DataFrame:
        """The added entries of the next manifest that are not deleted.

        Call it in manifest order.
        """
        added = entries if entries["_KIND"].max() == FileKind.ADD else entries.filter(_IS_ADD)
        if self._left.is_empty() or added.is_empty():
            return added
        named = pl.DataFrame({"identity": entry_identities(added)}).with_row_index("at")
        hit = named.join(self._left, on="identity", how="inner", maintain_order="left")
        # A file may be added again after it was deleted: a DELETE cancels the first ADD.
        gone = hit.filter(pl.int_range(pl.len()).over("identity") < pl.col("left"))
        if gone.is_empty():
            return added
        counts = gone.group_by("identity").agg(found=pl.len().cast(pl.Int64))
        self._left = (
            self._left.join(counts, on="identity", how="left", maintain_order="left")
            .with_columns(pl.col("left") - pl.col("found").fill_null(0))
            .select("identity", "_FILE_NAME", "left")
            .filter(pl.col("left") > 0)
        )
        keep = np.ones(added.height, np.bool_)
        keep[gone["at"].to_numpy()] = False
        return added.filter(keep)

    def check_done(self) -> None:
        """Raise CorruptTable if a deleted file was added by none of the manifests."""
        if not self._left.is_empty():
            name = self._left["_FILE_NAME"][0]
            raise CorruptTable("a file is deleted that was not added", file=name)


def in_order_of_partitions(entries: pl.DataFrame, partitions: Partitions) -> pl.DataFrame:
    """The entries in order of partition, so that a manifest cut from them has few partitions."""
    distinct = entries["_PARTITION"].unique(maintain_order=True)
    if len(distinct) <= 1:
        return entries
    values = pl.DataFrame(partitions.values(distinct.to_list()))
    order = values.select(pl.struct(pl.all()).rank("dense").alias("rank")).to_series()
    ranks = pl.DataFrame({"_PARTITION": distinct, "rank": order})
    found = entries.select("_PARTITION").join(
        ranks, on="_PARTITION", how="left", maintain_order="left"
    )
    by_partition = np.argsort(found["rank"].to_numpy(), kind="stable")
    return entries[by_partition]
