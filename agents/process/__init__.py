"""An agent as a process: its keeper, its output, its end."""

from __future__ import annotations
