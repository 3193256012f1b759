"""What the calls do: the action's text, and what a right answer to it says.

Pure. A call is known by its session and its number in that session, and everything random comes
from these two, so that two runs, and the service and the floor, are given the same calls.
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
    """One call's text; `says`: the observation of a right answer; `sleeps_s`: what the call
    itself waits for, the time that no service can save."""

    text: str
    says: str
    sleeps_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWorkload:
    """`action(session, number)`: `number` counts the calls of a session from 0, and calls of one
    session are made in order. `warm_up`: what makes a session ready, made before any other."""

    name: str
    what: str
    tool: str
    warm_up: Action
    action: Callable[[int, int], Action]
    longest_s: float = 0.0


def _python(code: str, says: str, sleeps_s: float = 0.0) -> Action:
    return Action(text=f"<python>{code}</python>", says=says, sleeps_s=sleeps_s)


_HELLO = _python('print("hello world")', "hello world")
_NOOP = Action(text="</noop>", says="")
_ZERO = _python("count = 0", "")


def _hello(_session: int, _number: int) -> Action:
    return _HELLO


def _noop(_session: int, _number: int) -> Action:
    return _NOOP


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


WORKLOADS = {
    one.name: one
    for one in (
        ToolWorkload(
            name="hello",
            what='print("hello world") in a sandboxed Python session',
            tool=PYTHON,
            warm_up=_HELLO,
            action=_hello,
        ),
        ToolWorkload(
            name="noop",
            what="a tool that does nothing: the way to it and back",
            tool=NOOP,
            warm_up=_NOOP,
            action=_noop,
        ),
        ToolWorkload(
            name="sleep",
            what="time.sleep of 1 to 10 s, random",
            tool=PYTHON,
            warm_up=_HELLO,
            action=_sleep,
            longest_s=LONGEST_SLEEP_S,
        ),
        ToolWorkload(
            name="stateful",
            what="a counter that lives in the session; every answer is checked",
            tool=PYTHON,
            warm_up=_ZERO,
            action=_stateful,
        ),
        ToolWorkload(
            name="mixed",
            what="70 % print, 20 % compute for about 1 ms, 10 % sleep 0.05 to 0.5 s",
            tool=PYTHON,
            warm_up=_HELLO,
            action=_mixed,
            longest_s=MIXED_SLEEP_S[1],
        ),
    )
}
