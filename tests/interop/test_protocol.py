from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.interop.protocol import Peer, PeerDied, PeerRefused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import os
from tests.interop.protocol import serve

def loud(text):
    print("noise")
    return text

def wrong():
    raise ValueError("no") from KeyError("why")

serve({"loud": loud, "wrong": wrong, "die": lambda: os._exit(7)})
"""


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    running = Peer("peer", [sys.executable, "-c", PROGRAM], tmp_path / "log")
    yield running
    running.close()


def test_answers_are_not_spoiled_by_what_a_peer_prints(peer: Peer) -> None:
    assert peer.ask("loud", text="é\n中") == "é\n中"
    assert peer.ask("loud", text="again") == "again"


def test_refusal_names_the_error_and_its_cause(peer: Peer) -> None:
    with pytest.raises(PeerRefused) as refusal:
        peer.ask("wrong")

    assert refusal.value.reason == "ValueError: no <- KeyError: 'why'"
    assert peer.ask("loud", text="still there") == "still there"


def test_death_is_told_with_the_log(peer: Peer) -> None:
    peer.ask("loud", text="last words")

    with pytest.raises(PeerDied, match="died in die"):
        peer.ask("die")
