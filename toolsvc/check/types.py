"""The words of the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND")
"""Reasons for a request in a session that has ended. A service may forget old sessions."""
TAKEN = ("CALL_ID_REUSED", "RESULT_FORGOTTEN")
"""Reasons for another request with an acknowledged call id."""


class Rule(StrEnum):
    """The rule of a check: a rule on the wire (ARCHITECTURE.md) by its number, or a subject."""

    FAILURES = "1"
    """A tool's failure is an answer; a call that the service could not run is a gRPC error."""
    SAME_ANSWER = "2"
    """Same call id, same answer; the effect happens at most once."""
    TWO_LIMITS = "3"
    """Queue limit: nothing ran. Run limit: TIMEOUT."""
    SESSIONS = "4"
    """Sessions have an owner and their own state, and their end is final."""
    REASONS = "5"
    """Every refusal has a reason of the contract."""
    SEVERAL_CALLS = "7"
    """Calls at the same time are matched by their ids."""
    DEADLINE = "deadline"
    """The caller's timeout bounds the answer, not the call."""
    HELD = "held"
    """GetSession lists the calls that ran in a session, and changes nothing."""
    STREAM = "stream"
    """StreamCalls answers as CallTool does."""
    FORK = "fork"
    """A fork has its parent's state, and is separate after that."""
    CANCEL = "cancel"
    """CancelCall stops a call, and the record says so."""
    HISTORY = "history"
    """Requests in any order are answered as the contract says."""
    LEASE = "lease"
    """A session stays open with renewal, and ends without it."""
    LIMIT = "limit"
    """Sizes of messages and observations."""
    MEDIA = "media"
    """Parts that are not text, and blobs."""
    INPUT = "input"
    """Wrong input is refused, and harms no other call."""
    DESCRIBE = "describe"
    """Descriptors that an engine can work with."""
    HEALTH = "health"
    """Health and reflection."""


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The service does not have the feature that the check is about."""


class CheckFailed(Exception):
    """The service breaks the rule. The message says what it did."""


class Skipped(Exception):
    """The service lacks a feature that the check needs. The message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    name: str
    rule: Rule
    outcome: CheckOutcome
    reason: str = ""
    """The reason of a failure or a skip."""
    tool: str = ""
    """The tool's name, if the check was made with each tool."""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about a service, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def failures(self) -> Sequence[Finding]:
        """The findings of checks that failed."""
        return [one for one in self.findings if one.outcome is CheckOutcome.FAILED]

    def count(self, outcome: CheckOutcome) -> int:
        return sum(finding.outcome is outcome for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """{"passed", "failed", "skipped": counts, "checks": [{"name", "rule", "tool", "outcome",
        "reason"}]}"""
        return {outcome.value: self.count(outcome) for outcome in CheckOutcome} | {
            "checks": [
                {
                    "name": finding.name,
                    "rule": finding.rule.value,
                    "tool": finding.tool,
                    "outcome": finding.outcome.value,
                    "reason": finding.reason,
                }
                for finding in self.findings
            ]
        }


def expect(holds: object, otherwise: str) -> None:
    """Raises CheckFailed(otherwise) unless `holds`."""
    if not holds:
        raise CheckFailed(otherwise)
