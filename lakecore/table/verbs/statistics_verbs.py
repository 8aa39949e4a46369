"""The methods of a table that compute statistics and file indexes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.table.reads.told import gated
from lakecore.table.verbs.analyze import analyze
from lakecore.table.verbs.rewrite_file_index import rewrite_file_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from lakecore.model.file_indexes import IndexesRewritten
    from lakecore.model.statistics import AnalyzeResult
    from lakecore.table.context import TableContext


class StatisticsVerbs(ABC):
    """The methods of a table that compute statistics and file indexes."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    def analyze(self, columns: Sequence[str] | str | None = None) -> AnalyzeResult:
        """Compute statistics of the newest snapshot and store them in an ANALYZE snapshot.

        The table is read once. `columns` are the columns to analyze, or one name; None means all
        columns except arrays, maps, multisets, rows, and BLOB columns whose rows hold descriptors;
        with `[]`, only rows are counted. Other engines use the statistics to plan queries.
        `inspect.statistics()` shows them. They are valid until the schema changes.

        For each column: the number of distinct values (exact up to 65,536, else an estimate), the
        number of nulls, the least and the greatest value (not for strings and binaries), and the
        average and greatest length (for strings in characters, else in bytes). These are the rules
        of Paimon's Spark command (https://paimon.apache.org/docs/master/spark/sql-write/).

        Raises InvalidRequest for an unknown column, Unsupported for a column whose type has no
        statistics, and the errors of a commit.

            table.analyze(["id"]).statistics
        """
        return analyze(self._context, columns)

    @gated
    def rewrite_file_index(
        self,
        *,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
    ) -> IndexesRewritten:
        """Give the data files the file indexes that the options `file-index.*` ask for now.

        New files get their indexes when they are written. Use this method for older files after the
        options have changed. The data files are read, not rewritten; one COMPACT snapshot replaces
        their entries. `partitions` and `where` (a condition on partition keys) choose the files
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Returns how many files were indexed. Raises InvalidRequest if a value does not fit an
        index, CommitConflict if other commits take the files of every plan.

            table.rewrite_file_index()
        """
        return rewrite_file_index(self._context, partitions, where)
