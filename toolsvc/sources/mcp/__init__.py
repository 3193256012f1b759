"""The Model Context Protocol in both directions: `source` serves the tools of any MCP server, and
`offer` makes any ToolService an MCP server for other agents. The package `mcp` implements the
protocol.
"""
