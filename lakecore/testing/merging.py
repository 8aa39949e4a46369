"""Merge engines one row at a time: from the rows of a key to one row or none.

lakecore computes column by column over whole windows. This module is a plain loop, to compare with
Paimon's documents (https://paimon.apache.org/docs/master/primary-key-table/merge-engine/overview/)
and Java classes. The module shares no code with `lakecore.merge`, and reads the options of a table
from their strings.

The reference is Paimon 2.1, with these differences:

- If a merge of partial-update begins with a retraction, it starts from nulls. Java starts from the
  values of the retraction and also retracts them, so that a sum counts them twice.
- If all rows of a key are retractions, the result is a retraction: the rows are added to each
  other, and the result is a -U, or a -D if one of the rows removed the record.
- A -U does not restore a record that a -D removed (`partial-update.remove-record-on-delete`). In
  Java, a -U restores the record.
- After a -D that removes the record, the functions start with the values of the -D. Java's
  `first_value` and similar functions still know the earlier values.
- `nested_update` merges and limits the rows of a late list too. If nothing came before a late list,
  Java keeps the list unchanged until the next merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND
from lakecore.testing.aggregates import Aggregator, LastNonNullValue, Refused, aggregator, ordered
from lakecore.testing.values import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakecore.model.schema import TableSchema

KINDS = ("+I", "-U", "+U", "-D")
RETRACTS = ("-U", "-D")


@dataclass(frozen=True, kw_only=True)
class Version:
    """A stored row: its values by column, its kind, and its order among the rows of its key."""

    values: Mapping[str, Any]
    kind: str = "+I"
    number: int = 0
    """The sequence number."""
    commit_order: int = 0


@dataclass(frozen=True, kw_only=True)
class Group:
    """A sequence group of partial-update: columns with an order of their own."""

    order: tuple[str, ...]
    removes: bool = False
    """Whether a -D of the group removes the record."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules for merging, from a table's schema and options, by column name."""

    engine: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    descending: bool = False
    ignored: tuple[str, ...] = ()
    remove_on_delete: bool = False
    groups: Mapping[str, Group] = field(default_factory=dict)
    aggregators: Mapping[str, Aggregator] = field(default_factory=dict)

    @staticmethod
    def of(schema: TableSchema) -> Rules:
        """The rules of a table."""
        options = schema.options
        engine = options.get("merge-engine", "deduplicate")
        ignored: tuple[str, ...] = ("-U", "-D") if options.get("ignore-delete") == "true" else ()
        if options.get("ignore-update-before") == "true" and not ignored:
            ignored = ("-U",)
        sequence = _names(options.get("sequence.field"))
        groups = _groups(options) if engine == "partial-update" else {}
        remove = {
            "partial-update": "partial-update.remove-record-on-delete",
            "aggregation": "aggregation.remove-record-on-delete",
        }.get(engine, "")
        return Rules(
            engine=engine,
            columns=tuple(column.name for column in schema.fields),
            key=tuple(schema.primary_keys),
            sequence=sequence,
            descending=options.get("sequence.field.sort-order") == "descending",
            ignored=ignored,
            remove_on_delete=options.get(remove) == "true",
            groups=groups,
            aggregators=_aggregators(schema, engine, sequence, groups),
        )


class Engine(Protocol):
    """A merge engine while it processes the rows of one key."""

    def add(self, version: Version) -> None: ...

    def result(self) -> Version | None:
        """The merged row; None if no row remains."""
        ...


class Deduplicate:
    """The `deduplicate` engine: the last row."""

    def __init__(self) -> None:
        self.last: Version | None = None

    def add(self, version: Version) -> None:
        self.last = version

    def result(self) -> Version | None:
        return self.last


class FirstRow:
    """The `first-row` engine: the first row."""

    def __init__(self) -> None:
        self.first: Version | None = None

    def add(self, version: Version) -> None:
        self.first = self.first or version

    def result(self) -> Version | None:
        return self.first


