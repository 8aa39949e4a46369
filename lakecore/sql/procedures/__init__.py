"""The procedures of `CALL sys.NAME(...)`: Paimon's names, arguments and result rows.

`procedure.py` defines a procedure and reads its arguments. Each other module has the procedures of
one subject. `registry.py` lists all procedures.
"""

from __future__ import annotations
