"""Checks of opening, renewing, reading and closing sessions."""

from __future__ import annotations

from toolsvc.check.check import checks_of
from toolsvc.check.checks.sessions import closing, leases, looking, names, opening

SESSIONS = checks_of(opening, names, closing, leases, looking)
