from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.options import RENAMED, nearest, parse_options
from tests.reference_pages import describe_options

KNOWN = {"write-only": "write-only", "write.compaction-skip": "write-only", "sort-engine": "s"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("write_only", ("write-only",)),
        ("writeOnly", ("write-only",)),
        ("Write Only", ("write-only",)),
        ("compaction-skip", ("write-only",)),
        ("write.compaction-skipp", ("write-only",)),
        ("nothing like it", ()),
        ("", ()),
        ("--", ()),
    ],
)
def test_other_spellings_parts_and_older_names_find_the_key_of_today(
    given: str, meant: tuple[str, ...]
) -> None:
    assert nearest(given, KNOWN) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("merge-engin", "merge-engine"),
        ("buckets", "bucket"),
        ("target_file_size", "target-file-size"),
        ("compaction.trigger", "num-sorted-run.compaction-trigger"),
        ("scan.timestampMillis", "scan.timestamp-millis"),
        ("scan.modes", "scan.mode"),
        ("deduplicate.ignore-deletes", "ignore-delete"),
        ("retained.max", "[changelog.num-retained.max,snapshot.num-retained.max,"),
        ("partial-update.ignoredelete", "ignore-delete"),
    ],
)
def test_unknown_option_of_a_new_table_names_what_may_be_meant(given: str, meant: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_options({given: "x"}, creating=True)

    assert f"did_you_mean={meant}" in str(caught.value).replace(", ", ",")


def test_every_key_without_its_separators_finds_itself() -> None:
    for known in describe_options():
        if "#" in known.key or "_" in known.key:
            continue
        given = known.key.replace(".", "_").replace("-", "_") + " "
        with pytest.raises(InvalidRequest) as caught:
            parse_options({given: "x"}, creating=True)
        assert known.key in str(caught.value), known.key


def test_every_older_key_is_understood() -> None:
    today = {known.key for known in describe_options()}

    assert set(RENAMED.values()) <= today
    assert not set(RENAMED) & today
