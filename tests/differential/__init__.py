"""Random histories, played on lakecore and on Java Paimon: both see equal rows in each snapshot.

A seed draws a history (`draws`): a schema, options, and steps (`steps`). It is played on two
tables, one that lakecore writes and one that Java writes (`play`), and each engine reads every
snapshot of both (`compare`).
What is known to differ stands in `differences`, with its reason. A history that fails is made
smaller (`shrink`) and printed, with its seed, in a form to paste into a test.

    make differential HISTORIES=1000 SEED=1    # seeds 1 to 1000
    make differential SEED=17                  # that one again
"""
