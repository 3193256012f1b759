"""Makes tools from the arguments of `toolsvc serve`.

`loader` reads each argument: the name of a built-in tool, a Python file, or a source of
`elsewhere`. A source is an MCP server, another service, a recording, VerlTool's tool classes, or a
model that plays tools.
"""
