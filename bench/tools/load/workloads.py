"""The calls of each workload, and their right answers.

Pure. Session and number in the session identify a call, and determine all that is random in it. So
two runs, and service and floor, get the same calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

PYTHON, NOOP = "python", "noop"
SHORTEST_SLEEP_S, LONGEST_SLEEP_S = 1.0, 10.0
MIXED_SLEEP_S = (0.05, 0.5)
COUNT_TO = 20_000
"""Loop turns of the computing call of `mixed`: about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call."""

    text: str
    says: str
    """Observation of a right answer."""
    sleeps_s: float = 0.0
    """Time that the call itself sleeps; no service can save it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWorkload:
    """One kind of calls."""

    name: str
    what: str
    tool: str
    warm_up: Action
    """First call of a session."""
    action: Callable[[int, int], Action]
    """The call with (session, number); numbers begin at 0, and a session makes its calls in
    order."""
    longest_s: float = 0.0


def _python(code: str, says: str, sleeps_s: float = 0.0) -> Action:
    return Action(text=f"<python>{code}</python>", says=says, sleeps_s=sleeps_s)


_HELLO = _python('print("hello world")', "hello world")
_NOOP = Action(text="</noop>", says="")


def _sleep(session: int, number: int) -> Action:
    return _sleeping(_dice(session, number).uniform(SHORTEST_SLEEP_S, LONGEST_SLEEP_S))


def _stateful(_session: int, number: int) -> Action:
    return _python("count += 1; print(count)", str(number + 1))


def _mixed(session: int, number: int) -> Action:
    """Seven in ten print, two compute, one sleeps."""
    dice = _dice(session, number)
    kind = dice.random()
    if kind < 0.7:
        return _HELLO
    if kind < 0.9:
        return _python(f"sum(range({COUNT_TO}))", str(sum(range(COUNT_TO))))
    return _sleeping(dice.uniform(*MIXED_SLEEP_S))


def _sleeping(seconds: float) -> Action:
    seconds = round(seconds, 3)
    return _python(f"import time; time.sleep({seconds})", "", seconds)


def _dice(session: int, number: int) -> random.Random:
    return random.Random(f"{session}/{number}")


def _workload(
    name: str, what: str, action: Callable[[int, int], Action], *, warm_up: Action = _HELLO,
    tool: str = PYTHON, longest_s: float = 0.0,
) -> ToolWorkload:  # fmt: skip
    return ToolWorkload(
        name=name, what=what, tool=tool, warm_up=warm_up, action=action, longest_s=longest_s
    )


WORKLOADS = {
    one.name: one
    for one in (
        _workload(
            "hello", 'print("hello world") in a sandboxed Python session', lambda _s, _n: _HELLO
        ),
        _workload(
            "noop", "a tool that does nothing: the way to it and back", lambda _s, _n: _NOOP,
            warm_up=_NOOP, tool=NOOP,
        ),
        _workload("sleep", "time.sleep of 1 to 10 s, random", _sleep, longest_s=LONGEST_SLEEP_S),
        _workload(
            "stateful", "a counter that lives in the session; every answer is checked", _stateful,
            warm_up=_python("count = 0", ""),
        ),
        _workload(
            "mixed", "70 % print, 20 % compute for about 1 ms, 10 % sleep 0.05 to 0.5 s", _mixed,
            longest_s=MIXED_SLEEP_S[1],
        ),
    )
}  # fmt: skip
