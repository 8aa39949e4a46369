"""The procedures of `CALL sys.NAME(...)`: Paimon's names, arguments and result rows.

`procedure.py` says what a procedure is and reads its arguments; each other module has those of one
subject; `registry.py` lists them all.
"""

from __future__ import annotations
