"""Runs foreign Python code where it can harm nothing: see docs/tools.md for what is promised.

`sandbox` chooses a level of isolation by `selftest` and owns the `pool`; a pool holds `shard`s,
each one `jail` (firejail) with a zygote in it (`jailed/`); each `session` is one confined child.
"""
