"""Groups from the engine: the client and its retries, one step's lease, the ledger of consumed groups."""
