"""Iceberg metadata of a Paimon table, as values and bytes.

The package is pure: `table/maintenance/iceberg.py` reads and writes the files. The data files are
Paimon's own. What a reader of Iceberg needs besides them:

- `manifests.py`: the data files, the deletion vectors and their Puffin file, with statistics;
- `documents.py`: the schema, with Paimon's field ids, the partition spec, and the document
  `vN.metadata.json`, which names the snapshots.

Names and numbers of fields follow https://iceberg.apache.org/spec/, names of files follow Paimon
(https://paimon.apache.org/docs/master/iceberg/).
"""

from __future__ import annotations
