"""Every path and file name of a table; no other module builds paths.

A branch keeps its own schemas, snapshots, tags, consumers and changelogs under
`branch/branch-NAME`; data files, manifests, index files and statistics are always in the
directories of the main table.

INVARIANT: a path is built from metadata (names, partition values, buckets), and only numbers, and
the mark of lakecore's data files, are ever parsed from a name.

INVARIANT: no name leads out of its directory. `one_name` checks each name, and `Layout.external`
checks each full path in the metadata. `ARCHITECTURE.md` lists all paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, Field, Root, arrow_type
from lakecore.options import POSTPONE_BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakecore.model.files import DataFile, IndexFile

__all__ = [
    "BLOB_REFERENCES_SUFFIX",
    "BRANCH_PREFIX",
    "BUCKET_PREFIX",
    "CHANGELOG_PREFIX",
    "CONSUMER_PREFIX",
    "DROPPED_MARK",
    "EARLIEST",
    "FILE_INDEX_SUFFIX",
    "LATEST",
    "MAIN_BRANCH",
    "MANAGED_BLOB_SUFFIX",
    "POSTPONE_BUCKET",
    "SCHEMA_PREFIX",
    "SNAPSHOT_PREFIX",
    "SUCCESS_FOLDER",
    "TAG_PREFIX",
    "Layout",
    "canonical",
    "check_text",
    "checksum_in",
    "data_file_name",
    "file_index_name",
    "index_file_name",
    "index_manifest_name",
    "is_local",
    "is_named_by_lakecore",
    "is_within",
    "manifest_list_name",
    "manifest_name",
    "one_name",
    "parse_numbered",
    "partition_path",
    "statistics_name",
    "storage_of",
]


# --- locations -----------------------------------------------------------------------------------
# The rules for every path or URI that a user passes.
#
# 1. A scheme is a word before `://`, or `file` before `:`; its case is ignored.
# 2. `file:/x`, `file:///x` and `file://localhost/x` are the local path `/x`. Other hosts raise an
#    error.
# 3. Nothing is decoded: `%20` in a URI is three characters of a name, as in every Paimon engine.
#    Paimon itself escapes partition values with `%`.
# 4. A URI of a remote storage keeps its authority and names. Such a URI must not contain `.` or
#    `..`, because no object store resolves them, and no credentials, because messages and plans
#    would show them.
# 5. A local path may contain `.` and `..`; the code that opens it resolves them
#    (`io.stores.open.locate`).
#
# This module is pure: only `io` knows the working directory and the home directory.

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_FILE = re.compile(r"file:", re.ASCII | re.IGNORECASE)


def canonical(text: str) -> str:
    """The path or URI in lakecore's canonical form; a local path has no scheme.

    Raises InvalidRequest for text that is not a valid path or URI.
    """
    check_text(text)
    if _FILE.match(text):
        return _file_path(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    rest = text[scheme.end() :]
    authority, slash, names = rest.partition("/")
    user, at, _ = authority.rpartition("@")
    # Azure's `container@account.host` is not a user with a password; no other URI may have an `@`.
    if at and (":" in user or not scheme[1].lower().startswith("abfs")):
        raise InvalidRequest(
            "a URI must not hold credentials: they would show in messages and plans; give them as "
            "options of the storage, such as s3.access-key and s3.secret-key",
            uri=text,
        )
    if scheme[1].lower() != "memory" and {".", ".."} & set(names.split("/")):
        raise InvalidRequest("an object store does not resolve `.` and `..`; remove them", uri=text)
    return f"{scheme[1].lower()}://{authority}{slash}{names}"


def is_local(text: str) -> bool:
    """Whether the text is a local path: without a scheme, or with the scheme `file`."""
    return bool(_FILE.match(text)) or not _SCHEME.match(text)


def storage_of(text: str) -> str:
    """The identity of a storage: empty for local disk, else the scheme.

    Each name of `memory://` is a separate storage. All schemes of S3 are the same storage.
    """
    scheme = _SCHEME.match(text)
    if is_local(text) or scheme is None:
        return ""
    known = scheme[1].lower()
    if known == "memory":
        return f"{known}://{text[scheme.end() :].partition('/')[0]}"
    return "s3" if known in {"s3", "s3a", "s3n"} else known


def is_within(path: str, root: str) -> bool:
    """Whether a canonical path is below a canonical root. Compares names only."""
    below = path.removeprefix(root.rstrip("/") + "/")
    return len(below) < len(path) and not {"", ".", ".."} & set(below.split("/"))


def check_text(text: str) -> None:
    """Raise InvalidRequest for text that no storage accepts as a path."""
    if not text:
        raise InvalidRequest("the path is empty", path=text)
    if text.isascii() and "\0" not in text:
        return
    if "\0" in text:
        raise InvalidRequest("a path cannot contain NUL", path=repr(text))
    try:
        # Names of local files need not be Unicode; Python represents such bytes as lone surrogates.
        text.encode(errors="surrogateescape" if is_local(text) else "strict")
    except UnicodeEncodeError as error:
        raise InvalidRequest("a path is not Unicode text", path=repr(text)) from error


def _file_path(uri: str) -> str:
    path = uri[len("file:") :]
    if path.startswith("//"):
        authority, slash, names = path[2:].partition("/")
        if authority.lower() not in {"", "localhost"}:
            raise InvalidRequest(
                "a file URI cannot name a host; write file:///path", path=uri, host=authority
            )
        path = slash + names
    if not path:
        raise InvalidRequest("the path is empty", path=uri)
    return path


# --- partition path ------------------------------------------------------------------------------
# Partition values as directories: `dt=2024-01-01/region=eu`. Names and values are escaped.
#
# A value has the string form that Java prints, because other engines use the same directories:
#
# - with `partition.legacy-name` (the default), the internal value: a DATE is its day number, a TIME
#   its milliseconds, a timestamp its ISO text without trailing zero parts (`2024-01-02T03:04`);
# - without it, the value cast to a string: `2024-01-01`, `03:04:05`, `2024-01-02 03:04:05.678`.
#
# Nulls, and empty or blank strings, become the default name. Therefore different partitions may
# share a directory: take partition values from manifests, never from a path. TIMESTAMP_LTZ is
# written in UTC.

_ESCAPED = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{}[]^"])
_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in _ESCAPED})
_BLANKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000" + "".join(
    chr(code)
    for code in range(0x2000, 0x200B)
    if code != 0x2007  # a no-break space, which Java does not regard as blank
)
_NANOS_BY_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_MS = 86_400_000
_DAY_NANOS = 86_400_000_000_000
_YEAR_MAX = 9999
_PLAIN_MIN, _PLAIN_MAX = -3, 7


def partition_path(
    values: pa.RecordBatch, fields: Sequence[Field], default_name: str, *, legacy_name: bool
) -> str:
    """The directories of one partition, joined by `/`; empty for an unpartitioned table.

    `values` is one row whose columns are those of `fields`, in order.
    """
    return directories_of(partition_texts(values, fields, default_name, legacy_name=legacy_name))


def directories_of(texts: Mapping[str, str]) -> str:
    """The directories of a partition with these values, joined by `/`."""
    return "/".join(f"{escape(name)}={escape(text)}" for name, text in texts.items())


def partition_texts(
    values: pa.RecordBatch, fields: Sequence[Field], default_name: str, *, legacy_name: bool
) -> Mapping[str, str]:
    """The string of each partition value, unescaped, by column name."""
    assert not fields or values.num_rows == 1, "a partition is one row"
    texts: dict[str, str] = {}
    for column, field in zip(values.columns, fields, strict=True):
        scalar = column.cast(arrow_type(field.type))[0]
        text = value_text(scalar, field, legacy=legacy_name) if scalar.is_valid else ""
        texts[field.name] = text if text.strip(_BLANKS) else default_name
    return texts


def escape(text: str) -> str:
    """The text, with special characters of paths and URIs written as `%` and two hex digits."""
    return text.translate(_ESCAPES)


def value_text(scalar: pa.Scalar, field: Field, *, legacy: bool) -> str:
    """The string of a non-null value: Java's internal form if `legacy`, else a cast to string."""
    data_type = field.type
    if isinstance(data_type, Atomic):
        match data_type.root:
            case Root.BOOLEAN:
                return "true" if scalar.as_py() else "false"
            case Root.FLOAT:
                return float_text(np.float32(scalar.as_py()))
            case Root.DOUBLE:
                return float_text(np.float64(scalar.as_py()))
            case Root.DECIMAL:
                return format(scalar.as_py(), "f")
            case Root.DATE:
                return str(scalar.value) if legacy else _date_text(scalar.value)
            case Root.TIME:
                assert data_type.precision is not None
                return (
                    str(scalar.value) if legacy else _time_text(scalar.value, data_type.precision)
                )
            case root if root in TIMESTAMPS:
                assert data_type.precision is not None
                nanos = scalar.value * _NANOS_BY_UNIT[scalar.type.unit]
                if legacy:
                    return _iso_text(nanos)
                return _timestamp_text(nanos, data_type.precision)
            case root if root in STRINGS:
                return str(scalar.as_py())
            case root if root in BINARIES:
                return _binary_text(scalar.as_py(), field, legacy=legacy)
            case _:
                return str(scalar.as_py())
    raise Unsupported("the type cannot be a partition key", column=field.name, type=data_type)


