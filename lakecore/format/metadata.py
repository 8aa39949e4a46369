"""Converts all metadata files of a table to values and back, in one place.

Both directions are pure: `encode_*` takes a value of the model; `decode_*` takes bytes, and the
path of the file, which every error names. The code for JSON files is in `json_files.py`,
for other files in `manifest_files.py`.

INVARIANT: decode(encode(x)) == x. A file of a newer format raises Unsupported, a damaged file
CorruptTable; no part of such a file is returned.
"""

from __future__ import annotations

from lakecore.format.json_files import (
    decode_consumer,
    decode_hint,
    decode_schema,
    decode_snapshot,
    decode_statistics,
    decode_success,
    decode_tag,
    encode_consumer,
    encode_hint,
    encode_schema,
    encode_snapshot,
    encode_statistics,
    encode_success,
    encode_tag,
    renamed_tag,
)
from lakecore.format.manifest_files import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
)

__all__ = [
    "decode_consumer",
    "decode_hint",
    "decode_index_manifest",
    "decode_manifest",
    "decode_manifest_list",
    "decode_schema",
    "decode_snapshot",
    "decode_statistics",
    "decode_success",
    "decode_tag",
    "encode_consumer",
    "encode_hint",
    "encode_index_manifest",
    "encode_manifest",
    "encode_manifest_list",
    "encode_schema",
    "encode_snapshot",
    "encode_statistics",
    "encode_success",
    "encode_tag",
    "renamed_tag",
]
