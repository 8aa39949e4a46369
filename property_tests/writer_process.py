"""A process that commits small writes to one table, one after the other, and says which are in.

`python -m property_tests.writer_process PATH OPTIONS NUMBER COUNT`: OPTIONS is JSON for the store.
It prints `ready`, waits for a line, and then prints the identifier and the snapshot of each commit
that was acknowledged, from the one after the last it finds in the table. Commit n of writer w adds
the rows (w, 2n) and (w, 2n + 1), and takes (w, 2n - 1) away again.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from lakecore.errors import CommitConflict, CommitUnknown
from lakecore.io.stores.open import open_store
from lakecore.table.handle import Table, load_table


def rows_of(writer: int, number: int) -> pa.Table:
    """What commit `number` of a writer hands in."""
    return pa.table(
        {
            "writer": pa.array([writer] * 3, pa.int32()),
            "number": pa.array([2 * number, 2 * number + 1, 2 * number - 1], pa.int32()),
            "_row_kind": ["+I", "+I", "-D"],
        }
    )


def user_of(writer: int) -> str:
    """The commit user of a writer, the same in each process that takes its part."""
    return f"writer-{writer}"


def commit_one(table: Table, writer: int, number: int) -> int:
    """Commit `number` of a writer, however often that takes; its snapshot."""
    with table.new_write() as write:
        write.write(rows_of(writer, number))
        messages = write.prepare_commit()
    while True:
        try:
            result = table.commit(messages, identifier=number, commit_user=user_of(writer))
        except (CommitConflict, CommitUnknown):
            # Lost too many races, or the reply: the identifier makes it safe to ask again.
            continue
        (snapshot_id,) = result.snapshot_ids
        return snapshot_id


def main() -> None:
    """Commit, and say so."""
    path, options, writer, count = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:])
    table = load_table(open_store(path, options), path)
    print("ready", flush=True)
    sys.stdin.readline()
    first = (table.last_identifier(user_of(writer)) or 0) + 1
    for number in range(first, count + 1):
        print(number, commit_one(table, writer, number), flush=True)


if __name__ == "__main__":
    main()