def _binary_text(value: bytes, field: Field, *, legacy: bool) -> str:
    # NOTE: Java's legacy text of a binary value is the address of an object. The address differs on
    # each write, so not even Java finds such a file again.
    if legacy:
        raise Unsupported(
            "a binary partition key needs partition.legacy-name=false",
            column=field.name,
            type=field.type,
        )
    return value.decode("utf-8", errors="replace")


def float_text(value: np.floating) -> str:
    """A float or double as Java's `toString` prints it, in the fewest digits: `1.0E7`, `0.001`.

    NOTE: Java before 19 prints some numbers below 1E-3 or above 1E7 with more digits than needed.
    """
    if np.isnan(value):
        return "NaN"
    sign = "-" if np.signbit(value) else ""
    if np.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    scientific = np.format_float_scientific(abs(value), unique=True, trim="-")
    if "." not in scientific:
        # Java prints at least two digits, and both must be the nearest: 4.9E-324, not 5.0E-324.
        scientific = f"{abs(float(value)):.1e}"
    mantissa, _, exponent_text = scientific.partition("e")
    digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(exponent_text)
    if not _PLAIN_MIN <= exponent < _PLAIN_MAX:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _year_month_day(days: int) -> tuple[int, str, str]:
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return int(year), month, day


def _date_text(days: int) -> str:
    year, month, day = _year_month_day(days)
    return f"{year % 10_000:04d}-{month}-{day}"


