"""Functions over lists of rows (a table inside a column): nested_update, nested_partial_update.

The rows of all groups are concatenated, and rows with the same nested key are brought together.

- Without a limit, each key is independent. After its last retraction, its last row remains, or the
  last of those with the greatest nested sequence.
- `count-limit` accepts only the first keys of a list (or, without a nested key, the first rows).
  Without retractions this needs only the rank of each key in its group.
- With a limit, a retraction makes room for another key, so the result depends on the order of
  additions and retractions. Such a column is folded in turns: a turn is the additions of each group
  up to its next retraction.

Null rows are ignored. The result holds the keys in the order of their first row; Paimon does not
define an order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.aggregators.elements import Elements, alike, elements_of, equal_codes, lists
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.groups import NONE, Groups, groups_of, is_valid, pick
from lakecore.merge.keys import sequence_codes
from lakecore.model.types import Array, Atomic, Row

_NULL_KEYS = ("merge", "ignore", "error")


def nested_update(aggregate: Aggregate) -> Fold:
    """The newest row of each nested key in all lists; without a nested key, all rows.

    Retracting a list removes its keys, or, without a nested key, every row that equals one of its
    rows. Null if every added list was null.
    """
    rule = _rule(aggregate)

    def fold(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        valid = is_valid(values)
        elements, rows = _rows(elements_of(values, groups), rule)
        taken = None if retract is None else retract[elements.rows]
        held = groups.any(valid if retract is None else valid & ~retract)
        entries = _entries(elements, rows, rule, compared=bool(rule.key) or taken is not None)
        if taken is None:
            kept = entries.admit(np.arange(elements.count))
        elif rule.limit is None:
            kept = entries.outlast(taken)
        else:
            kept = entries.take_turns(taken)
        return elements.of_groups(kept, held)

    def beyond_limit(values: pa.Array, groups: Groups) -> np.ndarray:
        """The lists of groups that reach the limit: a row beyond it may update an older key."""
        elements, _ = _rows(elements_of(values, groups), rule)
        counts = np.bincount(elements.groups, minlength=groups.count)
        full: np.ndarray = np.repeat(counts > (rule.limit or 0), groups.sizes)
        return full

    limited = bool(rule.key) and rule.limit is not None
    return Fold(
        fold=fold,
        retracts=True,
        keeps_added=beyond_limit if limited else None,
        changes_single=True,
    )


def nested_partial_update(aggregate: Aggregate) -> Fold:
    """One row for each nested key of all lists, with the last non-null value of each field.

    Null if every list was null.
    """
    rule = _rule(aggregate)
    if not rule.key:
        raise InvalidRequest(
            "the function needs a nested key",
            column=aggregate.column,
            function=aggregate.function,
            option=f"fields.{aggregate.column}.nested-key",
        )

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        elements, rows = _rows(elements_of(values, groups), rule)
        same = alike(_key_codes(elements, rows, rule))
        appeared = same.order[same.runs.starts]
        by_age = np.argsort(appeared)
        children = []
        for field in rows.flatten():
            last = same.runs.last(is_valid(field)[same.order])[by_age]
            children.append(pick(field, np.where(last == NONE, NONE, same.order[last])))
        merged = pa.StructArray.from_arrays(children, fields=list(rows.type))
        counts = np.bincount(elements.groups[appeared], minlength=groups.count)
        return lists(values.type, counts, groups.any(is_valid(values)), [merged])

    return Fold(fold=fold, changes_single=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """The rule for merging the rows of a column, with the positions of key and sequence fields."""

    column: str
    key: tuple[int, ...]
    sequence: tuple[int, ...]
    null_keys: str
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The rows of all groups, in order, represented by numbers.

    Two rows have the same code if they have the same group and key (without a key: if they are
    equal). `sequence` increases with the nested sequence. All positions, given and returned, are
    sorted by group.
    """

    groups: np.ndarray
    codes: np.ndarray
    sequence: np.ndarray | None
    keyed: bool
    limit: int | None

    def admit(self, at: np.ndarray) -> np.ndarray:
        """The positions that remain if these rows are added one after another."""
        if not self.keyed:
            first: np.ndarray = at[_places(self.groups[at]) < (self.limit or 0)]
            return at if self.limit is None else first
        same = alike(self.codes[at])
        chosen = self._newest(at, same.order, same.runs, np.ones(len(at), bool))
        appeared = same.order[same.runs.starts]
        by_age = np.argsort(appeared)
        kept: np.ndarray = at[same.order[chosen[by_age]]]
        if self.limit is not None:
            kept = kept[_places(self.groups[kept]) < self.limit]
        return kept

    def outlast(self, taken: np.ndarray) -> np.ndarray:
        """For a column without a count limit: the positions of the rows that remain at the end.

        `taken` marks the retractions; each removes the earlier rows with the same code.
        """
        same = alike(self.codes)
        place = np.arange(len(self.codes))
        since = same.runs.last(taken[same.order])[same.runs.numbers]
        newer = place > since
        if not self.keyed:
            return np.sort(same.order[newer])
        appeared = same.runs.first(newer)
        left = appeared != NONE
        chosen = self._newest(place, same.order, same.runs, newer)[left]
        by_age = np.argsort(same.order[appeared[left]])
        kept: np.ndarray = same.order[chosen][by_age]
        return kept

    def take_turns(self, taken: np.ndarray) -> np.ndarray:
        """For a column with a count limit: the positions of the rows that remain at the end.

        `taken` marks the retractions. In each group, stretches of additions and of retractions
        alternate; they are applied in turn.
        """
        turns = _turns(self.groups, taken)
        order = np.argsort(turns, kind="stable")
        kept = np.empty(0, np.int64)
        for now in np.split(order, np.cumsum(np.bincount(turns))[:-1]):
            added, back = now[~taken[now]], now[taken[now]]
            kept = kept[~np.isin(self.codes[kept], self.codes[back])]
            growing = np.isin(self.groups[kept], self.groups[added])
            grown = self.admit(self._by_group(kept[growing], added))
            kept = self._by_group(kept[~growing], grown)
        return kept

    def _by_group(self, *parts: np.ndarray) -> np.ndarray:
        at = np.concatenate(parts)
        grouped: np.ndarray = at[np.argsort(self.groups[at], kind="stable")]
        return grouped

    def _newest(
        self, at: np.ndarray, order: np.ndarray, runs: Groups, counts: np.ndarray
    ) -> np.ndarray:
        """For each run, the position of its last counted row with the greatest sequence."""
        if self.sequence is None or not runs.count:
            return runs.last(counts)
        sequence = np.where(counts, self.sequence[at][order], NONE)
        greatest = np.maximum.reduceat(sequence, runs.starts)
        return runs.last(counts & (sequence == greatest[runs.numbers]))


