"""SQL that another engine runs on tables: the parser, and the execution of statements as verbs."""

from __future__ import annotations

from lakecore.session import engine_over
from lakecore.sql.parse import parse
from lakecore.sql.run_rows import merge_into, names_of_insert
from lakecore.sql.statements import (
    Analyze,
    Call,
    CreateTable,
    Delete,
    Describe,
    Insert,
    Merge,
    Query,
    Show,
    Statement,
    TableStatement,
    Truncate,
    Update,
)
from lakecore.sql.tokens import Kind, Token, split, tokenize

__all__ = [
    "Analyze",
    "Call",
    "CreateTable",
    "Delete",
    "Describe",
    "Insert",
    "Kind",
    "Merge",
    "Query",
    "Show",
    "Statement",
    "TableStatement",
    "Token",
    "Truncate",
    "Update",
    "engine_over",
    "merge_into",
    "names_of_insert",
    "parse",
    "split",
    "tokenize",
]
