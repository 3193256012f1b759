"""Checks of a tool's calls, and of the state that they leave."""

from __future__ import annotations

from toolsvc.check.check import checks_of
from toolsvc.check.checks.calls import (
    cancelling,
    effects,
    failures,
    forgetting,
    forks,
    histories,
    lasting,
    limits,
    observations,
    several,
    state,
)

CALLS = checks_of(
    failures,
    state,
    effects,
    forgetting,
    lasting,
    limits,
    several,
    cancelling,
    forks,
    observations,
    histories,
)
