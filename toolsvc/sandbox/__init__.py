"""Runs foreign code where it can harm nothing: see docs/tools/sandbox.md for what is promised.

`sandbox` makes a `plan`, chooses a level of isolation by `selftest` and owns the `pool`; a pool
holds `shard`s, each one `jail` (built by `firejail` or `bubblewrap`) with a zygote in it
(`jailed/`); each `session` is one confined child.
"""
