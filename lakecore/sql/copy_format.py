"""The options of FILE_FORMAT in COPY INTO, checked and converted to typed values.

https://paimon.apache.org/docs/master/spark/sql-write/#file_format-options
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, LakecoreError, NotFound, Unsupported
from lakecore.format.layout import is_local
from lakecore.io.local_files import local_files
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.io.stores.store import FileStatus, Store

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


# --- copy places ---------------------------------------------------------------------------------
# Finds the files of COPY INTO, and copies remote files to the local disk.
#
# DuckDB reads and writes files on the local disk only. Error messages name the remote files, not
# their local copies.

_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class Place:
    """A path or URI that a statement names, and its storage."""

    path: str
    store: Store = field(repr=False)

    @classmethod
    def of(cls, text: str, options: Mapping[str, str]) -> Place:
        """The place that a path or URI names; `options` are those of the storage."""
        path = locate(text)
        return cls(path, open_store(path, options))

    def files(self) -> list[FileStatus]:
        """The file of this path, or the files of this directory, sorted by name.

        Raises NotFound if there is neither.
        """
        if is_file(self.store, self.path):
            parent = self.path.rpartition("/")[0]
            return [each for each in self.store.list(parent or "/") if each.path == self.path]
        if not self.store.exists(self.path):
            raise NotFound("COPY INTO finds no such file or directory", path=self.path)
        # Leave out files of Spark and Hadoop, such as _SUCCESS.
        return [
            each
            for each in self.store.list(self.path)
            if not each.is_directory and not name_of(each).startswith(_HIDDEN)
        ]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files to load, and the local path by which DuckDB reads each."""

    files: Sequence[FileStatus]
    local: Sequence[str]

    def shown(self, value: object) -> object:
        """The string, or list of strings, with the path of each file in place of its copy's."""
        if isinstance(value, list | tuple):
            return [self.shown(each) for each in value]
        if not isinstance(value, str | BaseException):
            return value
        text = str(value)
        for file, local in zip(self.files, self.local, strict=True):
            text = text.replace(local, file.path)
        return text


@contextmanager
def sources_of(place: Place, files: Sequence[FileStatus]) -> Iterator[Sources]:
    """A context with local copies of the files. Errors in it name the files, not their copies."""
    with local_files(place.store, [each.path for each in files]) as local:
        sources = Sources(files, local)
        try:
            yield sources
        except LakecoreError as error:
            if place.store.local_path(place.path) is not None:
                raise
            facts = {name: sources.shown(fact) for name, fact in error.facts.items()}
            raise type(error)(error.message, **facts) from error


def is_file(store: Store, path: str) -> bool:
    """Whether this path is a file."""
    try:
        store.size(path)
    except NotFound:
        return False
    return True


def name_of(status: FileStatus) -> str:
    """The last part of a path."""
    return status.path.rpartition("/")[2]


def recorded(status: FileStatus) -> str:
    """The path of a file in Hadoop's spelling, as Paimon records it."""
    return f"file:{status.path}" if is_local(status.path) else status.path
