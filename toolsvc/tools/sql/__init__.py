"""`sql`: queries against a database that a trajectory cannot change for others.

`sql_tool` speaks with the policy (`action` is how it asks); behind it stands one `Backend`:
`sqlite`, whose sessions get private copies of `templates`, or `postgres`, whose sessions are
transactions that are always rolled back (`statement` runs one statement, bounded).
"""
