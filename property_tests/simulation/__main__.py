"""`python -m property_tests.simulation`: see `make simulate`."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    """Do what the arguments say; 1 if a seed failed."""
    parser = argparse.ArgumentParser(
        prog="simulate", description="simulate many actors on one table"
    )
    parser.add_argument("--seed", type=int, help="one seed, looked at closely")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--digests", action="store_true", help="print the hash of each trace")
    given = parser.parse_args()
    # Polars reads this once, as it is imported: a pool of threads costs more than such small work.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from property_tests.simulation import swarm

    if given.digests:
        print(*swarm.digests(range(given.first, given.first + given.seeds)), sep="\n")
        return 0
    if given.seed is not None:
        return 0 if swarm.look_at(given.seed) else 1
    return 0 if swarm.swarm(given.first, given.seeds, given.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
