"""All checks, in the order of the report.

`service` does not depend on the tools. `sessions` is about opening, renewing and closing sessions.
`calls` is about a tool's calls and state, so `--each-tool` makes these checks with every tool.
"""

from __future__ import annotations

from toolsvc.check.check import Check
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.checks.service import SERVICE
from toolsvc.check.checks.sessions import SESSIONS

ALL: tuple[Check, ...] = (*SERVICE, *SESSIONS, *CALLS)
