"""Converts an Arrow array to the type of a table column, and checks its values and nulls.

All Arrow layouts of the same values are accepted: dictionaries, run-end encoding, extension types
(by their storage type), large, fixed-size and view lists, and lists of key-value structs for MAP
and MULTISET. Fields of a ROW are matched by name. `rows/fit_values.py` has the rules for atomic
values.

INVARIANT: an array that already has the type and is valid is returned unchanged. Values under a
null list or struct do not exist, and are never checked.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.variant_arrays import variants_of_json
from lakecore.merge.aggregators.elements import equal_codes
from lakecore.model.arrow_arrays import struct_array
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Map,
    Multiset,
    Row,
    Variant,
    Vector,
    arrow_type,
    inner_types,
    with_nullable,
)
from lakecore.rows.fit_values import TOO_MANY_BYTES, Misfit, fit_values, is_string

if TYPE_CHECKING:
    from numpy.typing import NDArray

_t = pa.types
_VALUE_SHOWN_MAX = 120
_INT32_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The origin of an array's values: the dotted column name, and the row number of each value."""

    column: str
    first_row: int = 0
    above: Place | None = None
    lists: pa.Array | None = None

    def inside(self, part: str, lists: pa.Array | None = None) -> Place:
        """The origin of a nested part.

        With `lists`, each element has the row number of its list.
        """
        return Place(column=f"{self.column}.{part}", above=self, lists=lists)

    def row(self, index: int) -> int:
        """The row that holds the value at this position, numbered over the whole write."""
        if self.above is None:
            return self.first_row + index
        if self.lists is not None:
            index = int(np.searchsorted(_offsets(self.lists), index, side="right")) - 1
        return self.above.row(index)

    def refusal(self, misfit: Misfit, array: pa.Array, data_type: DataType) -> InvalidRequest:
        """The error for a value that does not fit: it names column, value, row and rule."""
        if misfit.index is None:
            return InvalidRequest(misfit.rule, column=self.column, type=data_type, given=array.type)
        return InvalidRequest(
            misfit.rule,
            column=self.column,
            value=show(array[misfit.index]),
            row=self.row(misfit.index),
            type=data_type,
        )


def fit(
    array: pa.Array, data_type: DataType, place: Place, alive: pa.Array | None = None
) -> pa.Array:
    """The array in the Arrow type of `data_type`.

    Raises InvalidRequest for the first value that does not fit the type.

    `alive` is a mask of the positions where the surrounding struct is not null; only these count.
    """
    array = _plain(array)
    try:
        if not data_type.nullable:
            _check_not_null(array, alive)
        match data_type:
            case Atomic():
                return fit_values(array, data_type)
            case Variant() if is_string(array.type):
                return _fit_json(array)
            case Row():
                return _fit_row(array, data_type, place)
            case Array():
                return _fit_list(array, data_type, place)
            case Map():
                return _fit_map(array, data_type, place)
            case Multiset():
                keys, counts = inner_types(data_type)
                as_map = Map(key=keys, value=counts, nullable=data_type.nullable)
                return _fit_map(array, as_map, place)
    except Misfit as misfit:
        raise place.refusal(misfit, array, data_type) from misfit


def show(value: pa.Scalar) -> str:
    """The value as text for an error message, cut if it is long."""
    if not value.is_valid:
        return "null"
    if _t.is_timestamp(value.type) and value.type.tz:
        value = value.cast(pa.timestamp(value.type.unit, "UTC"))
    if _t.is_temporal(value.type):
        text = str(value.cast(pa.string()).as_py())
    elif is_string(value.type):
        text = value.as_buffer().to_pybytes().decode(errors="backslashreplace")
    else:
        text = str(value.as_py())
    return text if len(text) <= _VALUE_SHOWN_MAX else text[:_VALUE_SHOWN_MAX] + "..."


def _plain(array: pa.Array) -> pa.Array:
    """The plain array inside dictionary, run-end and extension types."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = _decoded(array)
        elif _t.is_run_end_encoded(array.type):
            array = _repeated(array)
        else:
            return array


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """The value of each row of a dictionary-encoded array."""
    return _taken(array.dictionary, array.indices)


def _repeated(array: pa.RunEndEncodedArray) -> pa.Array:
    """The value of each row of a run-end encoded array.

    This function exists because Arrow decodes only some value types.
    """
    places = np.arange(len(array)) + array.offset
    runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
    return _taken(_plain(array.values), pa.array(runs))


def _taken(values: pa.Array, indices: pa.Array) -> pa.Array:
    """The values at these positions. Works for views too, which PyArrow's `take` refuses."""
    kind = values.type
    if _t.is_string_view(kind):
        values = values.cast(pa.large_string())
    elif _t.is_binary_view(kind):
        values = values.cast(pa.large_binary())
    elif (_t.is_string(kind) or _t.is_binary(kind)) and _is_wide(values, indices):
        values = values.cast(pa.large_string() if _t.is_string(kind) else pa.large_binary())
    try:
        return values.take(indices)
    except pa.ArrowInvalid as error:
        raise Misfit(TOO_MANY_BYTES) from error


def _is_wide(values: pa.Array, indices: pa.Array) -> bool:
    """Whether the values at these positions may need more bytes than 32-bit offsets can count."""
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    return int(longest) * len(indices) > _INT32_MAX


def _check_not_null(array: pa.Array, alive: pa.Array | None) -> None:
    if not array.null_count:
        return
    missing = array.is_null()
    if alive is not None:
        missing = pc.and_(missing, alive)
    index = pc.index(missing, pa.scalar(True)).as_py()
    if index >= 0:
        raise Misfit("null in a column that is NOT NULL", index)


