"""A server of Paimon's REST protocol over any catalog of lakecore."""
