"""The Model Context Protocol both ways: any MCP server as tools of ours (`source`), and any
ToolService as an MCP server for other agents (`offer`). The protocol itself is the `mcp` package's.
"""
