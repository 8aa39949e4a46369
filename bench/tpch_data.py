"""Tables in the shape of TPC-H's, made by DuckDB from hashes: a scale always gives the same rows.

The columns, keys and sizes are those of the benchmark. The values are drawn evenly from the words
and ranges of its queries, so each query finds rows also at a tiny scale; they are not dbgen's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}

LEAST = 600
_SETUP = """
CREATE MACRO draw(i, salt, n) AS CAST(hash(i * 64 + salt) % n AS BIGINT);
CREATE MACRO pick(i, salt, words) AS words[1 + draw(i, salt, len(words))];
CREATE MACRO money(i, salt, lowest, n) AS CAST(lowest + draw(i, salt, n) / 100.0 AS DECIMAL(15, 2));
CREATE MACRO day(i, salt, n) AS DATE '1992-01-01' + CAST(draw(i, salt, n) AS INTEGER);
CREATE MACRO phone(i, salt) AS (10 + draw(i, salt, 25)) || '-' || (100 + draw(i, salt + 1, 900));
"""
_TABLES = {
    "region": """
        SELECT i::INTEGER AS r_regionkey,
            ['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'][i + 1] AS r_name,
            'comment' AS r_comment FROM range(5) t(i)""",
    "nation": """
        SELECT i::INTEGER AS n_nationkey, upper(['algeria', 'argentina', 'brazil', 'canada',
            'egypt', 'ethiopia', 'france', 'germany', 'india', 'indonesia', 'iran', 'iraq', 'japan',
            'jordan', 'kenya', 'morocco', 'mozambique', 'peru', 'china', 'romania',
            'saudi arabia', 'vietnam', 'russia', 'united kingdom',
            'united states'][i + 1]) AS n_name,
            [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1][i + 1]
                AS n_regionkey, 'comment' AS n_comment FROM range(25) t(i)""",
    "supplier": """
        SELECT i AS s_suppkey, 'Supplier#' || i AS s_name, 'address ' || i AS s_address,
            draw(i, 1, 25)::INTEGER AS s_nationkey, phone(i, 2) AS s_phone,
            money(i, 4, -999, 1100000) AS s_acctbal,
            pick(i, 5, ['furious', 'Customer slow Complaints', 'quick', 'even']) AS s_comment
        FROM range(1, 1 + $suppliers) t(i)""",
    "customer": """
        SELECT i AS c_custkey, 'Customer#' || i AS c_name, 'address ' || i AS c_address,
            draw(i, 1, 25)::INTEGER AS c_nationkey, phone(i, 2) AS c_phone,
            money(i, 4, -999, 1100000) AS c_acctbal,
            pick(i, 5, ['BUILDING', 'AUTOMOBILE', 'MACHINERY', 'HOUSEHOLD', 'FURNITURE'])
                AS c_mktsegment, 'comment ' || i AS c_comment
        FROM range(1, 1 + $customers) t(i)""",
    "part": """
        SELECT i AS p_partkey,
            pick(i, 1, ['green', 'forest', 'blue', 'red', 'lemon']) || ' metal' AS p_name,
            'Manufacturer#1' AS p_mfgr, 'Brand#' || pick(i, 2, [12, 23, 34, 45, 55]) AS p_brand,
            pick(i, 3, ['PROMO', 'STANDARD', 'MEDIUM', 'ECONOMY']) || ' '
                || pick(i, 4, ['ANODIZED', 'POLISHED', 'BURNISHED']) || ' '
                || pick(i, 5, ['STEEL', 'BRASS', 'TIN']) AS p_type,
            (1 + draw(i, 6, 50))::INTEGER AS p_size,
            pick(i, 7, ['SM', 'MED', 'LG', 'JUMBO']) || ' '
                || pick(i, 8, ['CASE', 'BOX', 'PACK', 'PKG', 'BAG']) AS p_container,
            money(i, 9, 900, 110000) AS p_retailprice, 'comment' AS p_comment
        FROM range(1, 1 + $parts) t(i)""",
    "partsupp": """
        SELECT i // 4 + 1 AS ps_partkey,
            1 + (i // 4 + (i % 4) * greatest($suppliers // 4, 1)) % $suppliers AS ps_suppkey,
            draw(i, 1, 10000)::INTEGER AS ps_availqty, money(i, 2, 1, 100000) AS ps_supplycost,
            'comment' AS ps_comment
        FROM range($parts * 4) t(i)""",
    "orders": """
        SELECT i AS o_orderkey, 1 + draw(i, 1, greatest($customers * 2 // 3, 1)) AS o_custkey,
            pick(i, 2, ['O', 'F', 'P']) AS o_orderstatus,
            money(i, 3, 900, 40000000) AS o_totalprice, day(i, 4, 2406) AS o_orderdate,
            pick(i, 5, ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])
                AS o_orderpriority, 'Clerk#' || draw(i, 6, 1000) AS o_clerk,
            0::INTEGER AS o_shippriority,
            pick(i, 7, ['special pending requests', 'quick deposits', 'even', 'ideas'])
                || ' ' || i AS o_comment
        FROM range(1, 1 + $orders) t(i)""",
    "lineitem": """
        SELECT o AS l_orderkey, 1 + draw(i, 1, $parts) AS l_partkey,
            1 + (draw(i, 1, $parts) + draw(i, 2, 4) * greatest($suppliers // 4, 1)) % $suppliers
                AS l_suppkey, n::INTEGER AS l_linenumber, (1 + draw(i, 3, 50))::DECIMAL(15, 2)
                AS l_quantity, money(i, 4, 900, 10000000) AS l_extendedprice,
            (draw(i, 5, 11) / 100.0)::DECIMAL(15, 2) AS l_discount,
            (draw(i, 6, 9) / 100.0)::DECIMAL(15, 2) AS l_tax, pick(i, 7, ['A', 'N', 'R'])
                AS l_returnflag, pick(i, 8, ['O', 'F']) AS l_linestatus,
            day(o, 4, 2406) + (1 + draw(i, 9, 121))::INTEGER AS l_shipdate,
            day(o, 4, 2406) + (30 + draw(i, 10, 61))::INTEGER AS l_commitdate,
            day(o, 4, 2406) + (2 + draw(i, 9, 121) + draw(i, 11, 30))::INTEGER AS l_receiptdate,
            pick(i, 12, ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])
                AS l_shipinstruct,
            pick(i, 13, ['AIR', 'AIR REG', 'MAIL', 'SHIP', 'TRUCK', 'RAIL', 'FOB']) AS l_shipmode,
            'comment ' || draw(i, 14, 100000) AS l_comment
        FROM range(1, 1 + $orders) t(o), range(1, 8) l(n), LATERAL (SELECT o * 8 + n) v(i)
        WHERE n <= 1 + draw(o, 15, 7)""",
}


def tables(scale: float) -> dict[str, pa.Table]:
    """All tables; scale 1 has 1.5 M orders and 6 M line items."""
    connection = duckdb.connect()
    connection.execute(_SETUP)
    sizes = {"suppliers": 10_000, "customers": 150_000, "parts": 200_000, "orders": 1_500_000}
    found = {}
    for name, text in _TABLES.items():
        sized = text
        for size, count in sizes.items():
            sized = sized.replace(f"${size}", str(max(int(count * scale), LEAST)))
        found[name] = connection.sql(sized).to_arrow_table()
    return found