def _rows(elements: Elements, rule: _Rule) -> tuple[Elements, pa.Array]:
    """The non-null elements and their rows, according to `nested-key-null-strategy`."""
    rows = elements.child()
    counts = is_valid(rows)
    if rule.null_keys != "merge":
        fields = [is_valid(rows.field(place)) for place in rule.key]
        whole = np.logical_and.reduce([np.ones(len(rows), bool), *fields])
        if rule.null_keys == "error" and bool((counts & ~whole).any()):
            raise InvalidRequest(
                "a nested key is null",
                column=rule.column,
                nested_key=[rows.type.field(place).name for place in rule.key],
                option=f"fields.{rule.column}.nested-key-null-strategy",
            )
        counts &= whole
    if counts.all():
        return elements, rows
    return elements.only(counts), rows.filter(pa.array(counts))


def _key_codes(elements: Elements, rows: pa.Array, rule: _Rule) -> np.ndarray:
    parts = [rows.field(place) for place in rule.key] if rule.key else [rows]
    return equal_codes([elements.groups, *parts])


def _entries(elements: Elements, rows: pa.Array, rule: _Rule, *, compared: bool) -> _Entries:
    sequence = None
    if rule.sequence:
        fields = [pa.chunked_array([rows.field(place)]) for place in rule.sequence]
        sequence = sequence_codes(fields, descending=False)
    return _Entries(
        groups=elements.groups,
        codes=_key_codes(elements, rows, rule) if compared else np.arange(elements.count),
        sequence=sequence,
        keyed=bool(rule.key),
        limit=rule.limit,
    )


def _places(numbers: np.ndarray) -> np.ndarray:
    """The rank of each row in its group: 0, 1, ..."""
    groups = groups_of(numbers)
    places: np.ndarray = np.arange(len(numbers)) - np.repeat(groups.starts, groups.sizes)
    return places


def _turns(numbers: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """For each row, how often its group switched between adding and retracting before it."""
    changed = np.zeros(len(taken), np.int64)
    changed[1:] = taken[1:] != taken[:-1]
    groups = groups_of(numbers)
    changed[groups.starts] = 0
    upto = np.cumsum(changed)
    turns: np.ndarray = upto - np.repeat(upto[groups.starts], groups.sizes)
    return turns


def _rule(aggregate: Aggregate) -> _Rule:
    """The options of the column, checked."""
    column = aggregate.column
    kind = aggregate.type
    if not isinstance(kind, Array) or not isinstance(kind.element, Row):
        raise InvalidRequest(
            "the function needs an ARRAY of ROW",
            column=column,
            function=aggregate.function,
            type=kind,
        )
    strategy = aggregate.nested_key_null_strategy
    for option, is_set in (
        ("nested-key-null-strategy", strategy is not None),
        ("nested-sequence-field", bool(aggregate.nested_sequence_field)),
    ):
        if is_set and not aggregate.nested_key:
            raise InvalidRequest(
                "the option needs a nested key",
                option=f"fields.{column}.{option}",
                needs=f"fields.{column}.nested-key",
            )
    null_keys = "merge" if strategy is None else strategy.lower()
    if null_keys not in _NULL_KEYS:
        raise InvalidRequest(
            "unknown strategy for nulls in a nested key",
            option=f"fields.{column}.nested-key-null-strategy",
            value=strategy,
            allowed=_NULL_KEYS,
        )
    sequence = _field_places(
        kind.element, aggregate.nested_sequence_field, column, "sequence-field"
    )
    for place in sequence:
        field = kind.element.fields[place]
        if not isinstance(field.type, Atomic):
            raise Unsupported(
                "a nested sequence field must not be of a nested type",
                column=column,
                field=field.name,
                type=field.type,
            )
    return _Rule(
        column=column,
        key=_field_places(kind.element, aggregate.nested_key, column, "key"),
        sequence=sequence,
        null_keys=null_keys,
        limit=aggregate.count_limit,
    )


def _field_places(row: Row, names: tuple[str, ...], column: str, option: str) -> tuple[int, ...]:
    known = [field.name for field in row.fields]
    for name in names:
        if name not in known:
            raise InvalidRequest(
                "the option names a field that does not exist",
                option=f"fields.{column}.nested-{option}",
                value=name,
                fields=known,
            )
    return tuple(known.index(name) for name in names)
