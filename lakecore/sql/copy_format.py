"""The options of FILE_FORMAT in COPY INTO, checked and converted to typed values.

https://paimon.apache.org/docs/master/spark/sql-write/#file_format-options
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ExportFormat", "ImportFormat", "export_format", "import_format", "strftime_of"]

KINDS = ("CSV", "JSON", "PARQUET")
_IMPORT = {
    "CSV": (
        "FIELD_DELIMITER",
        "SKIP_HEADER",
        "QUOTE",
        "ESCAPE",
        "NULL_IF",
        "EMPTY_FIELD_AS_NULL",
        "COMPRESSION",
    ),
    "JSON": ("MULTI_LINE", "NULL_IF", "EMPTY_FIELD_AS_NULL", "COMPRESSION"),
    "PARQUET": ("COMPRESSION",),
}
_EXPORT = {
    "CSV": ("FIELD_DELIMITER", "HEADER", "QUOTE", "ESCAPE", "COMPRESSION"),
    "JSON": ("DATE_FORMAT", "TIMESTAMP_FORMAT", "COMPRESSION"),
    "PARQUET": ("COMPRESSION",),
}
_TEXT_CODECS = {"NONE": "none", "UNCOMPRESSED": "none", "GZIP": "gzip", "ZSTD": "zstd"}
_PARQUET_CODECS = {
    "NONE": "uncompressed",
    "UNCOMPRESSED": "uncompressed",
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "ZSTD": "zstd",
    "LZ4": "lz4_raw",
    "LZ4_RAW": "lz4_raw",
    "BROTLI": "brotli",
}
_DATE_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_STRFTIME = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%g",
    "SSSSSS": "%f",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat:
    """How files are read. If `compression` is None, the ending of the file name decides."""

    kind: str
    delimiter: str = ","
    header: bool = False
    quote: str = '"'
    escape: str = "\\"
    null_if: tuple[str, ...] = ()
    empty_as_null: bool = False
    multi_line: bool = False
    compression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """How a file is written. Without a format, dates and timestamps are written in ISO form."""

    kind: str
    delimiter: str = ","
    header: bool = False
    quote: str = '"'
    escape: str = "\\"
    date_format: str | None = None
    timestamp_format: str | None = None
    compression: str = "none"


def import_format(kind: str, options: Mapping[str, str | tuple[str, ...]]) -> ImportFormat:
    """The format of files to read. Raises Unsupported for an option that Paimon does not have."""
    kind = _kind(kind)
    if "MODE" in options:
        raise InvalidRequest("ON_ERROR says what happens to bad rows; leave out MODE")
    given = _Options(kind, options, _IMPORT[kind], "import")
    _check_marks(given)
    codecs = _PARQUET_CODECS if kind == "PARQUET" else _TEXT_CODECS
    compression = given.codec(codecs, None)
    return ImportFormat(
        kind=kind,
        delimiter=given.text("FIELD_DELIMITER", ","),
        header=given.header(),
        quote=given.character("QUOTE", '"'),
        escape=given.character("ESCAPE", "\\"),
        null_if=given.texts("NULL_IF"),
        empty_as_null=given.flag("EMPTY_FIELD_AS_NULL"),
        multi_line=given.flag("MULTI_LINE"),
        compression=None if compression == "none" else compression,
    )


def export_format(kind: str, options: Mapping[str, str | tuple[str, ...]]) -> ExportFormat:
    """The format of files to write."""
    kind = _kind(kind)
    given = _Options(kind, options, _EXPORT[kind], "export")
    _check_marks(given)
    if kind == "PARQUET":
        compression = given.codec(_PARQUET_CODECS, "snappy")
    else:
        compression = given.codec(_TEXT_CODECS, "none")
    assert compression is not None, "there is a default"
    return ExportFormat(
        kind=kind,
        delimiter=given.text("FIELD_DELIMITER", ","),
        header=given.flag("HEADER"),
        quote=given.character("QUOTE", '"'),
        escape=given.character("ESCAPE", "\\"),
        date_format=given.times("DATE_FORMAT"),
        timestamp_format=given.times("TIMESTAMP_FORMAT"),
        compression=compression,
    )


def strftime_of(pattern: str) -> str:
    """A Java pattern such as `yyyy-MM-dd` as a strftime pattern.

    Raises Unsupported if no strftime pattern has the same meaning.
    """
    parts = []
    place = 0
    while place < len(pattern):
        found = _DATE_PART.match(pattern, place)
        if found is None:
            raise InvalidRequest("a quote in the date pattern has no end", pattern=pattern)
        place = found.end()
        if found[1] is not None:
            parts.append((found[1].replace("''", "'") or "'").replace("%", "%%"))
        elif found[2] is not None:
            if found[0] not in _STRFTIME:
                raise Unsupported(
                    "this part of a date pattern is not supported",
                    part=found[0],
                    pattern=pattern,
                    known=tuple(_STRFTIME),
                )
            parts.append(_STRFTIME[found[0]])
        else:
            parts.append(found[0].replace("%", "%%"))
    return "".join(parts)


def _check_marks(given: _Options) -> None:
    """Raise InvalidRequest if one CSV character, such as the quote, has two meanings."""
    delimiter = given.text("FIELD_DELIMITER", ",")
    for key, default in (("QUOTE", '"'), ("ESCAPE", "\\")):
        if given.character(key, default) in delimiter:
            raise InvalidRequest(
                f"{key} is a part of FIELD_DELIMITER",
                value=given.character(key, default),
                delimiter=delimiter,
            )


def _kind(given: str) -> str:
    kind = given.upper()
    if kind not in KINDS:
        raise Unsupported("COPY INTO knows CSV, JSON and PARQUET", type=given)
    return kind


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of one FILE_FORMAT, with a method for each type of value."""

    kind: str
    given: Mapping[str, str | tuple[str, ...]]
    known: tuple[str, ...]
    what: str

    def __post_init__(self) -> None:
        unknown = [key for key in self.given if key not in self.known]
        if not unknown:
            return
        hint = {}
        if "HEADER" in unknown and self.kind == "CSV":
            hint["hint"] = "SKIP_HEADER = 1 skips the first line of each file"
        raise Unsupported(
            f"FILE_FORMAT has no such option for an {self.what}",
            options=unknown,
            type=self.kind,
            known=self.known,
            **hint,
        )

    def text(self, key: str, default: str) -> str:
        value = self.given.get(key, default)
        if not isinstance(value, str) or not value:
            raise InvalidRequest("the option of FILE_FORMAT is one string", option=key, value=value)
        if any(mark in value for mark in "\n\r\0"):
            raise InvalidRequest("a line break cannot separate fields", option=key, value=value)
        return value

    def character(self, key: str, default: str) -> str:
        value = self.text(key, default)
        if len(value.encode()) > 1:
            raise InvalidRequest(
                "the option of FILE_FORMAT is one ASCII character", option=key, value=value
            )
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.given.get(key, ())
        return (value,) if isinstance(value, str) else value

    def flag(self, key: str) -> bool:
        value = self.given.get(key, "FALSE")
        word = value.upper() if isinstance(value, str) else ""
        if word not in {"TRUE", "FALSE"}:
            raise InvalidRequest(
                "the option of FILE_FORMAT is TRUE or FALSE", option=key, value=value
            )
        return word == "TRUE"

    def header(self) -> bool:
        value = self.given.get("SKIP_HEADER", "0")
        if value not in {"0", "1"}:
            raise InvalidRequest("SKIP_HEADER is 0 or 1", value=value)
        return value == "1"

    def times(self, key: str) -> str | None:
        return strftime_of(self.text(key, "")) if key in self.given else None

    def codec(self, known: Mapping[str, str], default: str | None) -> str | None:
        value = self.given.get("COMPRESSION")
        if value is None:
            return default
        name = value.upper() if isinstance(value, str) else ""
        if name not in known:
            raise Unsupported(
                "this compression is not supported", compression=value, known=tuple(known)
            )
        return known[name]
