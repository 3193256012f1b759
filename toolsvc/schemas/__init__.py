"""Tools that are known by JSON schemas alone: from an MCP server, from a model, from the policy.

`functions` reads them in the form of function calling, `lint` says which may be given to a policy,
`validation` whether a value fits, and `cost` how long that may take; `schema_tool` makes a `Tool`
of one.
"""
