"""Which broken services there are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.support.conformance.reference import Reference
from toolsvc.check.types import Rule

Service = TypeVar("Service", bound=type[Reference])


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A service that breaks one rule."""

    name: str
    rule: Rule
    fault: str
    """One sentence: what it does wrong."""
    caught_by: tuple[str, ...]
    """Checks that must fail."""
    service: type[Reference]


BROKEN: dict[str, Broken] = {}
"""By name; filled by `broken`."""


def broken(rule: Rule, *caught_by: str) -> Callable[[Service], Service]:
    """Enters a service under its name in words: RunsTwice is runs-twice."""

    def enter(service: Service) -> Service:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", service.__name__).lower()
        BROKEN[name] = Broken(
            name=name,
            rule=rule,
            fault=" ".join((inspect.getdoc(service) or "").split()),
            caught_by=caught_by,
            service=service,
        )
        return service

    return enter
