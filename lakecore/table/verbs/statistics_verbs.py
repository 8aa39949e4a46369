"""The methods of a table that compute statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.table.verbs.analyze import analyze

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.statistics import AnalyzeResult
    from lakecore.table.context import TableContext


class StatisticsVerbs(ABC):
    """Statistics of the whole table."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    def analyze(self, columns: Sequence[str] | str | None = None) -> AnalyzeResult:
        """Compute statistics of the newest snapshot and store them in an ANALYZE snapshot.

        The table is read once. `columns` are the columns to analyze, or one name; None means all
        columns except arrays, maps, multisets and rows; `[]` means none, only the number of rows.
        Other engines plan with them. `inspect.statistics()` shows them; they stay until the schema
        changes.

        For each column: the number of distinct values (exact up to 65,536, else an estimate), the
        number of nulls, the least and the greatest value (not for strings and binaries), and the
        average and greatest length (for strings in characters, else in bytes). These are the rules
        of Paimon's Spark command (https://paimon.apache.org/docs/master/spark/sql-write/).

        Raises InvalidRequest for an unknown column, Unsupported for a column whose type has no
        statistics, and the errors of a commit.

            table.analyze(["id"]).statistics
        """
        return analyze(self._context, columns)
