"""What the text of a path or a URI names: the one rule for every place where lakecore is given one.

1. A scheme is a word before `://`, or `file` before `:`; its case does not count.
2. `file:/x`, `file:///x` and `file://localhost/x` are the local path `/x`. Another host is refused.
3. Nothing is decoded: `%20` in a URI is three characters of a name, as it is for every engine of
   Paimon, which itself escapes partition values with `%`.
4. A URI of a storage keeps its authority and its names as they are. It must not hold `.` or `..`,
   which no object store resolves, nor credentials, which would show in every message and plan.
5. A local path may hold `.` and `..`; whoever opens it resolves them (`io.stores.open.locate`).

Pure: the working directory and the home directory are known to `io` alone.
"""

from __future__ import annotations

import re

from lakecore.errors import InvalidRequest

__all__ = ["canonical", "check_text", "is_local", "is_within", "storage_of"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_FILE = re.compile(r"file:", re.ASCII | re.IGNORECASE)


def canonical(text: str) -> str:
    """The path or URI in the one spelling that lakecore uses; a local path has no scheme.

    Raises InvalidRequest for a text that names no place.
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
    # Azure's `container@account.host` is no user with a password, and the only one with an `@`.
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
    """Whether the text names a local path: it has no scheme, or that of files."""
    return bool(_FILE.match(text)) or not _SCHEME.match(text)


def storage_of(text: str) -> str:
    """What tells one storage from another: nothing for local disk, else the scheme.

    Each name of `memory://` is a storage; S3 is one under all its schemes.
    """
    scheme = _SCHEME.match(text)
    if is_local(text) or scheme is None:
        return ""
    known = scheme[1].lower()
    if known == "memory":
        return f"{known}://{text[scheme.end() :].partition('/')[0]}"
    return "s3" if known in {"s3", "s3a", "s3n"} else known


def is_within(path: str, root: str) -> bool:
    """Whether a canonical path is below a canonical root, by its names alone."""
    below = path.removeprefix(root.rstrip("/") + "/")
    return len(below) < len(path) and not {"", ".", ".."} & set(below.split("/"))


def check_text(text: str) -> None:
    """Raise InvalidRequest for a text that no storage takes as a path."""
    if not text:
        raise InvalidRequest("the path is empty", path=text)
    if text.isascii() and "\0" not in text:
        return
    if "\0" in text:
        raise InvalidRequest("a path holds no NUL", path=repr(text))
    try:
        # Names of local files need not be Unicode; Python holds their bytes as lone surrogates.
        text.encode(errors="surrogateescape" if is_local(text) else "strict")
    except UnicodeEncodeError as error:
        raise InvalidRequest("a path is not Unicode text", path=repr(text)) from error


def _file_path(uri: str) -> str:
    path = uri[len("file:") :]
    if path.startswith("//"):
        authority, slash, names = path[2:].partition("/")
        if authority.lower() not in {"", "localhost"}:
            raise InvalidRequest(
                "a file URI names no host; write file:///path", path=uri, host=authority
            )
        path = slash + names
    if not path:
        raise InvalidRequest("the path is empty", path=uri)
    return path
