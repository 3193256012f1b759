"""The ways to run an agent, one module for each.

kind         what they have in common
kept         a process below a keeper: `command` and `function`, bare or in a jail
container    a container of podman: `container`
service      a service that already runs: `http`
choice       from the recipe to a kind
"""

from __future__ import annotations
