"""The catalog that a server keeps: Paimon's REST protocol, spoken as a client."""
