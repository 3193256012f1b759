"""The conformance suite: shows from outside whether a service keeps the contract of ToolService.

It speaks `toolwright.tool.v1` over gRPC and knows nothing else about a service. A `probe` says how
a tool counts, sleeps or fails. `runner.run` runs the checks of `checks`, `report` prints the
findings, and `suite.check_service` does it all. Other test-suites import the names below. The suite
is tested with a small service that keeps the contract, and with variants of it that break one rule
each: `tests/support/conformance`.
"""

from toolsvc.check.checks import ALL
from toolsvc.check.probe import ProbeError
from toolsvc.check.runner import NoService
from toolsvc.check.suite import check_service
from toolsvc.check.types import CheckOutcome, Finding, Report, Rule

__all__ = [
    "ALL",
    "CheckOutcome",
    "Finding",
    "NoService",
    "ProbeError",
    "Report",
    "Rule",
    "check_service",
]
