"""A cluster on this machine alone: the environment variables that Ray reads at its import."""

from __future__ import annotations

import os
import secrets


def keep_to_this_machine() -> None:
    """Makes Ray listen on loopback only and require a token that is made here. Variables that the
    operator has set stay."""
    for name, value in (
        # Ray's word for machines whose firewall would ask: not only for Windows and macOS.
        ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"),
        ("RAY_AUTH_MODE", "token"),
        ("RAY_AUTH_TOKEN", secrets.token_hex(32)),
        ("RAY_USAGE_STATS_ENABLED", "0"),
    ):
        os.environ.setdefault(name, value)
