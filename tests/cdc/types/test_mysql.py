from __future__ import annotations

import pytest

from lakecore.cdc.types.mapping import TypeMapping
from lakecore.cdc.types.mysql import MySqlType, mysql_type, parse_mysql_type
from lakecore.errors import InvalidRequest, Unsupported


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("bit", "BOOLEAN"),
        ("bit(1)", "BOOLEAN"),
        ("bit(9)", "BINARY(2)"),
        ("bit(64)", "BINARY(8)"),
        ("bool", "BOOLEAN"),
        ("BOOLEAN", "BOOLEAN"),
        ("tinyint(1)", "BOOLEAN"),
        ("tinyint", "TINYINT"),
        ("tinyint(4)", "TINYINT"),
        ("tinyint(1) unsigned", "SMALLINT"),
        ("tinyint(3) unsigned zerofill", "SMALLINT"),
        ("smallint(6)", "SMALLINT"),
        ("smallint unsigned", "INT"),
        ("mediumint(9)", "INT"),
        ("mediumint unsigned", "BIGINT"),
        ("int", "INT"),
        ("integer", "INT"),
        ("int(10) unsigned", "BIGINT"),
        ("INTEGER UNSIGNED ZEROFILL", "BIGINT"),
        ("bigint(20)", "BIGINT"),
        ("bigint(20) unsigned", "DECIMAL(20, 0)"),
        ("serial", "DECIMAL(20, 0)"),
        ("year(4)", "INT"),
        ("float", "FLOAT"),
        ("float(7,3) unsigned", "FLOAT"),
        ("real", "DOUBLE"),
        ("double unsigned", "DOUBLE"),
        ("double precision unsigned zerofill", "DOUBLE"),
        ("decimal(10,2)", "DECIMAL(10, 2)"),
        ("decimal(10)", "DECIMAL(10, 0)"),
        ("numeric( 38 , 10 ) unsigned", "DECIMAL(38, 10)"),
        ("fixed(39,3)", "STRING"),
        ("decimal", "DECIMAL(38, 18)"),
        ("date", "DATE"),
        ("time", "TIME(3)"),
        ("time(2)", "TIME(3)"),
        ("time(6)", "TIME(3)"),
        ("datetime", "TIMESTAMP(0)"),
        ("datetime(3)", "TIMESTAMP(3)"),
        ("timestamp(6)", "TIMESTAMP(6)"),
        ("timestamp(19)", "TIMESTAMP(0)"),
        ("timestamp(26)", "TIMESTAMP(6)"),
        ("char(10)", "CHAR(10)"),
        ("char", "STRING"),
        ("varchar(255)", "VARCHAR(255)"),
        ("text", "STRING"),
        ("tinytext", "STRING"),
        ("mediumtext", "STRING"),
        ("longtext", "STRING"),
        ("json", "STRING"),
        ("enum('a','b')", "STRING"),
        ("set('a','b')", "ARRAY<STRING>"),
        ("binary(16)", "VARBINARY(16)"),
        ("varbinary(200)", "VARBINARY(200)"),
        ("binary", "BYTES"),
        ("blob", "BYTES"),
        ("longblob", "BYTES"),
        ("point", "STRING"),
        ("geometrycollection", "STRING"),
        ("uuid", "STRING"),
        ("LONG", "BIGINT"),
        ("STRING", "STRING"),
    ],
)
def test_a_definition_has_its_type(definition: str, expected: str) -> None:
    assert str(mysql_type(definition)) == expected


@pytest.mark.parametrize(
    ("options", "definition", "expected"),
    [
        ("tinyint1-not-bool", "tinyint(1)", "TINYINT"),
        ("tinyint1-not-bool", "bool", "BOOLEAN"),
        ("to-string", "decimal(10,2)", "STRING"),
        ("to-string", "set('a')", "STRING"),
        ("char-to-string", "char(10)", "STRING"),
        ("char-to-string", "varchar(10)", "STRING"),
        ("longtext-to-bytes", "longtext", "BYTES"),
        ("longtext-to-bytes", "text", "STRING"),
        ("bigint-unsigned-to-bigint", "bigint unsigned", "BIGINT"),
        ("bigint-unsigned-to-bigint", "int unsigned", "BIGINT"),
        ("BIGINT_UNSIGNED_TO_BIGINT, char-to-string", "serial", "BIGINT"),
    ],
)
def test_an_option_changes_a_type(options: str, definition: str, expected: str) -> None:
    assert str(mysql_type(definition, TypeMapping.parse(options))) == expected


def test_values_of_an_enum_keep_quotes_and_commas() -> None:
    parsed = parse_mysql_type("enum('a','it''s','x,y','')")

    assert parsed == MySqlType("ENUM", values=("a", "it's", "x,y", ""))


@pytest.mark.parametrize("definition", ["", "int(", "int(x)", "42"])
def test_other_text_is_no_type(definition: str) -> None:
    with pytest.raises(InvalidRequest, match="not a type of MySQL"):
        mysql_type(definition)


def test_an_unknown_type_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="type=VECTOR"):
        mysql_type("vector(3)")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="option=no-change"):
        TypeMapping.parse("to-string,no-change")


def test_a_stated_name_that_no_column_has_is_told() -> None:
    mapping = TypeMapping.parse((), (), ["t.n=STRING", "d.t.n=STRING"], ["t.hidden", "t.hiden"])
    mapping = mapping.as_texts(["d.t.day"])
    for column in ("n", "hidden"):
        if not mapping.excludes("d.t", column, exact=False):
            mapping.column_type(
                "d.t", column, lambda: mysql_type(parse_mysql_type("int")), exact=False
            )

    with pytest.raises(InvalidRequest, match=r"flag=--exclude-column columns=\[t\.hiden\]"):
        mapping.check_used()
