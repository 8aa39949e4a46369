"""The files that Java Paimon would cluster, and the keys by which it sorts rows.

Verbs: z_keys, cluster_units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jpype

from tests.interop.java_codec import Codec, java_list, paimon_class, types_of_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.columns import Json
    from tests.interop.java_codec import Java
    from tests.interop.values import Row


class JavaClustering:
    """The verbs; `open_table` opens the table at a path with other options."""

    def __init__(self, open_table: Callable[[str, dict[str, str] | None], Java]) -> None:
        """Remember what the verbs need."""
        self._open_table = open_table
        self._codec = Codec()

    def verbs(self) -> dict[str, Callable[..., Json]]:
        """The verbs by their names."""
        return {"z_keys": self.z_keys, "cluster_units": self.cluster_units}

    def z_keys(self, path: str, columns: list[str], rows: list[Row], var_bytes: int) -> Json:
        """The key of each row in a Z-order, as hexadecimal digits."""
        table = self._open_table(path, None)
        indexer = paimon_class("sort.zorder.ZIndexer")(
            table.rowType(), java_list(columns), jpype.JInt(var_bytes)
        )
        indexer.open()
        to_java = self._codec.row_writer(types_of_table(table))
        return [bytes(indexer.index(to_java(row))[:]).hex() for row in rows]

    def cluster_units(self, path: str, *, full: bool) -> Json:
        """The units that incremental clustering would sort: output level and names of files."""
        manager = paimon_class("append.cluster.IncrementalClusterManager")
        units = manager(self._open_table(path, None)).createCompactUnits(full)
        found: list[list[Json]] = [
            [int(unit.outputLevel()), sorted(str(file.fileName()) for file in unit.files())]
            for unit in units.values()
        ]
        return sorted(found, key=repr)
