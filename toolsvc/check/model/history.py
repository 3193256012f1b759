"""One history: requests to a service whose answers a model of the contract checks.

A request is a method of `History`. Its `Numbers` choose the values. A request that the model does
not allow does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from toolsvc.check.model.model import SIDE_BY_SIDE, Model
from toolsvc.check.model.player import Player, answer_of
from toolsvc.check.model.types import OWNERS, SLOTS, Change, Intent, ModelCall

REPEATED = 6
"""Number of calls of each session that the end of a history repeats."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What chooses the values of a request."""

    slot: int = 0
    tool: int = 0
    ahead: int = 0
    """Turns after the session's newest turn."""
    back: int = 0
    """Number of the session's calls that are newer than the chosen call."""
    other: int = 0
    """A number for the rest."""


class Broken(Exception):
    """The last answer of a history breaks the contract. The message is the history in words."""


class History:
    def __init__(
        self,
        player: Player,
        model: Model,
        wait: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any],
    ) -> None:
        """`wait`: starts a coroutine of the player and returns its result."""
        self._player = player
        self._model = model
        self._wait = wait
        self._requests: list[str] = []
        self._label = 0
        self._refused: dict[int, int] = {}
        """Newest label of each slot whose call was refused. It may be used again."""

    def pause(self, _: Numbers) -> None:
        return

    def open(self, n: Numbers) -> None:
        self._open(n.slot, n.other % OWNERS, int(n.other % 4 == 3))

    def open_again(self, n: Numbers) -> None:
        if known := self._model.opening(n.slot):
            self._open(n.slot, *known)

    def effect(self, n: Numbers) -> None:
        self._call(n, Intent.EFFECT)

    def read(self, n: Numbers) -> None:
        self._call(n, Intent.READ)

    def call(self, n: Numbers) -> None:
        intents = sorted(self._model.tools[n.tool].intents - {Intent.SLEEP})
        self._call(n, [*intents, Intent.UNKNOWN][n.other % (len(intents) + 1)])

    def sleep(self, n: Numbers) -> None:
        call = ModelCall(n.slot, self._new(), Intent.SLEEP, n.tool)
        if self._model.allows_sleep(call):
            self._ask(str(call), Player.sleep, self._model.slept, call)

    def come_late(self, n: Numbers) -> None:
        call = ModelCall(n.slot, self._new(), Intent.ANY, n.tool)
        if self._model.allows_late(call):
            self._ask(f"late {call}", Player.come_late, self._model.came_late, call)

    def burst(self, n: Numbers) -> None:
        """Calls of one or two sessions and tools at the same time, some of them sent twice."""
        known = self._model.tools[n.tool].intents
        intents = cycle([intent for intent in SIDE_BY_SIDE if intent in known])
        slots = cycle((n.slot, n.slot * n.back % 3))
        calls = [
            ModelCall(slot, self._new(), intent, n.tool)
            for _, slot, intent in zip(range(n.other + 2), slots, intents, strict=False)
        ]
        calls += calls[:: n.back] if n.back else []
        if self._model.allows_burst(calls):
            words = f"at once: {'; '.join(map(str, calls))}"
            self._ask(words, Player.burst, self._model.burst, calls)

    def repeat(self, n: Numbers) -> None:
        self._repeat(n, Change.NONE)

    def repeat_changed(self, n: Numbers) -> None:
        self._repeat(n, [*Change][n.other % len(Change)])

    def cancel(self, n: Numbers) -> None:
        label = self._known(n)
        if self._model.allows_request(n.slot):
            words = f"cancel {n.slot}/{label}"
            self._ask(words, Player.cancel, self._model.cancelled, n.slot, label)

    def renew(self, n: Numbers) -> None:
        owner = n.other % OWNERS
        believed = [slot for slot in range(SLOTS) if n.other >> slot & 2]
        words = f"renew owner {owner} with the sessions {believed}"
        self._ask(words, Player.renew, self._model.renewed, owner, believed)

    def look(self, n: Numbers) -> None:
        if self._model.allows_request(n.slot):
            self._ask(f"look at {n.slot}", Player.look, self._model.looked, n.slot)

    def fork(self, n: Numbers) -> None:
        child = n.other % SLOTS
        if self._model.allows_fork(n.slot, child):
            words = f"fork {n.slot} as {child}"
            self._ask(words, Player.fork, self._model.forked, n.slot, child)

    def close(self, n: Numbers) -> None:
        self._ask(f"close {n.slot}", Player.close, self._model.closed, n.slot)

    def list(self, _: Numbers) -> None:
        self._ask("list", Player.list, self._model.listed)

    def _open(self, slot: int, owner: int, task: int) -> None:
        if self._model.allows_open(slot):
            words = f"open {slot} of owner {owner}" + (f" for task {task}" if task else "")
            self._ask(words, Player.open, self._model.opened, slot, owner, task)

    def _call(self, n: Numbers, intent: Intent) -> None:
        label = self._new()
        if n.back % 2:  # a refused label is free
            label = self._refused.pop(n.slot, label)
        call = ModelCall(n.slot, label, intent, n.tool, n.ahead)
        if self._model.allows_call(call):
            if n.ahead < 0 or intent is Intent.UNKNOWN:
                self._refused[n.slot] = label
            self._ask(str(call), Player.call, self._model.called, call)

    def _repeat(self, n: Numbers, change: Change) -> None:
        label = self._known(n)
        if self._model.allows_repeat(n.slot, label):
            words = f"again {n.slot}/{label}, {change}"
            self._ask(words, Player.repeat, self._model.repeated, n.slot, label, change)

    def _new(self) -> int:
        self._label += 1
        return self._label

    def _known(self, n: Numbers) -> int:
        """The label of a call in the slot's session, or else the newest label of all."""
        labels = self._model.labels(n.slot)
        return labels[max(0, len(labels) - 1 - n.back)] if labels else self._label

    def _ask(
        self,
        words: str,
        request: Callable[..., Coroutine[Any, Any, Any]],
        compare: Callable[..., None],
        *values: Any,
    ) -> None:
        """Sends a request and compares its answer. Raises Broken if it breaks the contract."""
        self._requests.append(words)
        try:
            compare(*values, self._wait(lambda: answer_of(request(self._player, *values))))
        except Exception as error:  # noqa: BLE001 - an answer can make no sense to the player
            seen = str(error)
        else:
            return
        raise Broken(f"{'; '.join(self._requests)}: {seen}")


