"""Deterministic simulation of many actors on one table, one seed each.

A seed decides a table, two to four actors with a few deeds each (`scenario.py`), what goes wrong,
and who makes the next call of the store. Nothing else decides anything: time, chance and names come
from the seed (`lakecore.io.ambient`), and one thread runs at a time (`scheduler.py`). A seed that
fails therefore fails again, and can be made smaller.

    make simulate SEEDS=10000     plays so many seeds on all processors
    make simulate SEED=17         plays one, makes it smaller if it fails, and prints each call

| module | holds |
|---|---|
| `scenario.py` | what a seed means; a new kind of table is a line of `SHAPES` |
| `scheduler.py` | one thread at a time, by the seed |
| `disk.py` | the storage that all share: what is lost, and who sees what when |
| `session.py` | the storage as one process reaches it, with the faults it meets |
| `actors.py` | what actors do: a new verb is a case of `_carry_out` |
| `model.py` | what committed deeds make of the rows, on dictionaries |
| `checker.py` | whether what is there can be explained |
| `simulate.py`, `shrink.py`, `swarm.py` | one seed; a smaller one that fails; many |
| `cheap.py` | what keeps a seed at a few hundredths of a second |
| `planted.py` | faults of lakecore, planted to see that the simulation finds them |
"""