class Aggregation:
    """The `aggregation` engine: each column is folded by its function."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.state: dict[str, Any] = dict.fromkeys(rules.columns)
        self.latest: Version | None = None
        self.deleted = False
        for function in rules.aggregators.values():
            function.reset()

    def add(self, version: Version) -> None:
        self.latest = version
        self.deleted = self.rules.remove_on_delete and version.kind == "-D"
        if self.deleted:
            self.state = begun_with(version.values, self.rules)
            return
        for name, function in self.rules.aggregators.items():
            step = function.retract if version.kind in RETRACTS else function.agg
            self.state[name] = step(self.state[name], version.values[name])

    def result(self) -> Version | None:
        assert self.latest is not None
        values = finished(self.state, self.rules)
        return replace(self.latest, values=values, kind="-D" if self.deleted else "+I")


class PartialUpdate:
    """The `partial-update` engine: the newest non-null values, or the order of sequence groups."""

    def __init__(self, rules: Rules, *, only_retracts: bool) -> None:
        self.rules = rules
        self.only_retracts = only_retracts
        self.state: dict[str, Any] = dict.fromkeys(rules.columns)
        self.latest: Version | None = None
        self.deleted = False
        self.was_removed = False
        for function in rules.aggregators.values():
            function.reset()

    def add(self, version: Version) -> None:
        self.latest = version
        takes_back = version.kind in RETRACTS
        for name in self.rules.key:
            self.state[name] = version.values[name]
        if takes_back and not self.rules.groups:
            if not self.rules.remove_on_delete:
                raise Refused("partial-update takes nothing back")
            if version.kind == "-U" and not self.only_retracts:
                return
        self.deleted = version.kind == "-D" and self._is_removed_by(version.values)
        if self.deleted:
            self.was_removed = True
            self.state = begun_with(version.values, self.rules)
        elif takes_back and not self.only_retracts:
            self._retract_by_group(version.values)
        elif self.rules.groups:
            self._add_by_group(version.values)
        else:
            self._add_what_is_not_null(version.values)

    def _is_removed_by(self, row: Mapping[str, Any]) -> bool:
        return self.rules.remove_on_delete or any(
            group.removes and not _is_empty(row, group) and not self._is_older(row, group)
            for group in self.rules.groups.values()
        )

    def _add_what_is_not_null(self, row: Mapping[str, Any]) -> None:
        self.state.update({name: value for name, value in row.items() if value is not None})

    def _add_by_group(self, row: Mapping[str, Any]) -> None:
        done: set[str] = set()
        for name in self.rules.columns:
            group = self.rules.groups.get(name)
            function = self.rules.aggregators.get(name)
            if group is None:
                if function is not None:
                    self.state[name] = function.agg(self.state[name], row[name])
                elif row[name] is not None:
                    self.state[name] = row[name]
            elif name in done or _is_empty(row, group):
                continue
            elif not self._is_older(row, group):
                if name in group.order:
                    self.state.update({each: row[each] for each in group.order})
                    done.update(group.order)
                elif function is None:
                    self.state[name] = row[name]
                else:
                    self.state[name] = function.agg(self.state[name], row[name])
            elif function is not None:
                self.state[name] = function.agg_reversed(self.state[name], row[name])

    def _retract_by_group(self, row: Mapping[str, Any]) -> None:
        done: set[str] = set()
        for name in self.rules.columns:
            group = self.rules.groups.get(name)
            function = self.rules.aggregators.get(name)
            if group is None or name in done or _is_empty(row, group):
                continue
            is_older = self._is_older(row, group)
            if name in group.order and not is_older:
                self.state.update({each: row[each] for each in group.order})
                done.update(group.order)
            elif function is not None:
                self.state[name] = function.retract(self.state[name], row[name])
            elif name not in group.order and not is_older:
                self.state[name] = None

    def _is_older(self, row: Mapping[str, Any], group: Group) -> bool:
        return _order_of(row, group.order) < _order_of(self.state, group.order)

    def result(self) -> Version | None:
        assert self.latest is not None
        kind = "-D" if self.deleted else "+I"
        if self.only_retracts:
            kind = "-D" if self.was_removed else "-U"
        return replace(self.latest, values=finished(self.state, self.rules), kind=kind)


def finished(state: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The values of a record. Raises Refused if a type cannot hold a value."""
    functions = rules.aggregators
    return {
        name: functions[name].finish(value) if name in functions else value
        for name, value in state.items()
    }


