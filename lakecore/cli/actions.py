"""`lakecore action`: runs the arguments of the Flink action jar as a CALL or a DELETE.

1. Read the flags: `--flag value` or `--flag=value`; `-` and `_` are the same in names.
2. Check them against the table of actions.
3. Run the procedure in a session on the warehouse, with the database as the current one.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import parse_identifier
from lakecore.cdc.pipeline import SYNC_ACTIONS
from lakecore.cli.action_table import ACTIONS, ELSEWHERE, FLINK, REPEATED, Action
from lakecore.cli.arguments import Format
from lakecore.cli.cdc import sync
from lakecore.cli.flags import Flags, read_flags
from lakecore.cli.printing import say
from lakecore.cli.settings import stated
from lakecore.cli.sql_rows import print_rows
from lakecore.cli.target import place_of, session_of
from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.session import Session, sql_engine
from lakecore.sql.procedures.registry import UNSUPPORTED
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_OF_OUTPUT = ("output", "json", "csv")
_CLAUSES = {
    "matched_upsert": ("matched_upsert_set", "matched_upsert_condition"),
    "not_matched_by_source_upsert": (
        "not_matched_by_source_upsert_set",
        "not_matched_by_source_upsert_condition",
    ),
    "matched_delete": (None, "matched_delete_condition"),
    "not_matched_by_source_delete": (None, "not_matched_by_source_delete_condition"),
    "not_matched_insert": ("not_matched_insert_values", "not_matched_insert_condition"),
}
"""By action of merge_into: the flag with its values (None if it has none), and that with its
condition."""
_FOR_FLINK_ONLY = "force_start_flink_job"


def run_action(arguments: Sequence[str]) -> None:
    """Run the action that the arguments state, and print the rows of its procedure."""
    name = arguments[0].lower().replace("-", "_")
    if name in SYNC_ACTIONS:
        sync(arguments)
        return
    found = ACTIONS.get(name)
    if found is None:
        reason = {**UNSUPPORTED, **ELSEWHERE}.get(name)
        if reason is not None:
            raise Unsupported("this action is not supported", action=name, reason=reason)
        near = get_close_matches(name, (*ACTIONS, *SYNC_ACTIONS), 1)
        raise NotFound(
            "no action of that name; `lakecore action` lists them",
            action=arguments[0],
            **({"did_you_mean": near[0]} if near else {}),
        )
    if {"-h", "--help"} & set(arguments[1:]):
        say(_usage(name, found))
        return
    flags = read_flags(
        Flags(
            action=name,
            known=(*found.known, *_OF_OUTPUT),
            repeated=REPEATED,
            switches=(*found.switches, "json", "csv"),
            unsupported={_FOR_FLINK_ONLY: "lakecore does the work itself, without Flink"},
        ),
        arguments[1:],
    )
    _check(name, found, flags)
    form = _form(flags)
    session, table = _place(found, flags)
    if table is not None:
        database = parse_identifier(table).database
        session.sql(f"USE {quoted(database)}")
    if name == "delete":
        _delete(session, table or "", flags, form)
        return
    given = _arguments(name, found, flags)
    if found.table is not None and table is not None:
        given = {found.table: table, **given}
    listed = ", ".join(f"{quoted(key)} => {quoted_text(text)}" for key, text in given.items())
    print_rows(sql_engine(session), f"CALL sys.{found.procedure}({listed})", form, None)


def _usage(name: str, found: Action) -> str:
    lines = [f"Usage: lakecore action {name} [--FLAG VALUE]...", "", "Flags:"]
    for flag in found.known:
        needed = flag in found.required
        facts = [
            *(["required"] if needed else []),
            *(["may be repeated"] if flag in REPEATED else []),
            *(["refused: it is about Flink"] if found.flags.get(flag) == FLINK else []),
        ]
        lines.append(f"  --{flag}" + (f"  ({', '.join(facts)})" if facts else ""))
    lines += ["  --output table|json|csv|parquet, --json, --csv", ""]
    where = "--path, or --database and --table, name the table. " if found.table else ""
    return "\n".join(lines) + where + "--warehouse may be left to LAKECORE_WAREHOUSE or a profile."


# --- flags ----------------------------------------------------------------------------------------


def _check(name: str, found: Action, flags: Mapping[str, list[str]]) -> None:
    for flag, argument in found.flags.items():
        if argument == FLINK and flag in flags:
            raise Unsupported(
                "the flag says how Flink runs the job; lakecore has no such setting",
                action=name,
                flag=f"--{flag}",
            )
    missing = [f"--{flag}" for flag in found.required if flag not in flags]
    if missing:
        raise InvalidRequest("the action needs these flags", action=name, missing=missing)


def _form(flags: Mapping[str, list[str]]) -> Format:
    if "json" in flags or "csv" in flags:
        return Format.JSON if "json" in flags else Format.CSV
    text = flags.get("output", [Format.TABLE.value])[0]
    try:
        return Format(text)
    except ValueError:
        raise InvalidRequest(
            "unknown output", output=text, known=[each.value for each in Format]
        ) from None


def _place(found: Action, flags: Mapping[str, list[str]]) -> tuple[Session, str | None]:
    """The session, and the table: `db.t`, or `db.*` for all tables of a database."""
    options = flags.get("catalog_conf")
    stated(options, "--catalog_conf")
    (warehouse,) = flags.get("warehouse", [None])
    if found.table is None:
        return session_of(None, warehouse, options), None
    (path,), (database,), (table,) = (
        flags.get(name, [None]) for name in ("path", "database", "table")
    )
    if path is not None:
        if warehouse or database or table:
            raise InvalidRequest("give --path, or --warehouse, --database and --table", path=path)
        if "/" not in path:
            path = f"./{path}"
        session, identifier, _ = place_of(path, None, options)
        return session, identifier
    if database is None or (table is None and found.procedure != "remove_orphan_files"):
        raise InvalidRequest("name the table: --path, or --database and --table")
    name = f"`{database}`" if "." in database else database
    return session_of(None, warehouse, options), f"{name}.{table or '*'}"


# --- statements -----------------------------------------------------------------------------------


def _delete(session: Session, table: str, flags: Mapping[str, list[str]], form: Format) -> None:
    for statement in flags.get("source_sql", ()):
        session.sql(statement)
    named = parse_identifier(table)
    target = f"{quoted(named.database)}.{quoted(named.table)}"
    condition = flags["where"][0]
    text = f"DELETE FROM {target} WHERE {condition}"  # noqa: S608 - SQL is what the flag takes
    print_rows(sql_engine(session), text, form, None)


def _arguments(name: str, found: Action, flags: Mapping[str, list[str]]) -> dict[str, str]:
    """The arguments of the procedure."""
    given: dict[str, str] = {}
    for flag, argument in found.flags.items():
        if flag not in flags:
            continue
        joined = {"partition": ";", "source_sql": ";\n", "table_conf": ","}.get(flag, "")
        given[argument] = joined.join(flags[flag])
    if name == "merge_into":
        return _merge_arguments(given, flags)
    return given


def _merge_arguments(given: dict[str, str], flags: Mapping[str, list[str]]) -> dict[str, str]:
    """The arguments of merge_into. `merge_actions` says which of its clauses are used."""
    chosen = [each.strip().replace("-", "_") for each in given.pop("merge_actions").split(",")]
    for each in chosen:
        if each not in _CLAUSES:
            raise InvalidRequest(
                "unknown merge action",
                merge_action=each,
                known=[clause.replace("_", "-") for clause in _CLAUSES],
            )
    arguments = ACTIONS["merge_into"].flags
    for clause, (values, condition) in _CLAUSES.items():
        if clause in chosen:
            if values is not None and values not in flags:
                raise InvalidRequest(
                    "the merge action needs this flag", merge_action=clause, missing=f"--{values}"
                )
            if values is None and condition not in flags:
                given[arguments[condition]] = "true"
            continue
        for flag in (values, condition):
            if flag in flags:
                raise InvalidRequest(
                    "the flag is for a merge action that --merge_actions does not list",
                    flag=f"--{flag}",
                    merge_action=clause.replace("_", "-"),
                )
    return given
