"""The checks, in rooms by what they are about; `ALL` has them in the order in which people read
them.

`service` is about what the service does whatever its tools are, `sessions` about how sessions come,
are kept apart and go, and `calls` about what becomes of a tool's calls and its state: that depends
on the tool, so `--each-tool` asks it of every one.
"""

from __future__ import annotations

from toolsvc.check.check import Check
from toolsvc.check.checks.calls import CALLS
from toolsvc.check.checks.service import SERVICE
from toolsvc.check.checks.sessions import SESSIONS

ALL: tuple[Check, ...] = (*SERVICE, *SESSIONS, *CALLS)
