from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.io.hive.columns import hive_type, paimon_type
from lakecore.model.types import parse_type


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "tinyint"),
        ("SMALLINT NOT NULL", "smallint"),
        ("INT", "int"),
        ("BIGINT", "bigint"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("DECIMAL(12, 2)", "decimal(12,2)"),
        ("CHAR(255)", "char(255)"),
        ("CHAR(256)", "string"),
        ("VARCHAR(65535)", "varchar(65535)"),
        ("VARCHAR(65536)", "string"),
        ("STRING", "string"),
        ("BINARY(4)", "binary"),
        ("BYTES", "binary"),
        ("DATE", "date"),
        ("TIME(3)", "string"),
        ("TIMESTAMP(6)", "timestamp"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "timestamp with local time zone"),
        ("ARRAY<INT NOT NULL>", "array<int>"),
        ("MAP<STRING, ARRAY<DATE>>", "map<string,array<date>>"),
        ("MULTISET<STRING>", "map<string,int>"),
        ("ROW<a INT, b ROW<c STRING>>", "struct<a:int,b:struct<c:string>>"),
    ],
)
def test_type_has_the_name_that_java_writes(paimon: str, hive: str) -> None:
    assert hive_type(parse_type(paimon)) == hive


@pytest.mark.parametrize(
    ("hive", "paimon"),
    [
        ("int", "INT"),
        ("double", "DOUBLE"),
        ("decimal(12,2)", "DECIMAL(12, 2)"),
        ("decimal", "DECIMAL(10, 0)"),
        ("char(3)", "CHAR(3)"),
        ("string", "STRING"),
        ("binary", "BYTES"),
        ("timestamp", "TIMESTAMP(6)"),
        ("timestamp with local time zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("array<decimal(12,2)>", "ARRAY<DECIMAL(12, 2)>"),
        ("map<string,array<date>>", "MAP<STRING, ARRAY<DATE>>"),
        (
            "struct<a:int,b:struct<c d:string,e:map<int,binary>>>",
            "ROW<a INT, b ROW<`c d` STRING, e MAP<INT, BYTES>>>",
        ),
    ],
)
def test_name_of_hive_is_read_as_java_reads_it(hive: str, paimon: str) -> None:
    assert paimon_type(hive) == parse_type(paimon)


@pytest.mark.parametrize("hive", ["", "void", "uniontype<int,string>", "array<", "struct<a>"])
def test_type_that_paimon_lacks_is_refused(hive: str) -> None:
    with pytest.raises(InvalidRequest):
        paimon_type(hive)
