"""Another reader, tried by `lakecore.testing.suite.ReadsPaimon`: pypaimon 2.1.0.

pypaimon pins an old pyarrow, so it runs in an environment of its own, and a worker process there
answers for it. A reader that can be imported needs the method `read` alone. To run it:

    python -m venv pypaimon && pypaimon/bin/pip install pypaimon==2.1.0
    PYPAIMON_PYTHON=pypaimon/bin/python pytest examples/pypaimon_compliance.py
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, ClassVar, cast

import pyarrow as pa

from lakecore.testing import golden_names, suite

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD_MANIFESTS = "KeyError: manifests of Paimon 0.9 have no field _VALUE_STATS_COLS"
BITMAP64 = "Invalid magic number: deletion vectors of 64 bits"
WORKER = """
import json, sys
import pyarrow as pa
from pypaimon.table.file_store_table import FileStoreTable
for line in sys.stdin:
    path, snapshot_id, out = json.loads(line)
    try:
        table = FileStoreTable.from_path(path).copy({"scan.snapshot-id": str(snapshot_id)})
        builder = table.new_read_builder()
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        print("ok", flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace(chr(10), " "), flush=True)
"""


class TestPypaimon(suite.ReadsPaimon):
    """pypaimon reads each golden table at each snapshot, but for those that are known to fail."""

    worker: ClassVar[subprocess.Popen[str]]
    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    known_failures: ClassVar[Mapping[str, str]] = {
        **{name: OLD_MANIFESTS for name in golden_names() if name.startswith("paimon-0.9/")},
        "paimon-2.1/head_aggregation_remove_on_delete": "aggregation.remove-record-on-delete",
        "paimon-2.1/head_append_dv_bitmap64": BITMAP64,
        "paimon-2.1/head_deletion_vectors_bitmap64": BITMAP64,
        "paimon-2.1/head_sequence_group_remove": "fields.g1.sequence-group",
        "paimon-2.1/pk_aggregation": "fields.ba.ignore-retract",
        "paimon-2.1/pk_partial_update_sequence_group": "fields.g1.sequence-group",
    }

    @classmethod
    def setup_class(cls) -> None:
        """Start the worker."""
        cls.folder = tempfile.TemporaryDirectory()
        cls.worker = subprocess.Popen(
            [os.environ["PYPAIMON_PYTHON"], "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @classmethod
    def teardown_class(cls) -> None:
        """Stop the worker."""
        cls.worker.communicate()
        cls.folder.cleanup()

    def read(self, path: str, snapshot_id: int) -> pa.Table:
        """The rows, as the worker has written them."""
        rows = f"{self.folder.name}/rows.arrow"
        requests, answers = cast("IO[str]", self.worker.stdin), cast("IO[str]", self.worker.stdout)
        print(json.dumps([path, snapshot_id, rows]), file=requests, flush=True)
        answer = answers.readline().strip()
        if answer != "ok":
            raise RuntimeError(answer)
        with pa.OSFile(rows) as source:
            return pa.ipc.open_file(source).read_all()