def _fit_row(array: pa.Array, data_type: Row, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    if not _t.is_struct(array.type):
        raise Misfit("the values are not of the column's type")
    given = [field.name for field in array.type]
    known = [field.name for field in data_type.fields]
    check_names(given, known, inside=f"{place.column}.")
    alive = array.is_valid() if array.null_count else None
    parts = dict(zip(given, array.flatten(), strict=True))
    fitted = [
        fit(
            parts[field.name] if field.name in parts else pa.nulls(len(array)),
            field.type,
            place.inside(field.name),
            alive,
        )
        for field in data_type.fields
    ]
    same = all(parts.get(name) is part for name, part in zip(known, fitted, strict=True))
    if same and array.type == wanted:
        return array
    return struct_array(array, fitted, list(wanted))


def _fit_json(array: pa.Array) -> pa.Array:
    try:
        return variants_of_json(array)
    except ValueError as error:
        rule, *at = error.args
        raise Misfit(f"the text is not JSON: {rule}", *at) from error


def _fit_list(array: pa.Array, data_type: Array, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    if not _is_list(array.type):
        raise Misfit("the values are not of the column's type")
    values = array.flatten()
    fitted = fit(values, data_type.element, place.inside("element", array))
    if isinstance(data_type, Vector):
        _check_vectors(array, data_type)
    if fitted is values and array.type == wanted:
        return array
    return pa.ListArray.from_arrays(
        pa.array(_offsets(array)), fitted, type=wanted, mask=array.is_null()
    )


def _check_vectors(array: pa.Array, data_type: Vector) -> None:
    """Raise Misfit for the first list of another length, or with a null element."""
    wrong = pc.not_equal(pc.list_value_length(array), data_type.length)
    index = pc.index(wrong, pa.scalar(True)).as_py()
    if index >= 0:
        raise Misfit(f"a VECTOR of this type has {data_type.length} elements", index)
    values = array.flatten()
    if values.null_count:
        parents = pc.list_parent_indices(array).filter(values.is_null())
        raise Misfit("an element of a VECTOR is null", parents[0].as_py())


def _fit_map(array: pa.Array, data_type: Map, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    lists = _entry_lists(array)
    entries = lists.flatten()
    if entries.null_count:
        index = pc.index(entries.is_null(), pa.scalar(True)).as_py()
        row = place.inside("key", lists).row(index)
        raise InvalidRequest("an entry of a map is null", column=place.column, row=row)
    keys, values = entries.field("key"), entries.field("value")
    key_type = with_nullable(data_type.key, nullable=False)
    fitted_keys = fit(keys, key_type, place.inside("key", lists))
    fitted_values = fit(values, data_type.value, place.inside("value", lists))
    _check_keys(fitted_keys, place.inside("key", lists))
    if fitted_keys is keys and fitted_values is values and array.type == wanted:
        return array
    return pa.MapArray.from_arrays(
        pa.array(_offsets(lists)), fitted_keys, fitted_values, type=wanted, mask=lists.is_null()
    )


def _check_keys(keys: pa.Array, place: Place) -> None:
    """Raise InvalidRequest for a key that occurs twice in a map."""
    if not len(keys):
        return
    rows = np.searchsorted(_offsets(place.lists), np.arange(len(keys)), side="right")
    repeats = equal_codes([rows, keys]) != np.arange(len(keys))
    if repeats.any():
        index = int(repeats.argmax())
        raise InvalidRequest(
            "a map has the same key twice",
            column=place.column,
            value=show(keys[index]),
            row=place.row(index),
        )


def _entry_lists(array: pa.Array) -> pa.Array:
    """The maps as lists of structs `key`, `value`; a list of such structs is returned unchanged."""
    if _t.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        validity, offsets = array.buffers()[:2]
        return pa.Array.from_buffers(
            pa.list_(entries.type),
            len(array),
            [validity, offsets],
            array.null_count,
            array.offset,
            children=[entries],
        )
    if _is_list(array.type) and _t.is_struct(array.type.value_type):
        parts = [field.name for field in array.type.value_type]
        if sorted(parts) == ["key", "value"]:
            return array
    raise Misfit("the values are not of the column's type: a map, or a list of structs key, value")


def check_names(given: list[str], known: list[str], *, inside: str = "", also: str = "") -> None:
    """Raise InvalidRequest for a name that is unknown or occurs twice.

    `also` is a further valid name that is not a column; it is suggested for misspelt names.
    """
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        raise InvalidRequest(
            "unknown column",
            column=inside + strange,
            **_near(strange, [*known, also]),
            columns=known,
        )
    check_once(given, inside=inside)


def check_once(names: list[str], *, inside: str = "") -> None:
    """Raise InvalidRequest if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest("two columns have the same name", column=inside + twice)


def _near(name: str, known: list[str]) -> dict[str, list[str]]:
    """Known names that resemble the given one."""
    lowered = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=3)
    return {"did_you_mean": [lowered[one] for one in near]} if near else {}


def _is_empty(array: pa.Array) -> bool:
    """Whether the array has only nulls, so that its type is irrelevant."""
    return _t.is_null(array.type) or (
        len(array) > 0 and array.null_count == len(array) and not _t.is_nested(array.type)
    )


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        _t.is_list(arrow)
        or _t.is_large_list(arrow)
        or _t.is_fixed_size_list(arrow)
        or _t.is_list_view(arrow)
        or _t.is_large_list_view(arrow)
    )


def _offsets(lists: pa.Array) -> NDArray[np.int32]:
    """The start of each list in the flattened values, and the end of the last list."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    if ends.size and ends[-1] > _INT32_MAX:
        raise Misfit("a batch holds at most 2 G elements of a column: write smaller batches")
    return np.concatenate([[0], ends]).astype(np.int32)
