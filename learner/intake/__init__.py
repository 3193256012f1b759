"""Groups from the engine: the client, one step's lease, the ledger of consumed groups."""
