"""The words of a history: its requests and the answers to them; values alone.

A session is a slot, 0 to 3. Owners, tools and call ids (`label`) are numbers too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SLOTS = 4
OWNERS = 2
FORKED = -1
"""The task of a session that ForkSession opened."""


class Intent(StrEnum):
    """What a call is for."""

    EFFECT = "effect"
    READ = "read"
    ECHO = "echo"
    FAIL = "fail"
    SLEEP = "sleep"
    """The call runs until CancelCall or the end of its session stops it."""
    ANY = "any"
    """Any action that the tool understands."""
    UNREADABLE = "unreadable"
    """A text that is not an action of the tool."""
    UNKNOWN = "unknown"
    """The call names a tool that the session does not have."""


class Change(StrEnum):
    """How a repeated request differs from the first request of its call id."""

    NONE = "same"
    LIMITS = "other limits"
    """The contract says that limits do not make another request."""
    ACTION = "another action"
    TOOL = "another tool"
    TURN = "a later turn"
    LAST = "another last_step"
    METADATA = "other metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a tool can do."""

    intents: frozenset[Intent]
    parallel: bool = False
    forks: bool = False
    replays: bool = False


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A new call. `ahead`: number of turns after the session's newest turn."""

    slot: int
    label: int
    intent: Intent
    tool: int = 0
    ahead: int = 0

    @property
    def word(self) -> str:
        """The text that an echo repeats."""
        return f"word-{self.slot}-{self.label}-"

    def __str__(self) -> str:
        tool = f" of tool {self.tool}" if self.tool else ""
        turn = f" {self.ahead:+} turn" if self.ahead else ""
        return f"call {self.slot}/{self.label} {self.intent}{tool}{turn}"


@dataclass(frozen=True, slots=True)
class ModelRefused:
    """A gRPC error with a reason of the contract."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class ModelRunning:
    """The call has not finished."""

    def __str__(self) -> str:
        return "`running`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A call's result. `record`: all its bytes, for comparison."""

    record: bytes
    valid: bool = True
    error: str = ""
    lost: bool = False
    text: str = field(default="", compare=False)
    number: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"a result ({self.error or self.text[:40]!r})"
