"""Groups from the engine: the client with its retries, one step's lease, the ledger of groups."""
