"""Errors of the agent host."""

from __future__ import annotations


class StartError(Exception):
    """The host cannot start, or cannot go on. The message names the thing and the fix."""
