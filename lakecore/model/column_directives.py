"""Comments that say how a column is stored, as Paimon defines them.

https://paimon.apache.org/docs/master/append-table/blob/

- `__BLOB_FIELD; comment`: binaries, a list of these or a map to them become BLOB values;
- `__BLOB_DESCRIPTOR_FIELD; comment`: binaries become BLOB, and rows hold descriptors of the values;
- `__BLOB_VIEW_FIELD; comment`: binaries become BLOB, and rows name values of other tables;
- `__VECTOR_FIELD; length; comment`: a list becomes a VECTOR of this length.

The option of the same name, such as `blob-field`, then names the column, and the text after the
last semicolon of the directive becomes its comment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.blob_rules import as_blob
from lakecore.model.type_text import vector
from lakecore.model.types import Array, Atomic, is_blob
from lakecore.options import NAMES, RENAMED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.types import DataType, Field

_BLOB, _VECTOR = "__BLOB_FIELD", "__VECTOR_FIELD"
_OPTIONS = {
    _BLOB: "blob-field",
    "__BLOB_DESCRIPTOR_FIELD": "blob-descriptor-field",
    "__BLOB_VIEW_FIELD": "blob-view-field",
    _VECTOR: "vector-field",
}


def apply_directive(
    field: Field, options: Mapping[str, str], *, table: str = ""
) -> tuple[Field, dict[str, str]]:
    """The column as its comment says, and the options that name it.

    Raises InvalidRequest for a directive that Paimon does not know or that does not fit the type.
    """
    kept = _current(options)
    comment = (field.description or "").strip()
    if not _is_directive(comment):
        return field, kept
    marker, _, rest = (part.strip() for part in comment.partition(";"))
    facts = {"column": field.name, "comment": comment, "table": table}
    if marker not in _OPTIONS:
        raise InvalidRequest("the comment is no directive of Paimon", known=[*_OPTIONS], **facts)
    if marker == _VECTOR:
        length, _, rest = (part.strip() for part in rest.partition(";"))
        kind = _as_vector(field.type, length, field.name)
    else:
        kind = as_blob(field.type)
    fits = marker == _VECTOR or (
        kind is not None and is_blob(kind) and (marker == _BLOB or isinstance(kind, Atomic))
    )
    if kind is None or not fits:
        raise InvalidRequest(
            "the directive in the comment does not fit the column", type=field.type, **facts
        )
    key = _OPTIONS[marker]
    names = dict.fromkeys([*NAMES.parse(kept.get(key, "")), field.name])
    kept[key] = ",".join(names)
    return replace(field, type=kind, description=rest or None), kept


def refuse_directive(comment: str | None, path: Sequence[str], *, table: str = "") -> None:
    """Raise InvalidRequest if the comment is a directive: it would have no effect here.

    A directive has an effect only in the comment of a new column, not of an existing column or a
    nested field.
    """
    if _is_directive((comment or "").strip()):
        raise InvalidRequest(
            "a directive is followed in the comment only of a new column of a table",
            column=".".join(path),
            comment=comment,
            table=table,
        )


def without_column(options: Mapping[str, str], column: str) -> dict[str, str]:
    """The options without a dropped column in those that directives set."""
    kept = _current(options)
    for key in _OPTIONS.values():
        if key in kept:
            left = [name for name in NAMES.parse(kept.pop(key)) if name != column]
            kept |= {key: ",".join(left)} if left else {}
    return kept


def _current(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with the newest keys of those that directives set."""
    newest = {key: RENAMED.get(key, key) for key in options}
    return {
        newest[key] if newest[key] in _OPTIONS.values() else key: text
        for key, text in options.items()
    }


def _is_directive(comment: str) -> bool:
    return comment.startswith(("__BLOB", "__VECTOR"))


def _as_vector(data_type: DataType, length: str, column: str) -> DataType | None:
    is_number = length.isascii() and length.isdigit()
    if not isinstance(data_type, Array) or not is_number:
        return None
    return vector(data_type.element, int(length), column, nullable=data_type.nullable)
