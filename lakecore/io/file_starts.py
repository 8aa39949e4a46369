"""The first bytes of files that users name, of any storage, plain or compressed."""

from __future__ import annotations

import codecs

import pyarrow as pa

__all__ = ["is_marked_array"]

_START_BYTES = 256
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


def is_marked_array(file: pa.NativeFile | str, name: str) -> bool:
    """Whether a file is a JSON array that begins with the byte order mark of UTF-8.

    The end of `name` says how the file is compressed. A file that cannot be read is none.
    """
    compressed = next((how for end, how in _COMPRESSED.items() if name.endswith(end)), None)
    try:
        with pa.input_stream(file, compression=compressed) as stream:
            start: bytes = stream.read(_START_BYTES)
    except (OSError, pa.ArrowException):
        return False
    rest = start.removeprefix(codecs.BOM_UTF8)
    return rest != start and rest.lstrip()[:1] == b"["
