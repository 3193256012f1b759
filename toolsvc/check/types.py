"""The words of the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND")
"""Reasons for a request in a session that has ended. A service may forget old sessions."""


class Rule(StrEnum):
    """What a check shows: a rule on the wire (ARCHITECTURE.md) by its number, or a subject."""

    FAILURES = "1"
    """A tool that failed is an answer; a call that could not be run is a gRPC error."""
    SAME_ANSWER = "2"
    """Same call id, same answer; the effect happens at most once."""
    TWO_LIMITS = "3"
    """Queue limit: nothing ran. Run limit: TIMEOUT."""
    SESSIONS = "4"
    """Sessions have an owner, keep their state to themselves, and end for good."""
    REASONS = "5"
    """Every refusal says why in the contract's words."""
    SEVERAL_CALLS = "7"
    """Calls at the same time are matched by their ids."""
    DEADLINE = "deadline"
    """The caller's patience bounds the answer, not the call."""
    HELD = "held"
    """GetSession tells what ran in a session, and changes nothing."""
    STREAM = "stream"
    """StreamCalls answers as CallTool does."""
    FORK = "fork"
    """A fork has its parent's state, and nothing else of it."""
    CANCEL = "cancel"
    """CancelCall stops a call, and the record says so."""
    HISTORY = "history"
    """Whatever is asked in whatever order comes to what the contract says."""
    LEASE = "lease"
    """What is renewed stays, what is not ends."""
    LIMIT = "limit"
    """Sizes of messages and observations."""
    MEDIA = "media"
    """Parts that are not text, and blobs."""
    INPUT = "input"
    """What makes no sense is refused, and harms nobody."""
    DESCRIBE = "describe"
    """Descriptors that an engine can work with."""
    HEALTH = "health"
    """Health and reflection."""


class CheckOutcome(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The service does not have what the check is about."""


class CheckFailed(Exception):
    """What was seen breaks the rule; the message says what was seen."""


class Skipped(Exception):
    """The service does not have what the check needs; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check against one service."""

    name: str
    rule: Rule
    outcome: CheckOutcome
    reason: str = ""
    """Of a failure or a skip."""
    tool: str = ""
    """Whose it is, where each tool was asked apart."""


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
    """CheckFailed(otherwise) unless `holds`."""
    if not holds:
        raise CheckFailed(otherwise)