Request = Callable[[History, Numbers], None]
Step = tuple[Request, Numbers]

_WEIGHTS: dict[Request, int] = {
    History.effect: 14,
    History.read: 8,
    History.call: 14,
    History.repeat: 14,
    History.repeat_changed: 10,
    History.open: 4,
    History.open_again: 4,
    History.sleep: 6,
    History.come_late: 3,
    History.cancel: 8,
    History.burst: 6,
    History.renew: 6,
    History.look: 6,
    History.fork: 3,
    History.close: 2,
    History.list: 1,
}


class Plan:
    """What the histories of one seed have in common.

    Some requests are frequent, others rare or absent: histories that differ find more faults than
    histories that are alike (swarm testing, Groce et al., 2012).
    """

    def __init__(self, draw: Random, tools: int) -> None:
        """`tools`: number of tools in each session."""
        factors = [1.0, *draw.choices((0.0, 0.3, 1.0, 1.0, 3.0), k=len(_WEIGHTS) - 1)]
        weights = [
            factor * weight for factor, weight in zip(factors, _WEIGHTS.values(), strict=True)
        ]
        self._requests = [History.pause, *draw.choices(list(_WEIGHTS), weights, k=60)]
        self._slots = draw.choice((1, 2, 2, 3, SLOTS))
        self._tools = tools
        self.begin: list[Step] = [
            (History.open, Numbers()),
            (History.open, Numbers(1, other=draw.randrange(OWNERS))),
        ]
        self.end = list(_end(tools))

    def step(self, drawn: bytes) -> Step:
        """The step that six bytes choose."""
        request, slot, tool, ahead, back, other = drawn
        return self._requests[request % len(self._requests)], Numbers(
            slot=slot % self._slots,
            tool=tool % self._tools,
            ahead=(0, 0, 0, 1, 2, -1)[ahead % 6],
            back=back % 6,
            other=other % 23,
        )


def _end(tools: int) -> Iterator[Step]:
    """The end of a history: requests that show earlier faults."""
    for owner in range(OWNERS):
        yield History.renew, Numbers(other=30 + owner)
    for slot in range(SLOTS):
        yield History.open_again, Numbers(slot)
        yield History.call, Numbers(slot, ahead=-1)
        yield History.look, Numbers(slot)
        yield from ((History.repeat, Numbers(slot, back=back)) for back in range(REPEATED))
        yield History.cancel, Numbers(slot, back=1)
        yield from ((History.read, Numbers(slot, tool)) for tool in range(tools))
