"""A check, and the decorator that makes a check of a function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType

from toolsvc.check.client import CheckClient
from toolsvc.check.types import Rule

Body = Callable[[CheckClient], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim about a service. `body` raises CheckFailed or Skipped, and returns if the claim
    holds."""

    name: str
    rule: Rule
    claim: str
    """The claim, in one or two sentences."""
    timed: bool
    """The check depends on times, so a slow machine may be the cause of a failure."""
    patient: bool
    """The check mostly waits. It runs beside all others and starts first."""
    body: Body


def check(rule: Rule, *, timed: bool = False, patient: bool = False) -> Callable[[Body], Check]:
    """Makes a check of a function. The function's name is the check's name, its docstring the
    claim."""

    def make(body: Body) -> Check:
        return Check(
            name=body.__name__.replace("_", "-"),
            rule=rule,
            claim=" ".join((inspect.getdoc(body) or "").split()),
            timed=timed,
            patient=patient,
            body=body,
        )

    return make


def checks_of(*modules: ModuleType) -> tuple[Check, ...]:
    """All checks of the modules, in the order of their definition."""
    return tuple(
        value for module in modules for value in vars(module).values() if isinstance(value, Check)
    )
