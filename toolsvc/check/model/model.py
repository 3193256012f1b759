"""The contract of ToolService as a pure state machine.

Each request has two methods. `allows_...` says whether the contract decides the answer now.
The other method compares the service's answer with the contract and updates the state. Where the
contract leaves a choice, the model accepts the service's choice and then requires it.

Invariants
- The model knows no service, no clock and no message. Its inputs are the values of `types`.
- The contract decides every answer that the model compares, so a difference is a breach.
- A comparison raises CheckFailed with what was seen and what the contract says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from toolsvc.check.model.types import (
    FORKED,
    Change,
    Intent,
    ModelCall,
    ModelRefused,
    ModelResult,
    ModelRunning,
    Traits,
)
from toolsvc.check.types import GONE, TAKEN, CheckFailed, expect

SIDE_BY_SIDE = (Intent.EFFECT, Intent.ECHO, Intent.ANY)
"""Intents whose results do not depend on the order of the calls."""


@dataclass(slots=True)
class _Made:
    """A call that has begun. `result`: its record, or None while it sleeps."""

    tool: int
    turn: int
    result: ModelResult | None = None
    forgotten: bool = False


@dataclass(slots=True)
class _Session:
    owner: int
    task: int
    counters: list[int]
    calls: dict[int, _Made] = field(default_factory=dict)
    inherited: frozenset[int] = frozenset()
    turn: int = 0
    """The newest turn."""
    acknowledged: int = 0
    """The service may forget results of earlier turns, and accepts no new call of them."""
    began: list[frozenset[int]] = field(default_factory=list)
    """Labels in the order in which the calls began. Calls of a burst share one entry."""
    perhaps: set[int] = field(default_factory=set)
    """Labels that GetSession may list or not."""
    sleeping: int | None = None
    lost: bool = False


class Model:
    def __init__(self, tools: Sequence[Traits]) -> None:
        self.tools = tools
        self._open: dict[int, _Session] = {}
        self._ended: set[int] = set()
        self._made: set[tuple[int, int]] = set()
        self._list: bytes | None = None

    def turn(self, call: ModelCall) -> int:
        """The turn of a new call."""
        session = self._open.get(call.slot)
        return max(0, call.ahead + (0 if session is None else session.turn))

    def labels(self, slot: int) -> list[int]:
        """Labels of the calls in the slot's open session, oldest first."""
        session = self._open.get(slot)
        return [] if session is None else list(session.calls)

    def opening(self, slot: int) -> tuple[int, int] | None:
        """Owner and task of the slot's open session."""
        session = self._open.get(slot)
        return None if session is None else (session.owner, session.task)

    def allows_open(self, slot: int) -> bool:
        # The contract does not say whether the request of a fork equals that of an opening.
        session = self._open.get(slot)
        return session is None or not (session.lost or session.task == FORKED)

    def opened(self, slot: int, owner: int, task: int, answer: bool | ModelRefused) -> None:
        """`answer`: whether the session has the id of the request."""
        known = self.opening(slot)
        if known not in (None, (owner, task)):
            _refused(answer, "INVALID_REQUEST")
        elif slot in self._ended and isinstance(answer, ModelRefused):
            _refused(answer, *GONE)
        else:
            _same(answer, True, "a session under its id")
            if known is None:
                self._open[slot] = _Session(owner, task, [0] * len(self.tools))

    def allows_call(self, call: ModelCall) -> bool:
        tool = self.tools[call.tool]
        if call.intent is not Intent.UNKNOWN and call.intent not in tool.intents:
            return False
        session = self._open.get(call.slot)
        if session is None:
            return True
        undecided = session.perhaps & session.inherited
        if session.lost or call.label in session.calls or call.label in undecided:
            return False
        if session.sleeping is not None:
            return tool.parallel and call.ahead == 0
        if call.intent is Intent.UNKNOWN:
            # The contract does not say whether a refused call acknowledges.
            return call.ahead == 0
        return call.ahead >= 0 or session.turn + call.ahead in range(session.acknowledged)

    def called(self, call: ModelCall, answer: ModelResult | ModelRefused) -> None:
        session = self._session(call.slot, answer)
        if session is None:
            return
        turn = self.turn(call)
        if call.label in session.inherited:
            _refused(answer, *TAKEN)
        elif turn < session.acknowledged:
            _refused(answer, "RESULT_FORGOTTEN")
        elif call.intent is Intent.UNKNOWN:
            _refused(answer, "UNKNOWN_TOOL")
        else:
            result = _result(answer)
            self._record(session, call, turn, result)
            self._began(call.slot, call.label)
            if call.intent is Intent.READ:
                counter = session.counters[call.tool]
                expect(result.number == counter, f"the counter is {result.number}, not {counter}")

    def allows_burst(self, calls: Sequence[ModelCall]) -> bool:
        return all(
            self._is_new(call)
            and call.ahead == 0
            and call.intent in SIDE_BY_SIDE
            and self.allows_call(call)
            for call in calls
        )

    def burst(
        self, calls: Sequence[ModelCall], answers: Sequence[ModelResult | ModelRefused]
    ) -> None:
        """Calls that were sent at the same time. A call may occur twice."""
        first: dict[ModelCall, ModelResult | ModelRefused] = {}
        for call, answer in zip(calls, answers, strict=True):
            known = first.setdefault(call, answer)
            expect(known == answer, f"{call}, sent twice at once, has two answers")
        for call, answer in first.items():
            session = self._open[call.slot]
            self._record(session, call, session.turn, _result(answer))
        for slot in {call.slot for call in first}:
            self._began(slot, *(call.label for call in first if call.slot == slot))

    def allows_sleep(self, call: ModelCall) -> bool:
        if not (self._is_new(call) and self.allows_call(call)):
            return False
        return call.ahead == 0 and self._open[call.slot].sleeping is None

    def slept(self, call: ModelCall, answer: ModelRunning | ModelRefused) -> None:
        _same(answer, ModelRunning(), "`running`")
        session = self._open[call.slot]
        session.calls[call.label] = _Made(call.tool, session.turn)
        session.sleeping = call.label
        session.acknowledged = session.turn
        self._began(call.slot, call.label)
        session.perhaps.add(call.label)

    def allows_late(self, call: ModelCall) -> bool:
        """A late call waits for a sleeping call of its tool, with a short queue limit."""
        session = self._open.get(call.slot)
        return (
            session is not None
            and session.sleeping is not None
            and session.calls[session.sleeping].tool == call.tool
            and not self.tools[call.tool].parallel
            and call.label not in session.calls
            and call.label not in session.inherited
        )

    def came_late(self, call: ModelCall, answer: ModelResult | ModelRefused) -> None:
        _refused(answer, "QUEUE_LIMIT")

    def allows_repeat(self, slot: int, label: int) -> bool:
        session = self._open.get(slot)
        if session is None:
            return (slot, label) in self._made
        return label in session.calls and not session.lost

    def repeated(
        self,
        slot: int,
        label: int,
        change: Change,
        answer: ModelRunning | ModelResult | ModelRefused,
    ) -> None:
        session = self._session(slot, answer)
        if session is None:
            return
        call = session.calls[label]
        old = call.turn < session.acknowledged
        if change not in (Change.NONE, Change.LIMITS):
            _refused(answer, *(TAKEN if old else TAKEN[:1]))
        elif call.result is None:
            _same(answer, ModelRunning(), "`running`")
        elif isinstance(answer, ModelRefused) and old:
            _refused(answer, "RESULT_FORGOTTEN")
            call.forgotten = True
        else:
            expect(_result(answer) == call.result, "the answer is not the recorded one")
            expect(not call.forgotten, "a forgotten result is back")

    def allows_request(self, slot: int) -> bool:
        """Whether CancelCall and GetSession have one right answer."""
        return slot not in self._open or not self._open[slot].lost

    def cancelled(
        self,
        slot: int,
        label: int,
        answer: tuple[bool, ModelResult | ModelRefused | None] | ModelRefused,
    ) -> None:
        """`answer`: whether CancelCall stopped the call, and if so the call's result."""
        session = self._session(slot, answer)
        if session is None:
            return
        if session.sleeping != label:
            _same(answer, (False, None), "no stopped call")
            return
        if isinstance(answer, ModelRefused) or not answer[0]:
            raise CheckFailed(_instead(answer, "a stopped call"))
        result = _result(answer[1])
        expect(result.error == "CANCELLED", f"the cancelled call answered {result.error or 'OK'}")
        session.calls[label].result = result
        session.sleeping = None
        session.lost = result.lost

    def allows_fork(self, slot: int, child: int) -> bool:
        parent = self._open.get(slot)
        return (
            parent is not None
            and parent.sleeping is None
            and not parent.lost
            and child not in self._open
            and child not in self._ended
            and all(tool.forks for tool in self.tools)
        )

    def forked(self, slot: int, child: int, answer: bool | ModelRefused) -> None:
        """`answer`: whether the fork has the id of the request."""
        if any(tool.replays for tool in self.tools) and answer == ModelRefused("NOT_SERVED"):
            return
        _same(answer, True, "a session under its id")
        parent = self._open[slot]
        self._open[child] = _Session(
            parent.owner,
            FORKED,
            list(parent.counters),
            inherited=parent.inherited.union(parent.calls),
            turn=parent.turn,
            began=list(parent.began),
            perhaps=set(parent.perhaps),
        )

    def renewed(
        self,
        owner: int,
        believed: Collection[int],
        answer: tuple[frozenset[int], frozenset[int]] | ModelRefused,
    ) -> None:
        """`answer`: slots that are held, slots that are lost; -1 for an unknown session."""
        if isinstance(answer, ModelRefused):
            raise CheckFailed(_instead(answer, "leases"))
        held, lost = answer
        own = {slot for slot, one in self._open.items() if one.owner == owner}
        sure = {slot for slot in own if not self._open[slot].lost}
        expect(sure <= held <= own, f"held are {sorted(held)}, and open are {sorted(own)}")
        gone = set(believed) - held
        expect(lost == gone, f"lost are {sorted(lost)}, not {sorted(gone)}")

    def looked(self, slot: int, answer: Sequence[int] | ModelRefused) -> None:
        """`answer`: labels of the calls that ran; -1 for a call that was never made."""
        session = self._session(slot, answer, "NOT_SERVED")
        if session is None:
            return
        if isinstance(answer, ModelRefused):
            _refused(answer, "NOT_SERVED")
            return
        perhaps = session.perhaps
        listed = [label for label in answer if label not in perhaps]
        ran = [group - perhaps for group in session.began]
        wrong = f"GetSession lists the calls {listed}; these ran: {[sorted(g) for g in ran if g]}"
        expect(len(set(answer)) == len(answer), f"{wrong}: one call is listed twice")
        expect(len(listed) == sum(map(len, ran)), wrong)
        for group in ran:
            expect(set(listed[: len(group)]) == group, wrong)
            listed = listed[len(group) :]

    def closed(self, slot: int, answer: bool | ModelRefused) -> None:
        """`answer`: whether the session was open."""
        was_open = self._open.pop(slot, None) is not None
        if was_open:
            self._ended.add(slot)
        _same(answer, was_open, f"closed={was_open}")

    def listed(self, answer: bytes | ModelRefused) -> None:
        """`answer`: all bytes of the list of tools."""
        if isinstance(answer, ModelRefused):
            raise CheckFailed(_instead(answer, "a list"))
        self._list = self._list or answer
        expect(answer == self._list, "the list of tools has changed")

    def _session(self, slot: int, answer: object, *also: str) -> _Session | None:
        """The slot's open session. Without one the answer must be a refusal that says so, or
        one of the reasons `also`."""
        session = self._open.get(slot)
        if session is None:
            _refused(answer, *(GONE if slot in self._ended else ("SESSION_NOT_FOUND",)), *also)
        return session

    def _is_new(self, call: ModelCall) -> bool:
        """Whether the slot is open and no parent of its session had the label."""
        session = self._open.get(call.slot)
        return session is not None and call.label not in session.inherited

    def _record(self, session: _Session, call: ModelCall, turn: int, result: ModelResult) -> None:
        session.calls[call.label] = _Made(call.tool, turn, result)
        session.turn = session.acknowledged = max(session.turn, turn)
        session.lost = session.lost or result.lost
        if call.intent is Intent.ECHO:
            expect(call.word in result.text, f"the call for {call.word!r} got {result}")
        if call.intent is Intent.EFFECT:
            session.counters[call.tool] += 1
        if call.intent in (Intent.EFFECT, Intent.READ, Intent.ECHO):
            expect(not result.error, f"the call has the tool error {result.error}")
        if call.intent is Intent.FAIL:
            expect(result.error, "the call fails and has no tool error")
        expect(
            result.valid or call.intent in (Intent.ANY, Intent.FAIL, Intent.UNREADABLE),
            "an action of the tool is called invalid",
        )
        if call.intent is Intent.UNREADABLE:
            expect(not result.valid, "a text that is not an action is called valid")
        if not result.valid:
            session.perhaps.add(call.label)

    def _began(self, slot: int, *labels: int) -> None:
        self._open[slot].began.append(frozenset(labels))
        self._made.update((slot, label) for label in labels)


def _result(answer: object) -> ModelResult:
    if not isinstance(answer, ModelResult):
        raise CheckFailed(_instead(answer, "a result"))
    return answer


def _refused(answer: object, *reasons: str) -> None:
    known = isinstance(answer, ModelRefused) and answer.reason in reasons
    expect(known, _instead(answer, " or ".join(reasons)))


def _same(answer: object, wanted: object, words: str) -> None:
    expect(answer == wanted, _instead(answer, words))


def _instead(answer: object, wanted: str) -> str:
    return f"{str(answer)[:120]}, not {wanted}"
