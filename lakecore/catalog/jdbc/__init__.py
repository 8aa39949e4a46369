"""The JDBC catalog: names and locks in the tables of a SQL database, as Paimon's JdbcCatalog."""

from __future__ import annotations
