"""The ways to run an agent, one module for each.

kind         what they have in common
kept         a process below a keeper: `command` and `function`, bare or in a jail
"""

from __future__ import annotations
