"""From the words after `toolsvc serve` to tools.

`loader` reads the words: the name of a built-in tool, a Python file, or a source of `elsewhere`,
which is an MCP server, another service, a recording, VerlTool's tool classes, or a model that plays
tools.
"""