def begun_with(row: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The state of a record that starts again with a row."""
    state = dict(row)
    for name, function in rules.aggregators.items():
        function.reset()
        state[name] = function.agg(None, row[name])
    return state


def merge(
    versions: Iterable[Version], rules: Rules, *, keep_deletions: bool = False
) -> list[Version]:
    """At most one row for each key, in key order. The only row of a key is not merged."""
    found = []
    for rows in _by_key(versions, rules):
        merged = merge_key(rows, rules)
        if merged is not None and (keep_deletions or merged.kind not in RETRACTS):
            found.append(merged)
    return found


def flush(versions: Iterable[Version], rules: Rules) -> list[Version]:
    """The rows that a write stores: one for each key, or several if one would lose values."""
    return [
        merged
        for rows in _by_key(versions, rules)
        for part in _parts(in_merge_order(rows, rules), rules)
        if (merged := merge_key(part, rules)) is not None
    ]


def _parts(rows: Sequence[Version], rules: Rules) -> list[list[Version]]:
    """The rows of a key in parts; the merged row of each part can stand for the part."""
    rows = [row for row in rows if row.kind not in rules.ignored]
    backs = [row.kind in RETRACTS for row in rows]
    if not rules.aggregators and not rules.groups and not rules.remove_on_delete:
        return [rows]
    deletes = [at for at, row in enumerate(rows) if row.kind == "-D"]
    alone: set[int] = set()
    for name, function in rules.aggregators.items():
        column = [(back, row.values[name]) for back, row in zip(backs, rows, strict=True)]
        alone |= function.unfolded(column)
        if rules.engine == "partial-update" and isinstance(function, LastNonNullValue):
            alone |= Aggregator.unfolded(function, column)
    if rules.engine == "partial-update" and all(backs):
        alone = set()
    elif any(group.removes for group in rules.groups.values()):
        alone |= {*deletes}
    if rules.remove_on_delete and deletes:
        alone = {at for at in alone if at > deletes[-1]} | {deletes[-1]} - {len(rows) - 1}
    parts: list[list[Version]] = []
    for at, row in enumerate(rows):
        if rules.remove_on_delete and alone and at < max(deletes, default=0):
            continue
        if not parts or at in alone or at - 1 in alone:
            parts.append([])
        parts[-1].append(row)
    if rules.engine == "aggregation" and rules.sequence:
        return [part for each in parts for part in _ending_with_additions(each)]
    return parts


def _ending_with_additions(rows: Sequence[Version]) -> list[list[Version]]:
    """The rows up to the last addition, and the retractions after it one by one.

    Merged with the other rows, such retractions would leave the record without a sequence.
    """
    end = max((at + 1 for at, row in enumerate(rows) if row.kind not in RETRACTS), default=0)
    return [*([[*rows[:end]]] if end else []), *([row] for row in rows[end:])]


def merge_key(rows: Sequence[Version], rules: Rules) -> Version | None:
    """The merged row of one key, of any kind."""
    rows = [row for row in in_merge_order(rows, rules) if row.kind not in rules.ignored]
    is_taken_back = [row.kind in RETRACTS for row in rows]
    if len(rows) <= 1:
        return rows[0] if rows else None
    if rules.engine == "first-row" and any(is_taken_back):
        raise Refused("first-row takes nothing back")
    engine = engine_of(rules, only_retracts=all(is_taken_back))
    for row in rows:
        engine.add(row)
    return engine.result()


def engine_of(rules: Rules, *, only_retracts: bool) -> Engine:
    """A new engine for the rows of one key."""
    match rules.engine:
        case "deduplicate":
            return Deduplicate()
        case "first-row":
            return FirstRow()
        case "aggregation":
            return Aggregation(rules)
    return PartialUpdate(rules, only_retracts=only_retracts)


def in_merge_order(rows: Iterable[Version], rules: Rules) -> list[Version]:
    """Rows of a key by their sequence fields, then their numbers, then the order of commit."""
    by_arrival = sorted(rows, key=lambda row: (row.number, row.commit_order))
    for name in reversed(rules.sequence):
        nulls = [row for row in by_arrival if row.values[name] is None]
        others = [row for row in by_arrival if row.values[name] is not None]
        # A sort keeps the order of arrival among equal rows, in either direction.
        others.sort(key=lambda row: ordered(row.values[name]), reverse=rules.descending)
        by_arrival = nulls + others
    return by_arrival


def versions_of(rows: pa.Table, commit_order: int = 0) -> list[Version]:
    """The rows of an Arrow table; kinds and sequence numbers are read if the table has them."""
    found = []
    for row in rows.to_pylist():
        number = row.pop(SEQUENCE_NUMBER, 0)
        kind = KINDS[row.pop(VALUE_KIND, 0)]
        found.append(Version(values=row, kind=kind, number=number, commit_order=commit_order))
    return found


def _is_empty(row: Mapping[str, Any], group: Group) -> bool:
    """Whether all sequence columns of the group are null in the row."""
    return all(row[name] is None for name in group.order)


def key_of(row: Mapping[str, Any], rules: Rules) -> tuple[Any, ...]:
    """The key of a row, as tuples that sort as keys do."""
    return _order_of(row, rules.key)


def _by_key(versions: Iterable[Version], rules: Rules) -> list[list[Version]]:
    keys: dict[Any, list[Version]] = {}
    for row in versions:
        keys.setdefault(tuple(plain(row.values[name]) for name in rules.key), []).append(row)
    return sorted(keys.values(), key=lambda rows: key_of(rows[0].values, rules))


def _order_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The sort key of the fields, one after another; null is below every value."""
    return tuple((False, 0) if row[n] is None else (True, ordered(row[n])) for n in names)


def _groups(options: Mapping[str, str]) -> dict[str, Group]:
    """The group of each column that has one."""
    removing = _names(options.get("partial-update.remove-record-on-sequence-group"))
    groups: dict[str, Group] = {}
    for option, value in options.items():
        if option.startswith("fields.") and option.endswith(".sequence-group"):
            order = _names(option.removeprefix("fields.").removesuffix(".sequence-group"))
            group = Group(order=order, removes=any(name in removing for name in order))
            groups |= dict.fromkeys((*order, *_names(value)), group)
    return groups


def _aggregators(
    schema: TableSchema, engine: str, sequence: Sequence[str], groups: Mapping[str, Group]
) -> dict[str, Aggregator]:
    if engine not in ("partial-update", "aggregation"):
        return {}
    options = schema.options
    default = options.get("fields.default-aggregate-function")
    ordering = {name for group in groups.values() for name in group.order}
    found = {}
    for column in schema.fields:
        name = options.get(f"fields.{column.name}.aggregate-function", default)
        if column.name in schema.primary_keys:
            name = "primary-key"
        elif engine == "aggregation":
            name = "last_value" if column.name in sequence else name or "last_non_null_value"
        elif column.name in ordering:
            name = None
        if name is not None:
            prefix = f"fields.{column.name}."
            own = {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)}
            found[column.name] = aggregator(name, column.type, own)
    return found


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()
