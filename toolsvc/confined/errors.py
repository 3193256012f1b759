"""What can come of a job, beside its answer.

InputFailed    the input is at fault: the policy reads of it
PoolFull       no place was free: nothing ran. A refusal
PoolDown       no process could be had, or it was killed from outside. A refusal too
CannotStart    the pool cannot work here at all; the message is for the operator
"""

from __future__ import annotations

from enum import StrEnum

from toolsvc.errors import RETRY_SECONDS, BackendDown, Reason, Refused


class InputFault(StrEnum):
    """How an input failed."""

    TIME = "time"
    """It took longer than a job may."""
    MEMORY = "memory"
    """It took more memory than a job may."""
    CRASH = "crash"
    """The process ended in a signal, or in the middle."""
    BROKEN = "broken"
    """The parser raised something that it should not, or answered too much."""


class InputFailed(Exception):
    def __init__(self, fault: InputFault, detail: str = "") -> None:
        super().__init__(f"{fault}: {detail}" if detail else str(fault))
        self.fault = fault


class PoolFull(Refused):
    def __init__(self, why: str) -> None:
        fix = "send fewer calls at once, or give the tool more processes to read with"
        super().__init__(Reason.QUEUE_LIMIT, why, fix=fix, retry_after=RETRY_SECONDS)


class PoolDown(BackendDown):
    pass


class CannotStart(Exception):
    """`missing`: the package that is not installed, if that is why."""

    def __init__(self, why: str, missing: str = "") -> None:
        super().__init__(why)
        self.missing = missing
