"""The procedures of `CALL sys.NAME(...)`: Paimon's names, arguments and result rows.

`procedure.py` defines a procedure and reads its arguments, `declared.py` has the procedures, and
`registry.py` finds and runs them.
"""

from __future__ import annotations
