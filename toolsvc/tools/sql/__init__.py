"""`sql`: queries against a database that a trajectory cannot change for others.

`sql_tool` speaks with the policy and has one backend. `sqlite` gives sessions private copies of
`templates`. A session of `postgres` is a transaction that is always rolled back; `statement` runs
one statement, bounded.
"""
