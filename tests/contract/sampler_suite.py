"""What any sampler of SGLang's native wire must do, as checks that run against a live one.

Gathers the checks of `sampler/`: each takes a `Target`, leaves the sampler running and unpaused,
and asserts only what a client may rely on. The same list runs against the scripted sampler and
against the real server, so that the one never promises what the other does not keep. Knows neither
how a sampler is started nor what it says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType

from tests.contract.sampler import (
    aborts,
    adapters,
    answers,
    memory,
    pauses,
    refusals,
    weights,
)
from tests.contract.sampler.target import Target

Check = Callable[[Target], Awaitable[None]]


def _checks(*parts: ModuleType) -> list[Check]:
    found = (
        check for part in parts for name, check in vars(part).items() if name.startswith("check_")
    )
    return sorted(found, key=lambda check: check.__name__)


CHECKS = _checks(aborts, answers, memory, pauses, refusals, weights)
ADAPTER_CHECKS = _checks(adapters)
"""Checks of a server that takes adapters."""
