"""Small faults put into the engine, one at a time: the tests must catch each (`make mutate`)."""
