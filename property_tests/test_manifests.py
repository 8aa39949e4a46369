"""Any sequence of commits and merges leaves the live files as they are, and in their order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakecore.format.binary_row import serialize_row
from lakecore.model.files import CommitMessage, DataFile
from property_tests.profile import sized
from tests.tables import commit_unstored, files, new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry

(FILE,) = files("L0 a-z")
SIZES = st.sampled_from(["1 b", "4 kb", "5 kb", "8 kb", "20 kb", "1 gb"])


@given(
    partitioned=st.booleans(),
    target=SIZES,
    threshold=SIZES,
    count_min=st.integers(2, 6),
    commits=st.lists(
        st.tuples(
            st.integers(0, 60),  # how many files it adds
            st.integers(0, 10),  # how many it replaces by others
            st.integers(0, 2**30),  # which
            st.booleans(),  # whether another process does it
        ),
        max_size=sized(12, quick=7),
    ),
)
def test_live_files_are_those_of_all_commits_whatever_is_merged(
    *,
    partitioned: bool,
    target: str,
    threshold: str,
    count_min: int,
    commits: Sequence[tuple[int, int, int, bool]],
) -> None:
    table = new_table(
        {"id": "INT", "p": "INT"},
        keys=(),
        partitions=["p"] if partitioned else [],
        bucket="1",
        bucket_key="id",
        manifest__target_file_size=target,
        manifest__full_compaction_threshold_size=threshold,
        manifest__merge_min_count=str(count_min),
    )
    parts = (
        [
            serialize_row([pa.array([n], pa.int32())], [table.schema.field("p").type])
            for n in (7, -3)
        ]
        if partitioned
        else [bytes(12)]
    )
    live: dict[bytes, list[DataFile]] = {part: [] for part in parts}
    done = 0
    for number, (added, replaced, which, elsewhere) in enumerate(commits):
        part = parts[which % len(parts)]
        new = [replace(FILE, name=f"{number}-{at}") for at in range(added)]
        gone = live[part][which % 7 :][:replaced]
        compacted = [replace(file, level=file.level + 1) for file in gone]
        if not new and not gone:
            continue
        message = CommitMessage(
            partition=part,
            bucket=0,
            total_buckets=1,
            new_files=tuple(new),
            compact_before=tuple(gone),
            compact_after=tuple(compacted),
            base_snapshot_id=done or None,
        )
        table = reopened(table) if elsewhere else table
        done = commit_unstored(table, [message]).snapshot_id or done
        kept = [file for file in live[part] if file not in gone]
        live[part] = [*kept, *new, *compacted]
        latest = table.context.history.latest_snapshot()
        assert latest is not None
        for history in (table.context.history, reopened(table).context.history):
            assert by_partition(history.live_entries(latest)) == {
                part: found for part, found in live.items() if found
            }
        manifests = table.context.history.manifests(latest)
        entries = sum(each.added_count - each.deleted_count for each in manifests)
        assert entries == sum(map(len, live.values()))


def by_partition(entries: Sequence[ManifestEntry]) -> dict[bytes, list[DataFile]]:
    """The files of each partition, in their order."""
    found: dict[bytes, list[DataFile]] = defaultdict(list)
    for entry in entries:
        found[entry.partition].append(entry.file)
    return found
