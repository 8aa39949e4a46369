"""Parses the name of a table in a catalog: database, table, branch and system table.

The syntax is Paimon's (https://paimon.apache.org/docs/master/concepts/system-tables/):

1. `DATABASE.TABLE`: the first dot separates the two; a table's name may contain more dots.
2. `$` separates the table from a suffix: `t$files` is a system table, `t$branch_b1` is the branch
   `b1`, and `t$branch_b1$files` is a system table of that branch.
3. Database and table may be quoted with backquotes, as in SQL: `` `shop`.`orders$files` ``. Within
   backquotes, a doubled backquote stands for one backquote.

INVARIANT: a name that passes `check_name` is one directory below its parent, on every storage.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from lakecore.errors import InvalidRequest

BRANCH_MARK = "branch_"
MAIN_BRANCH = "main"
SYSTEM_DATABASE = "sys"
NAME_BYTES_MAX = 250
"""File names have at most 255 bytes, and the directory of a database ends in `.db`."""

SPLITTER = "$"
QUOTE = "`"
_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]*)")
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")
_EXAMPLE = "write it as database.table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier:
    """A table of a catalog, a branch of it, or a system table of either."""

    database: str
    table: str
    branch: str = MAIN_BRANCH
    system: str | None = None

    @property
    def data_table(self) -> Identifier:
        """The table or branch itself, for the name of a system table too."""
        return Identifier(database=self.database, table=self.table, branch=self.branch)

    def __str__(self) -> str:
        branch = "" if self.branch == MAIN_BRANCH else f"{SPLITTER}{BRANCH_MARK}{self.branch}"
        system = "" if self.system is None else f"{SPLITTER}{self.system}"
        database = f"`{self.database}`" if "." in self.database else self.database
        return f"{database}.{self.table}{branch}{system}"


def quoted_name(database: str, table: str) -> str:
    """The name of a table by which `Catalog.get_table` finds it, whatever characters it has."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in (database, table))


def parse_identifier(text: str) -> Identifier:
    """Parse a name such as `db.t$branch_b1$files`. Raises InvalidRequest if it is malformed.

    Does not check whether such a table exists or can exist.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"the name of a table is a string; {_EXAMPLE}", name=text)
    database, table_text = _split_database(text)
    table, *rest = table_text.split(SPLITTER)
    branch, system = MAIN_BRANCH, None
    if rest and rest[0].startswith(BRANCH_MARK):
        branch = rest.pop(0).removeprefix(BRANCH_MARK)
    if rest:
        system = rest.pop(0)
    if rest:
        raise InvalidRequest(
            "too many `$` in the name of a table; only table$branch_NAME$SYSTEM has two", name=text
        )
    for part in (database, table, branch, system):
        if part is not None and not part.strip():
            raise InvalidRequest(f"a part of the table's name is blank; {_EXAMPLE}", name=text)
    for what, part in (("database", database), ("table", table), ("branch", branch)):
        check_directory(what, part)
    return Identifier(
        database=database, table=table, branch=branch, system=system and system.lower()
    )


def check_name(what: str, name: str) -> None:
    """Raise InvalidRequest unless a new database or table (`what`) may have that name."""
    check_directory(what, name)
    for character in (SPLITTER, QUOTE) + ((".",) if what == "database" else ()):
        if character in name:
            why = "it separates the table from its system table" if character == SPLITTER else ""
            raise InvalidRequest(
                f"the name of a {what} must not hold {character!r}" + (f": {why}" if why else ""),
                name=name,
            )
    if name != name.strip():
        raise InvalidRequest(f"the name of a {what} begins or ends with a blank", name=name)
    if what == "database" and name == SYSTEM_DATABASE:
        raise InvalidRequest("the name is taken by Paimon's global system tables", name=name)
    size_bytes = len(name.encode())
    if size_bytes > NAME_BYTES_MAX:
        raise InvalidRequest(
            f"the name of a {what} is too long", name=name, bytes=size_bytes, most=NAME_BYTES_MAX
        )


def _split_database(text: str) -> tuple[str, str]:
    first = _PART.match(text)
    assert first is not None, "the pattern matches the empty text"
    quoted, bare = first.groups()
    database = bare if quoted is None else quoted.replace("``", "`")
    if text[first.end() : first.end() + 1] != ".":
        why = "an unclosed or stray backquote" if "`" in text else "no database"
        raise InvalidRequest(f"{why} in the name of a table; {_EXAMPLE}", name=text)
    table = text[first.end() + 1 :]
    if "`" in table:
        second = _PART.fullmatch(table)
        if second is None or second[1] is None:
            raise InvalidRequest(
                f"an unclosed or stray backquote in the name of a table; {_EXAMPLE}", name=text
            )
        table = second[1].replace("``", "`")
    return database, table


def may_be_named(name: str) -> bool:
    """Whether `check_directory` accepts the name: a catalog lists no others."""
    with suppress(InvalidRequest):
        check_directory("directory", name)
        return True
    return False


def check_directory(what: str, name: str) -> None:
    """Raise InvalidRequest if the name could escape its directory, or would be hidden in it."""
    if not isinstance(name, str):
        raise InvalidRequest(f"the name of a {what} is a text", name=name)
    if not name.strip():
        raise InvalidRequest(f"the name of a {what} is blank", name=name)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the name of a {what} is not Unicode text", name=repr(name)
        ) from error
    found = _UNSAFE.search(name)
    if found is not None:
        raise InvalidRequest(f"the name of a {what} must not hold {found[0]!r}", name=name)
    if name.startswith("."):
        raise InvalidRequest(
            f"the name of a {what} must not begin with a dot: such files are hidden", name=name
        )
