"""What makes a simulated second cheap, and each run of a seed the same.

- Pools run what they are given at once, in the thread that asks. The order of an actor's store
  calls is then its own, and the scheduler alone decides what comes between them.
- Manifests and manifest lists are pickled, not encoded as Avro: `tests/format` and the laws of
  `property_tests/test_metadata.py` hold the codecs, and half of a small commit's time is theirs.
  What reads a manifest as columns gets the real bytes.
"""

from __future__ import annotations

import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from lakecore.format import metadata
from lakecore.format.manifest_files import decode_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PICKLED = b"\x80\x05"


def _at_once(
    _pool: ThreadPoolExecutor, act: Callable[..., Any], /, *args: Any, **named: Any
) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(act(*args, **named))
    except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
        future.set_exception(error)
    return future


def _pickles(values: Sequence[Any], *_codec: str) -> bytes:
    return pickle.dumps(list(values), 5)


def _unpickles(decode: Callable[[bytes, str], Any]) -> Callable[[bytes, str], Any]:
    kept = lru_cache(4096)(pickle.loads)

    def decoded(data: bytes, path: str) -> Any:
        return kept(data) if data.startswith(_PICKLED) else decode(data, path)

    return decoded


_encode_manifest = metadata.encode_manifest
_decoded_snapshot = lru_cache(4096)(metadata.decode_snapshot)
_decoded_schema = lru_cache(256)(metadata.decode_schema)


@lru_cache(4096)
def _columns(data: bytes, path: str) -> Any:
    if data.startswith(_PICKLED):
        data = _encode_manifest(pickle.loads(data), "none")
    return decode_entries(data, path)


@contextmanager
def cheaply() -> Iterator[None]:
    """Within the block, this process works as the module says."""
    with (
        patch.object(ThreadPoolExecutor, "submit", _at_once),
        patch.multiple(
            metadata,
            encode_manifest=_pickles,
            encode_manifest_list=_pickles,
            decode_manifest=_unpickles(metadata.decode_manifest),
            decode_manifest_list=_unpickles(metadata.decode_manifest_list),
            decode_snapshot=_decoded_snapshot,
            decode_schema=_decoded_schema,
        ),
        patch("lakecore.io.history.decode_entries", _columns),
        patch("lakecore.table.commits.commit_manifests.decode_entries", _columns),
    ):
        yield
