"""The JDBC catalog: names and locks in tables of an SQL database, as in Paimon's JdbcCatalog."""

from __future__ import annotations
