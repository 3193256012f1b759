"""What a check is, and how a function becomes one."""

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
    """One thing that must hold. `body` raises Failed or Skipped, and returns where it holds."""

    name: str
    rule: Rule
    claim: str
    """One sentence: what must hold."""
    timed: bool
    """It stands on times, so a failure at one pace may be the machine's."""
    patient: bool
    """It waits for long and does little: it runs beside all others, from the beginning on."""
    body: Body


def check(rule: Rule, *, timed: bool = False, patient: bool = False) -> Callable[[Body], Check]:
    """Makes a check of a function: its name the check's name, its docstring the claim."""

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
    """All checks of the modules, in the order in which they stand there."""
    return tuple(
        value for module in modules for value in vars(module).values() if isinstance(value, Check)
    )
