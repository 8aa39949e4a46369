"""Proof that other engines read and continue what lakecore writes, and the other way round.

Peers are child processes (`python -m tests.interop.java_peer`, `… python_peer`) that
`setup_peers` installs by itself and that speak one line of JSON per request (`protocol`).
Rows travel as the canonical values of `values`, so equal rows are equal lists.
"""
