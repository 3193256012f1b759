"""Runs foreign code in confinement; docs/tools/sandbox.md lists the guarantees.

`sandbox` makes a `plan`, chooses a level of isolation by `selftest` and owns the `pool`; a pool
holds `shard`s, each one `jail` (built by `firejail` or `bubblewrap`) with a zygote in it
(`jailed/`); each `session` is one confined child.
"""
