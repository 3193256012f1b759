"""Command lines of jails: firejail and bubblewrap. Tool services and the agent host start them."""

from __future__ import annotations
