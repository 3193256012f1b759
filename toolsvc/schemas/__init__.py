"""Tools whose only description is a JSON schema: from an MCP server, a model or the policy.

`functions` reads the form of function calling. `lint` finds schemas that a policy must not get.
`validation` compares a value with a schema, and `cost` bounds the time for it. `ordinary` rewrites
a model's schemas into the subset that `lint` allows. `schema_tool` makes a `Tool` of a schema.
"""
