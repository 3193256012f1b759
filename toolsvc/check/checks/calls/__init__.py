"""What becomes of a tool's calls, and of what they leave behind."""

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
