"""Data files of lines: CSV, JSON and text."""

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.kinds import FLAG, TEXT, one_of
from lakecore.options.option import APPEND, OTHER, READ, option

_MODE = one_of("permissive", "dropmalformed", "failfast")
_NULL_KEYS = one_of("fail", "drop", "literal")


@dataclass(frozen=True, kw_only=True)
class LineFileOptions:
    """Data files of lines: CSV, JSON and text."""

    # fmt: off
    csv_field_delimiter: str = option(
        "csv.field-delimiter", TEXT, ",", READ, "CSV files: the separator of fields.",
        scope=APPEND, immutable=True,
        fallbacks=("field-delimiter", "delimiter", "seq"),
    )
    csv_line_delimiter: str = option(
        "csv.line-delimiter", TEXT, "\n", READ, "CSV files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    csv_quote_character: str = option(
        "csv.quote-character", TEXT, '"', READ,
        "CSV files: what surrounds a field with special characters.", scope=APPEND, immutable=True,
    )
    csv_escape_character: str = option(
        "csv.escape-character", TEXT, "\\", READ,
        "CSV files: the character before a quote inside quotes.", scope=APPEND, immutable=True,
    )
    csv_include_header: bool = option(
        "csv.include-header", FLAG, False, READ,
        "CSV files: whether the first line names the columns.", scope=APPEND, immutable=True,
    )
    csv_null_literal: str = option(
        "csv.null-literal", TEXT, "", READ, "CSV files: the text for null.",
        scope=APPEND, immutable=True,
    )
    csv_mode: str = option(
        "csv.mode", _MODE, "permissive", OTHER,
        "CSV files: what a reader does with a malformed field.", scope=APPEND,
        no_effect="A malformed field always raises CorruptTable.",
    )
    json_line_delimiter: str = option(
        "json.line-delimiter", TEXT, "\n", READ, "JSON files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    json_ignore_parse_errors: bool = option(
        "json.ignore-parse-errors", FLAG, False, READ,
        "JSON files: leave out lines that are not valid.", scope=APPEND, supported=False,
    )
    json_map_null_key_mode: str = option(
        "json.map-null-key-mode", _NULL_KEYS, "fail", READ,
        "JSON files: what is done with a null key of a map.", scope=APPEND, supported=False,
    )
    json_map_null_key_literal: str = option(
        "json.map-null-key-literal", TEXT, "null", READ,
        "JSON files: what stands for a null key of a map.", scope=APPEND, supported=False,
    )
    text_line_delimiter: str = option(
        "text.line-delimiter", TEXT, "\n", READ, "Text files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    # fmt: on
