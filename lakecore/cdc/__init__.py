"""Change data capture: changes of databases and topics flow into tables, with schema changes.

`events` holds the values that pass from a source to the sink. A source reads a database's log, a
topic or files; the sink changes the tables' schemas, writes the rows and commits them together with
the position of the source.

See https://paimon.apache.org/docs/master/cdc-ingestion/overview/
"""

from __future__ import annotations
