"""What can come of a job, beside its answer.

InputFailed    the stranger's bytes did it: the policy is told
PoolFull       no place was free: nothing ran
PoolDown       no process could be had, or somebody from outside killed it: nothing of it is told
CannotStart    the pool cannot work here at all; the message is for the operator
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
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
    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(f"{fault}: {detail}" if detail else str(fault))
        self.fault = fault


class PoolFull(Exception):
    pass


class PoolDown(Exception):
    pass


class CannotStart(Exception):
    """`missing`: the package that is not installed, if that is why."""

    def __init__(self, why: str, missing: str = "") -> None:
        super().__init__(why)
        self.missing = missing
