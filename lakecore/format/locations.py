"""The rules for every path or URI that a user passes.

1. A scheme is a word before `://`, or `file` before `:`; its case is ignored.
2. `file:/x`, `file:///x` and `file://localhost/x` are the local path `/x`. Other hosts raise an
   error.
3. Nothing is decoded: `%20` in a URI is three characters of a name, as in every Paimon engine.
   Paimon itself escapes partition values with `%`.
4. A URI of a remote storage keeps its authority and names. It must not contain `.` or `..`, because
   no object store resolves them. It must not contain credentials, because messages and plans would
   show them.
5. A local path may contain `.` and `..`; the code that opens it resolves them
   (`io.stores.open.locate`).

This module is pure: only `io` knows the working directory and the home directory.
"""

from __future__ import annotations

import re

from lakecore.errors import InvalidRequest

__all__ = ["canonical", "check_text", "is_local", "is_within", "storage_of"]

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
