"""What of a bucket is compacted; its files are a line such as `L0 a-m @10 | L5 a-z @90`."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    Reason,
    hours_between,
    last_full_ms,
    pick,
    pick_full,
)
from lakecore.options import parse_options
from tests.tables import files, names, ranks

if TYPE_CHECKING:
    from collections.abc import Mapping

NOON = Moment(now_ms=1_000_000, hour=12)
TRIGGER = {"num-sorted-run.compaction-trigger": "3"}
FIVE = {"num-sorted-run.compaction-trigger": "5"}


def policy(options: Mapping[str, str] = MappingProxyType({})) -> CompactionPolicy:
    """The policy of these options, with a trigger of 3."""
    return CompactionPolicy.of(parse_options({**TRIGGER, **options}))


def runs(text: str) -> tuple[SortedRun, ...]:
    found = files(text)
    return level_runs(found, *ranks(found))


def sized(sizes: str) -> tuple[SortedRun, ...]:
    """Runs of one file each, from `level:bytes`: `0:10 0:12 5:90`."""
    pairs = [word.split(":") for word in sizes.split()]
    return runs(" | ".join(f"L{level} a-z @{size}" for level, size in pairs))


def shown(unit: CompactionUnit | None) -> str:
    """The unit as `3 runs to 5: size ratio`."""
    return "" if unit is None else f"{len(unit.runs)} to {unit.level_output}: {unit.reason}"


def picked(
    sizes: str, options: Mapping[str, str] = MappingProxyType({}), moment: Moment = NOON
) -> str:
    return shown(pick(sized(sizes), policy(options), moment))


def test_small_files_are_seven_tenths_of_the_target_of_keyed_tables() -> None:
    assert policy().small_file_bytes == int(0.7 * (128 << 20))
    assert policy({"target-file-size": "100 b"}).small_file_bytes == 70


# --- when anything is picked --------------------------------------------------------------------


@pytest.mark.parametrize("sizes", ["", "0:10", "3:10", "0:10 0:10", "0:10 3:1"])
def test_fewer_runs_than_the_trigger_are_left(sizes: str) -> None:
    assert picked(sizes) == ""


def test_newer_runs_of_more_than_twice_the_last_are_amplification() -> None:
    assert picked("0:1 0:200 3:100") == "3 to 3: size amplification"
    assert picked("0:1 0:199 3:100") == ""


def test_percentage_of_amplification_is_an_option() -> None:
    percent = {"compaction.max-size-amplification-percent": "50"}

    assert picked("0:1 0:50 3:100", percent) == "3 to 3: size amplification"
    assert picked("0:1 0:49 3:100", percent) == ""


def test_next_run_is_taken_if_it_is_one_percent_larger() -> None:
    assert picked("0:100 0:101 3:900") == "2 to 2: size ratio"
    assert picked("0:100 0:102 3:900") == ""


def test_runs_are_taken_while_each_is_hardly_larger_than_all_before_it() -> None:
    assert picked("0:10 0:10 0:20 0:40 3:900") == "4 to 2: size ratio"
    assert picked("0:10 0:10 0:21 0:40 3:900") != "4 to 2: size ratio"


def test_size_ratio_is_an_option() -> None:
    assert picked("0:100 0:150 3:900", {"compaction.size-ratio": "50"}) == "2 to 2: size ratio"
    assert picked("0:100 0:151 3:900", {"compaction.size-ratio": "50"}) == ""


def test_size_ratio_waits_for_the_trigger() -> None:
    assert picked("0:10 0:10 3:900") == "2 to 2: size ratio"
    assert picked("0:10 3:900") == ""


def test_one_run_more_than_the_trigger_takes_the_first_two() -> None:
    assert picked("0:1 1:10 2:100 3:900") == "2 to 1: run count"
    assert picked("0:1 1:10 2:100 3:900", FIVE) == ""


def test_run_count_goes_on_as_the_size_ratio_does() -> None:
    assert picked("0:1 1:10 2:11 3:900") == "3 to 2: run count"


def test_level_1_is_taken_whatever_its_size_if_the_policy_says_so() -> None:
    bucket = sized("0:2 0:3 0:90 1:4 2:99 3:9999")
    steady = policy(FIVE)
    eager = replace(steady, low_levels_anyway=True)

    assert shown(pick(bucket, steady, NOON)) == "4 to 1: run count"
    assert shown(pick(bucket, eager, NOON)) == "5 to 2: run count"


def test_nothing_is_picked_for_the_sake_of_level_1_alone() -> None:
    eager = replace(policy(), low_levels_anyway=True)

    assert pick(sized("0:2 1:9 3:900"), eager, NOON) is None


# --- where the output goes ----------------------------------------------------------------------


def test_output_goes_before_the_first_run_that_is_left() -> None:
    assert picked("0:10 0:10 3:900") == "2 to 2: size ratio"
    assert picked("0:10 0:10 2:900", {"num-levels": "8"}) == "2 to 1: size ratio"


def test_all_runs_go_to_the_last_level() -> None:
    assert picked("0:10 0:10 0:10") == "3 to 3: size ratio"
    assert picked("0:10 0:10 2:10") == "3 to 3: size ratio"


def test_output_never_goes_to_level_0_but_takes_further_runs() -> None:
    assert picked("0:10 0:10 0:90 0:90 3:900") == "5 to 3: size ratio"
    assert picked("0:10 0:10 0:90 2:90 3:900") == "4 to 2: size ratio"


def test_output_joins_level_1_rather_than_level_0() -> None:
    assert picked("0:10 0:10 1:90 3:900") == "3 to 1: size ratio"


def test_levels_are_one_more_than_the_trigger_unless_set() -> None:
    assert picked("0:10 0:10 0:10") == "3 to 3: size ratio"
    assert picked("0:10 0:10 0:10", {"num-levels": "2"}) == "3 to 1: size ratio"
    assert picked("0:10 0:10 0:10", {"num-levels": "9"}) == "3 to 8: size ratio"


def test_bucket_that_reaches_deeper_than_the_option_keeps_its_level() -> None:
    assert picked("0:10 0:10 7:10") == "3 to 7: size ratio"


# --- early full compaction ----------------------------------------------------------------------


def test_full_compaction_is_due_after_the_interval() -> None:
    day = {"compaction.optimization-interval": "1 s"}

    assert picked("0:1 3:900", day) == "2 to 3: interval"
    assert picked("0:1 3:900", day, replace(NOON, last_full_ms=998_999)) == "2 to 3: interval"
    assert picked("0:1 3:900", day, replace(NOON, last_full_ms=999_000)) == ""


def test_last_full_compaction_made_the_newest_file_of_the_last_level() -> None:
    found = [
        replace(file, creation_time_ms=time)
        for file, time in zip(files("L0 a-m | L3 a-m | L3 n-z"), (9, 5, 7), strict=True)
    ]

    assert last_full_ms(level_runs(found, *ranks(found)), policy()) == 7
    assert last_full_ms(level_runs(found, *ranks(found)), policy({"num-levels": "9"})) is None
    assert last_full_ms(runs("L3 a-z"), policy()) is None
    assert last_full_ms((), policy()) is None


def test_bucket_below_the_total_size_is_compacted_in_full() -> None:
    assert picked("0:1 3:98", {"compaction.total-size-threshold": "100 b"}) == "2 to 3: total size"
    assert picked("0:1 3:99", {"compaction.total-size-threshold": "100 b"}) == ""


def test_bytes_above_the_last_level_ask_for_a_full_compaction() -> None:
    limit = {"compaction.incremental-size-threshold": "10 b"}

    assert picked("0:1 2:10 3:900", limit) == "3 to 3: incremental size"
    assert picked("0:1 2:9 3:900", limit) == ""
    assert picked("0:1 3:9 4:900", limit) == ""


@pytest.mark.parametrize("sizes", ["", "0:10", "2:10", "3:10"])
def test_one_run_is_never_compacted_early(sizes: str) -> None:
    options = {
        "compaction.optimization-interval": "1 s",
        "compaction.total-size-threshold": "1 gb",
        "compaction.incremental-size-threshold": "0 b",
    }

    assert picked(sizes, options) == ""


# --- level 0 of tables that look up -------------------------------------------------------------

LOOKUP_TABLES = (
    {"changelog-producer": "lookup"},
    {"merge-engine": "first-row"},
    {"deletion-vectors.enabled": "true"},
    {"force-lookup": "true"},
    {"compaction.force-up-level-0": "true"},
)


@pytest.mark.parametrize("options", LOOKUP_TABLES, ids=lambda options: next(iter(options)))
def test_table_that_looks_up_takes_all_of_level_0(options: dict[str, str]) -> None:
    assert picked("0:1 3:900", options) == "1 to 2: level 0"
    assert picked("0:1 0:9 3:900", options) == "2 to 2: level 0"
    assert picked("0:1", options) == "1 to 3: level 0"
    assert picked("1:1 3:900", options) == ""


def test_level_0_goes_on_as_the_size_ratio_does() -> None:
    assert picked("0:9 2:9 3:900", {**FIVE, "force-lookup": "true"}) == "2 to 2: level 0"
    assert picked("0:9 2:9", {**FIVE, "force-lookup": "true"}) == "2 to 5: level 0"


def test_other_rules_go_before_that_of_level_0() -> None:
    assert picked("0:10 0:10 3:900", {"force-lookup": "true"}) == "2 to 2: size ratio"


def test_gentle_look_up_takes_level_0_at_each_so_many_picks_that_find_nothing() -> None:
    gentle = {"force-lookup": "true", "lookup-compact": "gentle"}

    def after(idle: int, interval: str = "") -> str:
        options = {**gentle, "lookup-compact.max-interval": interval} if interval else gentle
        return picked("0:1 3:900", options, replace(NOON, idle_picks=idle))

    assert after(4) == ""
    assert after(5) == "1 to 2: level 0"
    assert after(6) == "1 to 2: level 0"
    assert after(8, "10") == ""
    assert after(9, "10") == "1 to 2: level 0"
    assert after(1, "1") == ""
    assert after(2, "1") == "1 to 2: level 0"


# --- quiet hours --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        (2, 5, {2, 3, 4}),
        (22, 2, {22, 23, 0, 1}),
        (0, 24, set(range(24))),
        (23, 0, {23}),
        (5, 5, set()),
        (-1, 5, set()),
        (5, -1, set()),
        (-1, -1, set()),
    ],
)
def test_quiet_hours_end_before_their_last_and_may_pass_midnight(
    start: int, end: int, hours: set[int]
) -> None:
    assert hours_between(start, end) == hours


def test_quiet_hours_add_to_the_size_ratio() -> None:
    quiet = {
        "compaction.offpeak.start.hour": "22",
        "compaction.offpeak.end.hour": "6",
        "compaction.offpeak-ratio": "20",
    }

    assert picked("0:100 0:121 3:900", quiet, replace(NOON, hour=5)) == "2 to 2: size ratio"
    assert picked("0:100 0:122 3:900", quiet, replace(NOON, hour=5)) == ""
    assert picked("0:100 0:121 3:900", quiet, replace(NOON, hour=6)) == ""


# --- full compaction on request -----------------------------------------------------------------


def full(
    text: str, stale: tuple[str, ...] = (), options: Mapping[str, str] = MappingProxyType({})
) -> str:
    unit = pick_full(runs(text), policy(options), stale)
    return "" if unit is None else f"{names(unit.files)} > {unit.level_output}"


def test_full_compaction_takes_every_run_whatever_their_number() -> None:
    assert full("L0 a-m @1 | L2 a-z @9") == "L0 a-m @1 | L2 a-z @9 > 3"
    assert full("L2 a-z @9") == "L2 a-z @9 > 3"


@pytest.mark.parametrize("text", ["", "L3 a-m | L3 n-z", "L3 a-m -2", "L9 a-z"])
def test_bucket_in_one_run_at_the_last_level_is_left(text: str) -> None:
    assert full(text) == ""


def test_stale_files_of_the_last_level_are_rewritten() -> None:
    assert full("L3 a-m | L3 n-z", ("L3 n-z", "gone")) == "L3 n-z > 3"


def test_files_of_the_last_level_are_all_rewritten_if_the_table_says_so() -> None:
    always = {"compaction.force-rewrite-all-files": "true"}

    assert full("L3 a-m | L3 n-z", options=always) == "L3 a-m | L3 n-z > 3"


# --- what a unit may do -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "options", "drops"),
    [
        ("0:10 0:10 0:10", {}, True),
        ("0:10 0:10 3:10", {}, True),
        ("0:10 0:10 3:900", {}, False),
        ("0:10 0:10 1:90 3:900", {}, False),
        ("0:10 0:10 3:900", {"deletion-vectors.enabled": "true"}, True),
    ],
)
def test_deletions_are_dropped_where_no_older_row_lies_outside(
    sizes: str, options: dict[str, str], *, drops: bool
) -> None:
    unit = pick(sized(sizes), policy(options), NOON)

    assert unit is not None
    assert unit.drops_deletions is drops
    assert unit.is_full is (len(unit.runs) == len(sizes.split()))


def test_deletions_are_dropped_where_stale_files_are_rewritten() -> None:
    unit = pick_full(runs("L3 a-m | L3 n-z"), policy(), {"L3 a-m"})

    assert unit is not None
    assert unit.reason is Reason.STALE_FILES
    assert unit.drops_deletions
