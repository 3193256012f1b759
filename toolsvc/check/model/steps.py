"""The words of a history: its steps, and what was seen of each; values alone.

A session is a slot, 0 to 3; an owner, a tool and a call id (`label`) are numbers too: a step that
is left out changes the meaning of no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SLOTS = 4
OWNERS = 2


class Deed(StrEnum):
    """What a call is for."""

    EFFECT = "effect"
    READ = "read"
    ECHO = "echo"
    FAIL = "fail"
    ANY = "any"
    """Whatever the tool can be told."""
    UNREADABLE = "unreadable"
    """No action of the tool."""
    UNKNOWN = "unknown"
    """Of a tool that the session does not have."""


class Change(StrEnum):
    """How a request differs from the one whose call id it has."""

    NONE = "same"
    LIMITS = "other limits"
    """Which make no other request of it."""
    ACTION = "another action"
    TOOL = "another tool"
    TURN = "a later turn"
    LAST = "another last_step"
    METADATA = "other metadata"


@dataclass(frozen=True, slots=True)
class Open:
    slot: int
    owner: int
    task: int = 0
    """Its metadata: one id with two tasks is two requests."""

    def __str__(self) -> str:
        task = f" for task {self.task}" if self.task else ""
        return f"open {self.slot} of owner {self.owner}{task}"


@dataclass(frozen=True, slots=True)
class Call:
    """A new call, seen to its result. `ahead`: turns beyond the newest."""

    slot: int
    label: int
    deed: Deed
    tool: int = 0
    ahead: int = 0

    def __str__(self) -> str:
        tool = f" of tool {self.tool}" if self.tool else ""
        turn = f" {self.ahead:+} turn" if self.ahead else ""
        return f"call {self.slot}/{self.label} {self.deed}{tool}{turn}"


@dataclass(frozen=True, slots=True)
class Sleep:
    """A new call that sleeps for as long as it is let, seen to be running."""

    slot: int
    label: int
    tool: int = 0

    def __str__(self) -> str:
        tool = f" of tool {self.tool}" if self.tool else ""
        return f"call {self.slot}/{self.label} sleeping{tool}"


@dataclass(frozen=True, slots=True)
class Late:
    """A new call behind one that sleeps, with a short queue limit."""

    slot: int
    label: int
    tool: int = 0

    def __str__(self) -> str:
        return f"call {self.slot}/{self.label} behind it"


@dataclass(frozen=True, slots=True)
class Again:
    """The request of a call that was made, or one almost like it."""

    slot: int
    label: int
    change: Change = Change.NONE

    def __str__(self) -> str:
        return f"again {self.slot}/{self.label}, {self.change}"


@dataclass(frozen=True, slots=True)
class Burst:
    """New calls all at once; one that stands there twice is sent twice."""

    calls: tuple[Call, ...]

    def __str__(self) -> str:
        return f"at once: {'; '.join(map(str, self.calls))}"


@dataclass(frozen=True, slots=True)
class Cancel:
    slot: int
    label: int

    def __str__(self) -> str:
        return f"cancel {self.slot}/{self.label}"


@dataclass(frozen=True, slots=True)
class Fork:
    slot: int
    child: int

    def __str__(self) -> str:
        return f"fork {self.slot} as {self.child}"


@dataclass(frozen=True, slots=True)
class Renew:
    owner: int
    believed: tuple[int, ...]

    def __str__(self) -> str:
        return f"renew owner {self.owner}, who believes in {list(self.believed)}"


@dataclass(frozen=True, slots=True)
class Look:
    slot: int

    def __str__(self) -> str:
        return f"look at {self.slot}"


@dataclass(frozen=True, slots=True)
class Close:
    slot: int

    def __str__(self) -> str:
        return f"close {self.slot}"


@dataclass(frozen=True, slots=True)
class List:
    def __str__(self) -> str:
        return "list"


Step = Open | Call | Sleep | Late | Again | Burst | Cancel | Fork | Renew | Look | Close | List


def pieces_of(step: Step) -> tuple[Step, ...]:
    """Steps that do half of it; none where it cannot be divided."""
    if not isinstance(step, Burst) or len(step.calls) < 2:
        return ()
    half = len(step.calls) // 2
    return Burst(step.calls[:half]), Burst(step.calls[half:])


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Opened:
    """A session; `same`: under the id that was asked for."""

    same: bool


@dataclass(frozen=True, slots=True)
class Running:
    """Not finished."""

    def __str__(self) -> str:
        return "`running`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`record`: all of it, to compare."""

    record: bytes
    valid: bool = True
    error: str = ""
    lost: bool = False
    text: str = field(default="", compare=False)
    number: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"a result ({self.error or self.text[:40]!r})"


@dataclass(frozen=True, slots=True)
class Results:
    """Of a burst, in the order of its calls."""

    results: tuple[Result | Refused, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What CancelCall said and, where it stopped a call, what that came to."""

    stopped: bool
    result: Result | Refused | None = None


@dataclass(frozen=True, slots=True)
class Leases:
    """Slots; -1 is a session that is of no slot."""

    held: frozenset[int]
    lost: frozenset[int]


@dataclass(frozen=True, slots=True)
class Told:
    """Labels of the calls that ran; -1 is one that was never made."""

    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    was_open: bool


@dataclass(frozen=True, slots=True)
class Listed:
    record: bytes


Seen = Refused | Opened | Running | Result | Results | Cancelled | Leases | Told | Closed | Listed
