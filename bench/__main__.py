"""`python -m bench [NAME …]`: run the benchmarks, print figures as ratios of one run.

Names: merge_6m fold_6m compact_6m scan_6m checksums_5m pack_20m plan_10k commits_10k polls_100k
lookup_10m lookups_20m upserts_20m memory_50m large_rows big_bucket cluster formats tpch
vectors lakes cdc_decode expire_10k orphans_200k scale growth published ui. Without one, all
of them (more than an hour on two cores; most is pypaimon's Python path, and buckets of 10 GB).
Exits with 1 if a promise was not kept.

`python -m bench lookup [SETTING=VALUE …]` is lookup_10m in another size, see `lookup.py`.

`python -m bench lookups rows=NUMBER` is lookups_20m in another size.

`python -m bench upserts rows=NUMBER` is the second half of upserts_20m in another size.

`python -m bench big_bucket [SETTING=VALUE …]` is big_bucket in another size, see `big_bucket.py`.

`python -m bench formats [SETTING=VALUE …]` is formats in another size, see `formats.py`.

`python -m bench scale [SETTING=VALUE …]` is scale in another size, see `scale.py`.

`python -m bench growth [WHAT …]` is growth of these dimensions only, see `growth.py`.

`python -m bench tpch scale=NUMBER` is tpch in another size, see `tpch.py`.

`python -m bench vectors commits=NUMBER` is vectors with another number of commits.

`python -m bench lakes [rows=NUMBER] [runs=NUMBER]` is lakes in another size.

`python -m bench cdc_mysql [rows=NUMBER changes=NUMBER runs=NUMBER]` mirrors a MariaDB server, which
must be installed, with Java and Maven for Debezium.

`python -m bench compaction [SETTING=VALUE …]` measures nothing: it simulates compaction under some
workloads, see `compaction.py`.

`python -m bench simulate_scale [SETTING=VALUE …]` simulates a whole table and its price, see
`simulate_scale.py`.
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from bench import (
    big_bucket,
    cdc_decode,
    cdc_mysql,
    checksums_5m,
    cluster,
    commits_10k,
    compact_6m,
    compaction,
    expire_10k,
    fold_6m,
    formats,
    growth,
    lakes,
    large_rows,
    lookup,
    lookups,
    memory_50m,
    merge_6m,
    orphans_200k,
    pack_20m,
    plan_10k,
    polls_100k,
    published,
    scale,
    scan_6m,
    simulate_scale,
    tpch,
    ui,
    upserts_20m,
    vectors,
)
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARKS: dict[str, Callable[[], bool]] = {
    "plan_10k": plan_10k.run,
    "commits_10k": commits_10k.run,
    "polls_100k": polls_100k.run,
    "expire_10k": expire_10k.run,
    "orphans_200k": orphans_200k.run,
    "scan_6m": scan_6m.run,
    "checksums_5m": checksums_5m.run,
    "merge_6m": merge_6m.run,
    "fold_6m": fold_6m.run,
    "compact_6m": compact_6m.run,
    "pack_20m": pack_20m.run,
    "lookup_10m": lookup.run,
    "lookups_20m": lookups.run,
    "upserts_20m": upserts_20m.run,
    "memory_50m": memory_50m.run,
    "large_rows": large_rows.run,
    "big_bucket": big_bucket.run,
    "cluster": cluster.run,
    "formats": formats.run,
    "scale": lambda: scale.run([]),
    "growth": lambda: growth.run([]),
    "tpch": tpch.run,
    "vectors": vectors.run,
    "lakes": lambda: lakes.run([]),
    "cdc_decode": cdc_decode.run,
    "published": published.run,
    "ui": ui.run,
}
# What takes all further words as settings of its own: always, or if there are some.
MAINS: dict[str, Callable[[list[str]], int]] = {
    "compaction": compaction.main,
    "cdc_mysql": cdc_mysql.main,
    "lookup": lookup.main,
    "lookups": lookups.main,
    "simulate_scale": simulate_scale.main,
    "upserts": upserts_20m.main,
}
SIZED: dict[str, Callable[[list[str]], int]] = {
    "vectors": vectors.main,
}
WORDED: dict[str, Callable[[list[str]], bool]] = {
    "big_bucket": big_bucket.run,
    "cluster": cluster.run,
    "formats": formats.run,
    "growth": growth.run,
    "lakes": lakes.run,
    "scale": scale.run,
    "tpch": tpch.run,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; 0 if every promise was kept."""
    first, words = next(iter(names), ""), names[1:]
    if first in MAINS or (first in SIZED and words):
        return (MAINS | SIZED)[first](words)
    if first in WORDED:
        return 0 if WORDED[first](words) else 1
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        console.print(f"unknown: {unknown}; known: {list(BENCHMARKS)}")
        return 2
    console.print(f"{platform.machine()}, Python {platform.python_version()}\n")
    kept = [BENCHMARKS[name]() for name in names or BENCHMARKS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
