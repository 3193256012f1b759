"""An airline's service desk: tools, database, policy and tasks of the tau benchmark, by MCP."""
