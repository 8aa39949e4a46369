"""Changes that are read from files of messages, instead of a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.actions import (
    DATABASE_FLAGS,
    TABLE_FLAGS,
    Action,
    Arguments,
    Opened,
    check_keys,
    database_opened,
    table_opened,
)
from lakecore.cdc.events import Position, SourceSchema, SourceTable, Step
from lakecore.cdc.formats.decoder import Messages
from lakecore.cdc.formats.registry import FORMATS, decoder_for
from lakecore.errors import InvalidRequest
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import FileStatus


# --- source --------------------------------------------------------------------------------------
# A source that reads a folder of files with one message per line, and follows new lines.
#
# 1. Files are read in the order of their names, which must therefore grow with time. Names that
#    begin with `.` or `_` are left out.
# 2. The last file may still grow. The last line may lack a line break if the line is a complete
#    JSON object.
# 3. The position names a file and the number of bytes read from it. Earlier files are never read
#    again. A file that became shorter raises an error.
# 4. The source has caught up when everything that the folder held at the start is read.

_OPTIONS = ("path", "value.format")
_BLOCK_BYTES = 16 << 20
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """`--files_conf`: the folder, and the format of the lines."""

    path: str
    value_format: str

    @staticmethod
    def parse(conf: Mapping[str, str]) -> FilesSettings:
        """The settings. Raises InvalidRequest, naming the option."""
        stated = {key: text for key, text in conf.items() if text}
        check_keys("files_conf", stated, _OPTIONS, _OPTIONS)
        if conf["value.format"] not in FORMATS:
            raise InvalidRequest(
                "value.format is not one of these",
                given=conf["value.format"],
                known=sorted(FORMATS),
            )
        return FilesSettings(path=conf["path"], value_format=conf["value.format"])


class FilesSource:
    """Reads the lines of the files of a folder, local or on an object store."""

    def __init__(self, settings: FilesSettings, mapping: TypeMapping, ambient: Ambient) -> None:
        self._format = settings.value_format
        self._folder = locate(settings.path)
        self._store = open_store(self._folder, {})
        self._decoder = decoder_for(settings.value_format, mapping)
        self._ambient = ambient

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        """Empty: the tables are known only from messages.

        Raises InvalidRequest without a folder.
        """
        if not self._store.exists(self._folder):
            raise InvalidRequest("the folder of the source does not exist", path=self._folder)
        return {}

    def describe(self) -> Mapping[str, str]:
        return {"source": "files", "path": self._folder, "format": self._format}

    def steps(self, after: Position | None) -> Iterator[Step]:
        """The lines as changes, until the caller stops."""
        name, read = _parsed(after)
        ends = self._listed()
        end = (_name(ends[-1]), ends[-1].size_bytes) if ends else ("", 0)
        while True:
            quiet = True
            files = [each for each in self._listed() if _name(each) >= name]
            for each in files:
                if _name(each) > name:
                    name, read = _name(each), 0
                is_last = each is files[-1]
                if each.size_bytes < read:
                    raise InvalidRequest(
                        "a file of the source became shorter", file=each.path, read_bytes=read
                    )
                for part, size in self._blocks(each, read, is_last=is_last):
                    read += size
                    quiet = False
                    bad: list[InvalidRequest] = []
                    batches = self._decoder.decode(part, bad.append)
                    position: Position = {"file": name, "bytes": read}
                    yield Step(
                        position=position,
                        batches=tuple(batches),
                        bad=tuple(bad),
                        caught_up=(name, read) >= end,
                    )
            if quiet:
                # A last line without a line break that is not a complete object is still being
                # written.
                position = {"file": name, "bytes": read}
                yield Step(position=position, caught_up=True)
                self._ambient.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Do nothing: no file stays open between steps."""

    def _listed(self) -> list[FileStatus]:
        return [
            each
            for each in self._store.list(self._folder)
            if not each.is_directory and not _name(each).startswith((".", "_"))
        ]

    def _blocks(
        self, file: FileStatus, start: int, *, is_last: bool
    ) -> Iterator[tuple[Messages, int]]:
        """The lines after `start`, in blocks, each with the number of bytes read."""
        if file.size_bytes <= start:
            return
        with self._store.open_input(file.path) as source:
            if start:
                source.seek(start)
            rest = b""
            while data := source.read(_BLOCK_BYTES):
                whole, cut, tail = (rest + data).rpartition(b"\n")
                rest = tail
                if cut:
                    yield _messages(file.path, whole, start), len(whole) + 1
                    start += len(whole) + 1
            if rest.strip() and (not is_last or _is_object(rest)):
                yield _messages(file.path, rest, start), len(rest)


def _messages(path: str, data: bytes, start: int) -> Messages:
    """The non-blank lines as messages, each with its file and byte offset."""
    lines, places = [], []
    for line in data.split(b"\n"):
        if line.strip():
            lines.append(line)
            places.append(start)
        start += len(line) + 1
    metadata = pa.table(
        {"file": pa.array([path] * len(lines), pa.string()), "byte": pa.array(places, pa.int64())}
    )
    return Messages(values=lines, metadata=metadata)


def _is_object(line: bytes) -> bool:
    """Whether the line is a complete JSON object, not only the beginning of one."""
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
    except RecursionError:
        return True  # the format reports it


def _name(file: FileStatus) -> str:
    return file.path.rpartition("/")[2]


def _parsed(position: Position | None) -> tuple[str, int]:
    match position:
        case None:
            return "", 0
        case {"file": str(name), "bytes": int(read)}:
            return name, read
    raise InvalidRequest("not a position in a folder of files", position=position)


# --- actions -------------------------------------------------------------------------------------
# The actions `files_sync_table` and `files_sync_database`, with the arguments of Kafka's actions.
#
# The actions, which Paimon lacks, read a folder of recorded messages, for example to try out a
# format.


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    return table_opened(arguments, ambient, _source(arguments, ambient), ())


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    return database_opened(arguments, ambient, _source(arguments, ambient), ())


def _source(arguments: Arguments, ambient: Ambient) -> FilesSource:
    return FilesSource(FilesSettings.parse(arguments.conf), arguments.mapping, ambient)


FILES_ACTIONS = {
    "files_sync_table": Action(
        conf="files_conf", takes_table=True, opens=_sync_table, flags=TABLE_FLAGS
    ),
    "files_sync_database": Action(
        conf="files_conf", takes_table=False, opens=_sync_database, flags=DATABASE_FLAGS
    ),
}
