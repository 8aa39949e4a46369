"""What a table costs a month: its files, runs, requests and races, simulated without any data.

`python -m bench simulate_scale [SETTING=VALUE …] [--sweep NAME=A,B …] [--json] [--html FILE]`

A setting is a table option, or one of

- `rate` (1 mb) bytes a second that the table receives, `keys` (100 gb) bytes of all its keys;
- `interval` (60) seconds between commits; `commits` (3000) that are simulated;
- `compact-every` (1): a write compacts; N: a job compacts after N commits; 0: nothing does;
- `skew` (0): exponent of the Zipf law by which rows fall into buckets, in at most 8 classes;
- `writers` (1) commit as often as the table does; `window` (0.4) seconds from the read of the
  latest snapshot until the next one is visible;
- `store` (s3): s3, s3-express, gcs or local.

`--sweep` prints a line for each combination of values. `--calibrate` measures the unit costs
(`lakecore.plan.simulation.Units`) on this machine, in seconds, and prints them as JSON.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import product
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.table import Table as Shown

from bench.report import console
from lakecore.errors import LakecoreError
from lakecore.io.ambient import seeded
from lakecore.options import parse_options
from lakecore.options.kinds import parse_size
from lakecore.plan.simulation import PRICES, Load, SimulatedTable, Units
from lakecore.table.commits.commit import attempts
from tests.stores import RequestCounter
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.options import TableOptions
    from lakecore.table.handle import Table

SETTINGS = {
    "rate": "1 mb",
    "keys": "100 gb",
    "interval": "60",
    "commits": "3000",
    "compact-every": "1",
    "skew": "0",
    "writers": "1",
    "window": "0.4",
    "store": "s3",
}
CLASSES = 8
RACE_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Races:
    """Writers that race for some minutes: commits a second, their attempts, and commits given up.

    `median_s` and `p99_s` are seconds from the first attempt of a commit until it is visible.
    """

    commits_s: float
    attempts: float
    failed: int
    median_s: float
    p99_s: float


def races(options: TableOptions, writers: int, interval_s: float, window_s: float) -> Races:
    """Commits of writers that each begin one about each `interval_s`, or when the last is done."""
    ambients = [seeded(number) for number in range(writers)]
    origin = ambients[0].now_ms()
    waits, tried, failed, published_ms = list[float](), 0, 0, 0
    begun = [origin] * writers
    tries = [attempts(options, ambient) for ambient in ambients]
    # The end of an attempt, its writer, and when it read the latest snapshot.
    events = list[tuple[int, int, int]]()

    def attempt(writer: int) -> bool:
        if next(tries[writer], None) is None:
            return False
        read_ms = ambients[writer].now_ms()
        spread = 0.8 + 0.4 * ambients[writer].random()
        heapq.heappush(events, (read_ms + round(1000 * window_s * spread), writer, read_ms))
        return True

    def begin(writer: int) -> None:
        late_ms = ambients[writer].now_ms() - begun[writer]
        wait_s = interval_s * (0.9 + 0.2 * ambients[writer].random())
        ambients[writer].sleep(max(0, wait_s - late_ms / 1000))
        begun[writer] = ambients[writer].now_ms()
        tries[writer] = attempts(options, ambients[writer])
        attempt(writer)

    for writer in range(writers):
        ambients[writer].sleep(interval_s * writer / writers)
        begun[writer] = ambients[writer].now_ms()
        attempt(writer)
    while events and events[0][0] < origin + 1000 * RACE_S:
        end_ms, writer, read_ms = heapq.heappop(events)
        ambients[writer].sleep((end_ms - ambients[writer].now_ms()) / 1000)
        tried += 1
        if published_ms <= read_ms:
            published_ms = end_ms
            waits.append((end_ms - begun[writer]) / 1000)
            begin(writer)
        elif not attempt(writer):
            failed += 1
            begin(writer)
    done = max(1, len(waits))
    slow = np.quantile(waits or [0.0], [0.5, 0.99])
    return Races(
        commits_s=done / RACE_S,
        attempts=tried / done,
        failed=failed,
        median_s=float(slow[0]),
        p99_s=float(slow[1]),
    )


def loads(settings: Mapping[str, str], options: TableOptions) -> list[Load]:
    """The buckets in at most `CLASSES` classes, by the share of the rows that they receive."""
    commit_bytes = parse_size(settings["rate"]) * float(settings["interval"])
    buckets, keys = max(1, options.bucket), parse_size(settings["keys"])
    shares = np.arange(1, buckets + 1) ** -float(settings["skew"])
    shares /= shares.sum()
    # The largest buckets are a class each.
    edges = sorted({0, buckets, *np.geomspace(1, buckets, CLASSES).astype(int)} - {0})
    return [
        Load(
            commit_bytes=commit_bytes * share,
            key_bytes=max(keys * share, commit_bytes * share),
            buckets=int(end - start),
        )
        for start, end in zip([0, *edges], edges, strict=False)
        for share in [float(shares[start:end].mean())]
    ]


def simulated(given: Mapping[str, str]) -> dict[str, float]:
    """The figures of a table with these settings and options."""
    settings = {name: given.get(name, text) for name, text in SETTINGS.items()}
    options = parse_options(
        {"bucket": "1", **{k: v for k, v in given.items() if k not in SETTINGS}}, creating=True
    )
    interval_s, prices = float(settings["interval"]), PRICES[settings["store"]]
    classes = loads(settings, options)
    table = SimulatedTable(
        [load for load in classes if load.commit_bytes >= 1] or classes[:1],
        options,
        interval_s=interval_s,
        compact_every=int(settings["compact-every"]),
    )
    found = table.run(int(settings["commits"]))
    raced = races(options, int(settings["writers"]), interval_s, float(settings["window"]))
    return {
        "write": found.write_amplification,
        "runs": found.runs,
        "files": found.files,
        "space": (found.live_bytes + found.kept_bytes) / parse_size(settings["keys"]),
        "manifests": found.manifests,
        **{kind: found.requests.get(kind, 0) for kind in ("PUT", "LIST", "GET")},
        "attempts": raced.attempts,
        "p99 s": raced.p99_s,
        "req. $": prices.month(found.requests, interval_s),
        "disk $": prices.stored(found.live_bytes + found.kept_bytes),
    }


# --- calibration ---------------------------------------------------------------------------------


def counted(buckets: int, **options: str) -> tuple[Table, RequestCounter]:
    """A new table, and the counter of its requests."""
    columns = {"id": "BIGINT NOT NULL", "v": "DOUBLE"}
    made = new_table(columns, **{"bucket": str(buckets), **options})  # type: ignore[arg-type]
    store = RequestCounter(made.context.store)
    return reopened(made, store=store), store


def drawn(rows: int, keys: int, chance: np.random.Generator) -> pa.Table:
    """Rows of random keys."""
    return pa.table({"id": chance.integers(0, keys, rows), "v": chance.random(rows)})


def calibrated() -> tuple[Units, float]:
    """The unit costs of a table of two columns, and the bytes of a row of random numbers."""
    chance = np.random.default_rng(7)
    one, nine = (counted(buckets, write_only="true")[0] for buckets in (1, 9))
    for rows in (100, 2000):
        one.write(drawn(rows, 12_000, chance))
    nine.write(drawn(240, 12_000, chance))
    files = one.inspect.files().sort("record_count")
    low, high = files.select("record_count", "file_size_in_bytes").rows()
    row_bytes = (high[1] - low[1]) / (high[0] - low[0])
    least, most = (table.inspect.manifests()["file_size"][0] for table in (one, nine))
    entry_bytes = (most - least) / 8
    sizes = Units(
        file_bytes=low[1] - low[0] * row_bytes,
        entry_bytes=entry_bytes,
        manifest_bytes=least - entry_bytes,
    )
    return replace(sizes, **_requests()), row_bytes


def _requests() -> dict[str, int]:
    """The requests of each step, as differences between commits with and without it."""

    def sent(commits: int, **options: str) -> Counter[str]:
        table, store = counted(2, **options)
        for _ in range(commits):
            store.requests.clear()
            result = table.write(drawn(50, 2000, np.random.default_rng(3)))
        # A compaction reads its files.
        return store.requests - Counter({"GET": result.files_deleted})

    few = {"snapshot__num_retained__min": "3", "snapshot__num_retained__max": "3"}
    idle, busy = (
        {"num_sorted_run__compaction_trigger": "40"},
        {"full_compaction__delta_commits": "1"},
    )
    write, kept, looked = sent(5, write_only="true"), sent(5, **idle), sent(15, **idle)
    expired, compacted = sent(9, **idle, **few), sent(5, **busy)
    both = sent(9, **busy, **few)
    each = (both["GET"] - compacted["GET"]) - (expired["GET"] - kept["GET"])
    return {
        "write_gets": write["GET"],
        "keep_gets": kept["GET"] - write["GET"],
        "keep_lists": kept["LIST"] - write["LIST"],
        "look_gets": looked["GET"] - kept["GET"],
        "compact_gets": compacted["GET"] - kept["GET"],
        "expired_gets": each,
        "expire_gets": expired["GET"] - kept["GET"] - each,
        "expire_lists": expired["LIST"] - kept["LIST"],
    }


def plan_us() -> float:
    """Microseconds of a first plan for each live file, of a table with 2 000 files."""
    table, _ = counted(250, write_only="true")
    for _ in range(8):
        table.write(drawn(20_000, 10**6, np.random.default_rng(1)))
    history = reopened(table).context.history
    latest = history.latest_snapshot()
    assert latest is not None
    began = process_time()
    files = len(history.live_entries(latest))
    return (process_time() - began) / files * 1e6


# --- the command ---------------------------------------------------------------------------------


def lines(words: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    """Each combination of swept values, with its figures."""
    at = words.index("--sweep") if "--sweep" in words else len(words)
    fixed = dict(text.split("=", 1) for text in words[:at])
    swept = dict(text.split("=", 1) for text in words[at + 1 :])
    for values in product(*(text.split(",") for text in swept.values())):
        chosen = dict(zip(swept, values, strict=True))
        yield chosen, simulated({**fixed, **chosen})


def page_of(found: Sequence[tuple[dict[str, str], dict[str, float]]]) -> str:
    """A web page with a bar for each combination: dollars, write amplification, runs."""
    parts = ["<!doctype html><meta charset=utf-8><title>simulate_scale</title>"]
    parts.append("<style>body,text{font:12px system-ui}rect{fill:#3182ce}</style>")
    for name in ("req. $", "write", "runs"):
        most = max(figures[name] for _, figures in found) or 1
        parts.append(f"<h2>{name}</h2><svg width=900 height={20 * len(found) + 10}>")
        for place, (chosen, figures) in enumerate(found):
            wide, y, label = 400 * figures[name] / most, 20 * place, _label(chosen)
            parts.append(
                f"<text x=0 y={y + 14}>{escape(label)}</text><rect x=400 y={y + 2} height=14 "
                f"width={wide:.0f} /><text x={wide + 405:.0f} y={y + 14}>{figures[name]:.1f}</text>"
            )
        parts.append("</svg>")
    return "".join(parts)


def main(words: Sequence[str]) -> int:
    """Run with the arguments of the command; 0, or 2 if one is none."""
    words = list(words)
    if words == ["--calibrate"]:
        units, _ = calibrated()
        console.print_json(json.dumps(asdict(replace(units, plan_us=plan_us()))))
        return 0
    as_json = "--json" in words
    page = words.pop(words.index("--html") + 1) if "--html" in words[:-1] else None
    rest = [word for word in words if word not in {"--json", "--html"}]
    try:
        found = list(lines(rest))
    except (LakecoreError, ValueError, KeyError) as error:
        console.print(f"{error}\nwanted: SETTING=VALUE; settings: {SETTINGS}, and table options")
        return 2
    if page is not None:
        Path(page).write_text(page_of(found), encoding="utf-8")
    if as_json:
        for chosen, figures in found:
            print(json.dumps({**chosen, **figures}))
        return 0
    shown = Shown(box=None, title=" ".join(rest) or "as given", title_justify="left")
    shown.add_column("", no_wrap=True)
    for column in found[0][1]:
        shown.add_column(column, justify="right")
    for chosen, figures in found:
        shown.add_row(_label(chosen), *(f"{figure:,.1f}" for figure in figures.values()))
    console.print(shown)
    return 0


def _label(chosen: Mapping[str, str]) -> str:
    """The swept values of a line, each on its own line."""
    return "\n".join(f"{name.rpartition('.')[2]}={value}" for name, value in chosen.items())
