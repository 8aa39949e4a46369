"""The bytes are those that Paimon 1.4.2 makes, and what it makes of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyroaring import BitMap, BitMap64

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.aggregators import sketches
from tests.merge.aggregators.histories import fold

HLL = [
    "0201070c03080100cbd7c204",
    "0201070c03080500cbd7c2042bf2fb06862ff90d7581660781bc5d06",
    "0201070c030805007581660781bc5d067b65e608fc2d420ac1e91705",
]
THETA = [
    "01030300003acc93e56b61eec8804420",
    (
        "02030300001acc93050000000000803f15f97dcbbd86a10540de2ee1c9db3d08c397fc1281709d1e"
        "e56b61eec8804420ba40b3c1da06695d"
    ),
    (
        "02030300001acc93050000000000803f40de2ee1c9db3d08fe162113fb98bc10bd3273724691cc14"
        "ba40b3c1da06695de0f48bea9983c37c"
    ),
]
THETA_EMPTY = "01030300001e0000"


def united(function: str, *histories: list[str | None]) -> list[str | None]:
    """Histories of hexadecimal texts, folded."""
    steps = [[None if text is None else bytes.fromhex(text) for text in one] for one in histories]
    folded: list[bytes | None] = fold(function, "BYTES", *steps)
    return [None if data is None else data.hex() for data in folded]


def test_32_bit_bitmaps_are_united_to_the_bytes_of_java() -> None:
    sets: list[str | None] = [
        "3a300000010000000000020010000000010002000300",
        "3a300000020000000000000001000000180000001a00000003007011",
        None,
        "3b3000000100008713010000008713",
    ]
    union = "3b3001000100008713010000000100000087137011"

    assert united("rbm32", sets) == [union]
    assert BitMap.deserialize(bytes.fromhex(union)) == BitMap([*range(5000), 70_000])


def test_64_bit_bitmaps_are_united() -> None:
    sets = [[1, 2], [2, 2**40, 2**64 - 1], [*range(5000), 3 << 16]]
    data = [sketches.encode(BitMap64(values)) for values in sets]
    (union,) = fold("rbm64", "BYTES", data)

    assert sketches.decode(union) == BitMap64([*range(5000), 3 << 16, 2**40, 2**64 - 1])


def test_hll_sketches_are_united_to_the_bytes_of_java() -> None:
    union = (
        "0301070c050800010800000081bc5d06862ff90dcbd7c2042bf2fb06c1e91705758166077b65e608fc2d420a"
    )

    assert united("hll_sketch", [*HLL]) == [union]


def test_theta_sketches_are_united_to_the_bytes_of_java() -> None:
    union = (
        "02030300001acc93080000000000803f15f97dcbbd86a10540de2ee1c9db3d08fe162113fb98bc10"
        "bd3273724691cc14c397fc1281709d1ee56b61eec8804420ba40b3c1da06695de0f48bea9983c37c"
    )

    assert united("theta_sketch", [*THETA], [THETA[0], THETA_EMPTY]) == [union, THETA[0]]
    assert united("theta_sketch", [THETA_EMPTY, THETA_EMPTY]) == [THETA_EMPTY]


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "hll_sketch", "theta_sketch"])
def test_lone_value_goes_through_untouched(function: str) -> None:
    folded = united(function, [None, "ff"], [None, None], ["00ff", None, None], [None])

    assert folded == ["ff", None, "00ff", None]
    assert united(function) == []


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "hll_sketch", "theta_sketch"])
@pytest.mark.parametrize("bad", ["", "01", "67617262616765"])
def test_value_of_another_kind_is_refused(function: str, bad: str) -> None:
    with pytest.raises(InvalidRequest, match=f"column=x function={function}"):
        united(function, [bad, bad])


@pytest.mark.parametrize("function", ["hll_sketch", "theta_sketch"])
def test_sketches_without_the_library_say_what_to_install(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)

    with pytest.raises(Unsupported, match=rf"{function} .*'lakecore\[sketches\]'"):
        fold(function, "BYTES", [None])


def test_groups_of_one_and_of_many_values_keep_their_places() -> None:
    def bitmap(*values: int) -> Any:
        return BitMap(values).serialize()

    folded = fold(
        "rbm32",
        "BYTES",
        [bitmap(1)],
        [bitmap(1), None, bitmap(2)],
        [None],
        [bitmap(5)],
        [bitmap(3), bitmap(4), bitmap(3)],
    )

    assert [None if data is None else list(BitMap.deserialize(data)) for data in folded] == [
        [1],
        [1, 2],
        None,
        [5],
        [3, 4],
    ]