def _time_text(milliseconds: int, precision: int) -> str:
    milliseconds %= _DAY_MS
    seconds, fraction = divmod(milliseconds, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if precision == 0:
        return text
    digits = f"{fraction:03d}"[:precision].rstrip("0") or "0"
    return f"{text}.{digits}"


def _timestamp_text(nanos: int, precision: int) -> str:
    days, rest = divmod(nanos, _DAY_NANOS)
    seconds, fraction = divmod(rest, 1_000_000_000)
    digits = f"{fraction:09d}"
    digits = digits[:precision] + digits[precision:].rstrip("0")
    text = f"{_date_text(days)} {_time_text(seconds * 1000, 0)}"
    return f"{text}.{digits}" if digits else text


def _iso_text(nanos: int) -> str:
    days, rest = divmod(nanos, _DAY_NANOS)
    seconds, fraction = divmod(rest, 1_000_000_000)
    year, month, day = _year_month_day(days)
    plus = "+" if year > _YEAR_MAX else ""
    padded = f"-{-year:04d}" if year < 0 else f"{year:04d}"
    text = f"{plus}{padded}-{month}-{day}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if rest % 60_000_000_000:
        text += f":{seconds % 60:02d}"
    if fraction:
        digits = f"{fraction:09d}"
        text += "." + digits[: 3 * max(1, -(-len(digits.rstrip("0")) // 3))]
    return text


# --- layout --------------------------------------------------------------------------------------

MAIN_BRANCH = "main"

SNAPSHOT_PREFIX = "snapshot-"
SCHEMA_PREFIX = "schema-"
TAG_PREFIX = "tag-"
PENDING_PREFIX = "pending-"
BRANCH_PREFIX = "branch-"
CONSUMER_PREFIX = "consumer-"
CHANGELOG_PREFIX = "changelog-"
BUCKET_PREFIX = "bucket-"
SUCCESS_FOLDER = "tag-success-file"
DROPPED_MARK = ".dropped"
MANAGED_BLOB_SUFFIX = ".managed.blob"
"""Files of BLOB values to which rows of a table with a primary key refer."""
BLOB_REFERENCES_SUFFIX = ".blobref"
"""Files that list the managed files to which the rows of a data file refer."""
LATEST = "LATEST"
EARLIEST = "EARLIEST"

NAME_BYTES_MAX = 255
_PLAIN_NAME = re.compile(r"[\w+=@~,#% -][\w.+=@~,#% -]{0,254}", re.ASCII)
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f\ud800-\udfff]")
_CHECKSUM = re.compile(r"-crc32-([0-9a-f]{8})\Z")
_MARK = "lc"
_MARKED = re.compile(rf"-{_MARK}[0-9]+(\.[a-z0-9]+)?\.[a-z]+\Z")
LAKECORE_NAME = _MARKED.pattern.replace("Z", "z")
"""Polars' pattern of the names that `is_named_by_lakecore` accepts."""
_ID_MAX = 2**63 - 1
_COMPRESSION_SUFFIXES = {
    "zstd": "zst",
    "gzip": "gz",
    "bzip2": "bz2",
    "deflate": "deflate",
    "snappy": "snappy",
    "lz4": "lz4",
    "none": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The paths of one branch of a table. `root` is the table directory, as the store names it.

    `index_in_data_dir` is the option `index-file-in-data-file-dir`, `data_directory` the option
    `data-file.path-directory`. `external_roots` are the directories outside the table whose files
    the process may read and delete: those of `lakecore.external-paths`, which no table states.
    `blob_roots` are the directories outside the table whose files descriptors of BLOB values may
    name. The partition path of an unpartitioned table is empty.
    """

    root: str
    branch: str = MAIN_BRANCH
    index_in_data_dir: bool = False
    data_directory: str = ""
    external_roots: tuple[str, ...] = ()
    blob_roots: tuple[str, ...] = ()

    def on_branch(self, branch: str) -> Layout:
        return replace(self, branch=branch)

    # --- a branch's own ---

    @property
    def metadata_dir(self) -> str:
        """The directory that holds this branch's schema, snapshot, tag and other folders."""
        if self.branch == MAIN_BRANCH:
            return self._main()
        return f"{self.branches_dir}/{one_name(BRANCH_PREFIX + self.branch, 'branch')}"

    @property
    def schema_dir(self) -> str:
        return f"{self.metadata_dir}/schema"

    def schema(self, schema_id: int) -> str:
        return f"{self.schema_dir}/{SCHEMA_PREFIX}{schema_id}"

    @property
    def dropped_mark(self) -> str:
        """The marker file of a table that is being dropped, with all its branches."""
        return f"{self._main()}/schema/{DROPPED_MARK}"

    @property
    def snapshot_dir(self) -> str:
        """The folder of snapshots and their hints."""
        return f"{self.metadata_dir}/snapshot"

    def snapshot(self, snapshot_id: int) -> str:
        return f"{self.snapshot_dir}/{SNAPSHOT_PREFIX}{snapshot_id}"

    @property
    def latest_hint(self) -> str:
        """The hint at the newest snapshot; it may be missing or stale."""
        return f"{self.snapshot_dir}/{LATEST}"

    @property
    def earliest_hint(self) -> str:
        """The hint at the oldest snapshot; it may be missing or stale."""
        return f"{self.snapshot_dir}/{EARLIEST}"

    @property
    def rollback_record(self) -> str:
        """The record of a rollback that is in progress; the file exists only during a rollback."""
        return f"{self.snapshot_dir}/ROLLBACK"

    @property
    def fast_forward_record(self) -> str:
        """A file that exists only while a fast-forward is in progress; it names the branch."""
        return f"{self.snapshot_dir}/FAST_FORWARD"

    @property
    def tag_dir(self) -> str:
        return f"{self.metadata_dir}/tag"

    def tag(self, name: str) -> str:
        return f"{self.tag_dir}/{one_name(TAG_PREFIX + name, 'tag')}"

    def pending(self, uuid: str) -> str:
        """A file that keeps a snapshot while a tag or a branch of it is made."""
        return f"{self.tag_dir}/{one_name(PENDING_PREFIX + uuid)}"

    def tag_success(self, name: str) -> str:
        return f"{self.tag_dir}/{SUCCESS_FOLDER}/{one_name(f'{name}_SUCCESS', 'tag')}"

    @property
    def consumer_dir(self) -> str:
        return f"{self.metadata_dir}/consumer"

    def consumer(self, consumer_id: str) -> str:
        return f"{self.consumer_dir}/{one_name(CONSUMER_PREFIX + consumer_id, 'consumer')}"

    @property
    def changelog_dir(self) -> str:
        """The folder of long-lived changelogs and their hints."""
        return f"{self.metadata_dir}/changelog"

    def changelog(self, snapshot_id: int) -> str:
        """The long-lived changelog of an expired snapshot."""
        return f"{self.changelog_dir}/{CHANGELOG_PREFIX}{snapshot_id}"

    @property
    def changelog_latest_hint(self) -> str:
        """The hint at the newest long-lived changelog."""
        return f"{self.changelog_dir}/{LATEST}"

    @property
    def changelog_earliest_hint(self) -> str:
        """The hint at the oldest long-lived changelog."""
        return f"{self.changelog_dir}/{EARLIEST}"

    # --- the main table's, whatever the branch ---

    @property
    def branches_dir(self) -> str:
        return f"{self._main()}/branch"

    @property
    def manifest_dir(self) -> str:
        """The folder of manifests, manifest lists and index manifests."""
        return f"{self._main()}/manifest"

    def manifest(self, name: str) -> str:
        """The manifest, manifest list or index manifest of that name."""
        return f"{self.manifest_dir}/{one_name(name)}"

    @property
    def statistics_dir(self) -> str:
        return f"{self._main()}/statistics"

    def statistics(self, name: str) -> str:
        return f"{self.statistics_dir}/{one_name(name)}"

    @property
    def index_dir(self) -> str:
        """The folder of index files, unless they are stored with the data files."""
        return f"{self._main()}/index"

    def index_file(self, name: str, partition_path: str = "", bucket: int = 0) -> str:
        """The path of a new index file; the bucket matters only if it is stored with data files."""
        if self.index_in_data_dir:
            return self.file_in_bucket(partition_path, bucket, name)
        return f"{self.index_dir}/{one_name(name)}"

    def live_index_file(self, partition_path: str, bucket: int, file: IndexFile) -> str:
        """The path of an index file that an index manifest lists."""
        if file.external_path:
            return self.external(file.external_path)
        return self.index_file(file.name, partition_path, bucket)

    @property
    def data_dir(self) -> str:
        """The directory above all partitions and buckets."""
        return f"{self._main()}/{self.data_directory}" if self.data_directory else self._main()

    def partition_dir(self, partition_path: str) -> str:
        """The directory of a partition. For the empty path, the directory of the whole table."""
        return f"{self.data_dir}/{partition_path}" if partition_path else self.data_dir

    def bucket_dir(self, partition_path: str, bucket: int) -> str:
        name = "postpone" if bucket == POSTPONE_BUCKET else str(bucket)
        return f"{self.partition_dir(partition_path)}/{BUCKET_PREFIX}{name}"

    def file_in_bucket(self, partition_path: str, bucket: int, name: str) -> str:
        """The path of a new data or changelog file."""
        return f"{self.bucket_dir(partition_path, bucket)}/{one_name(name)}"

    def data_file(self, partition_path: str, bucket: int, file: DataFile) -> str:
        """The path of a data or changelog file that a manifest lists."""
        if file.external_path:
            return self.external(file.external_path)
        return self.file_in_bucket(partition_path, bucket, file.name)

    def extra_file(self, partition_path: str, bucket: int, file: DataFile, name: str) -> str:
        """The path of an extra file of a data file, in the same directory."""
        parent, _, _ = self.data_file(partition_path, bucket, file).rpartition("/")
        return f"{parent}/{one_name(name)}"

    def external(self, path: str) -> str:
        """The canonical form of a full path in the metadata that is outside the table.

        Raises CorruptTable if it is not a path, InvalidRequest if it is in none of the
        `external_roots`, and Unsupported if it is in another storage than the table.
        """
        try:
            place = canonical(path)
        except InvalidRequest as error:
            raise CorruptTable(
                "the name of a file in the metadata is not a path", why=error
            ) from error
        if not any(is_within(place, canonical(root)) for root in self.external_roots):
            raise InvalidRequest(
                "a file of the table is outside its directory, in a place that nobody has "
                "allowed; if this process may read and delete files there, give its directory by "
                "the dynamic option lakecore.external-paths",
                path=path,
                external_paths=self.external_roots,
                table=self.root,
            )
        if storage_of(place) != storage_of(self.root):
            raise Unsupported(
                "a file of the table is in a different storage than the table",
                path=path,
                table=self.root,
            )
        return place

    @property
    def load_history_dir(self) -> str:
        """The folder of the records of files that COPY INTO has loaded."""
        return f"{self._main()}/copy-into/history"

    def _main(self) -> str:
        return self.root.rstrip("/")


def one_name(name: str, given: str = "") -> str:
    """Check that a name is a single file or directory name on every storage, and return it.

    `given`: the kind of name that a caller gave: a tag, a branch or a consumer; empty for a name
    from metadata. Raises InvalidRequest for a bad name of a caller, CorruptTable for a bad name
    from metadata.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    found = _UNSAFE.search(name)
    if found is None and name not in {"", ".", ".."} and len(name.encode()) <= NAME_BYTES_MAX:
        return name
    raise (InvalidRequest if given else CorruptTable)(
        f"the name of a {given or 'file'} leads out of its directory, or is not a file name",
        name=ascii(name)[:NAME_BYTES_MAX],
    )


def parse_numbered(name: str, prefix: str) -> int | None:
    """The number in a name such as `snapshot-12`; None for any other name."""
    digits = name.removeprefix(prefix)
    if len(digits) == len(name) or not (digits.isascii() and digits.isdecimal()):
        return None
    number = int(digits)
    return number if number <= _ID_MAX else None


def data_file_name(
    prefix: str, writer: str, counter: int, file_format: str, compression: str | None = None
) -> str:
    """The name of a writer's next data or changelog file.

    `writer` is the UUID of the writer, `counter` the number of files it made before. The name
    holds the compression only if it is given (`file.suffix.include.compression`), and the mark that
    `is_named_by_lakecore` looks for: other engines write `UUID-COUNTER`.
    """
    suffix = compression and _COMPRESSION_SUFFIXES.get(compression.lower(), compression)
    middle = f".{suffix}" if suffix else ""
    return f"{prefix}{writer}-{_MARK}{counter}{middle}.{file_format}"


def is_named_by_lakecore(name: str) -> bool:
    """Whether lakecore wrote the data file of this name. Old files of lakecore have no mark."""
    return _MARKED.search(name) is not None


FILE_INDEX_SUFFIX = ".index"


def file_index_name(data_file: str) -> str:
    """The name of a data file's external file index."""
    return f"{data_file}{FILE_INDEX_SUFFIX}"


def manifest_name(committer: str, counter: int) -> str:
    """The name of a manifest; `committer` is a UUID."""
    return f"manifest-{committer}-{counter}"


def manifest_list_name(committer: str, counter: int) -> str:
    """The name of a manifest list."""
    return f"manifest-list-{committer}-{counter}"


def index_manifest_name(committer: str, counter: int) -> str:
    """The name of an index manifest."""
    return f"index-manifest-{committer}-{counter}"


def index_file_name(writer: str, counter: int, checksum: int | None = None) -> str:
    """The name of a deletion-vector or hash index file; may contain the CRC-32 of the file."""
    ending = "" if checksum is None else f"-crc32-{checksum:08x}"
    return f"index-{writer}-{counter}{ending}"


def checksum_in(name: str) -> int | None:
    """The CRC-32 that the name of an index file holds; None if it holds none."""
    found = _CHECKSUM.search(name)
    return None if found is None else int(found[1], 16)


def statistics_name(writer: str, counter: int) -> str:
    """The name of a table statistics file."""
    return f"stat-{writer}-{counter}"
