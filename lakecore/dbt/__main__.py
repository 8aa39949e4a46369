"""Print the macros of a dbt project: `python -m lakecore.dbt > macros/paimon.sql`."""

from __future__ import annotations

import sys

from lakecore.dbt import macros

sys.stdout.write(macros())
