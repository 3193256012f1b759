"""The contract of ToolService as a pure state machine.

`Model.allows` says whether a step makes sense now, `Model.follow` whether what was seen of it is
what the contract says, and goes on from there. Where the contract leaves a choice, the model takes
what was seen for the service's, and holds the service to it.

Invariants
- It knows no service, no clock and no message: it is driven with the values of `steps`.
- A step that the contract does not decide is not allowed: what fails breaks the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolsvc.check.model.steps import (
    Again,
    Burst,
    Call,
    Cancel,
    Cancelled,
    Change,
    Close,
    Closed,
    Deed,
    Fork,
    Late,
    Leases,
    List,
    Listed,
    Look,
    Open,
    Opened,
    Refused,
    Renew,
    Result,
    Results,
    Running,
    Seen,
    Sleep,
    Step,
    Told,
)
from toolsvc.check.types import CheckFailed, expect

GONE = ("SESSION_CLOSED", "SESSION_NOT_FOUND")
TAKEN = ("CALL_ID_REUSED", "RESULT_FORGOTTEN")
FORKED = -1
"""In place of a task."""
_SIDE_BY_SIDE = (Deed.EFFECT, Deed.ECHO, Deed.ANY)
"""Deeds whose results do not depend on which of them was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a tool can be brought to."""

    deeds: frozenset[Deed]
    parallel: bool = False
    sleeps: bool = False
    """And can be stopped."""
    forks: bool = False
    replays: bool = False


@dataclass(slots=True)
class _Made:
    """A call that has begun. `result` is its record; None while it sleeps."""

    tool: int
    turn: int
    result: Result | None = None
    forgotten: bool = False


@dataclass(slots=True)
class _Session:
    owner: int
    task: int
    counters: list[int]
    calls: dict[int, _Made] = field(default_factory=dict)
    inherited: frozenset[int] = frozenset()
    turn: int = 0
    """The newest."""
    acknowledged: int = 0
    """Results of turns below it need not be held, and no new call is of one."""
    began: list[frozenset[int]] = field(default_factory=list)
    """Labels in the order of their running; those of a burst have none."""
    perhaps: set[int] = field(default_factory=set)
    """Labels of which GetSession may tell or not."""
    sleeping: int | None = None
    lost: bool = False

    @property
    def undecided(self) -> set[int]:
        """Labels that the parent may have run, and the fork with it."""
        return self.perhaps & self.inherited


class Model:
    def __init__(self, tools: Sequence[Traits]) -> None:
        self.tools = tools
        self._open: dict[int, _Session] = {}
        self._ended: set[int] = set()
        self._made: set[tuple[int, int]] = set()
        self._listed: bytes | None = None

    def turn(self, slot: int, ahead: int) -> int:
        """Of a new call."""
        session = self._open.get(slot)
        return max(0, ahead + (0 if session is None else session.turn))

    def calls(self, slot: int) -> list[int]:
        """Labels of those that were made in the slot's session."""
        session = self._open.get(slot)
        return [] if session is None else list(session.calls)

    def opening(self, slot: int) -> Open | None:
        """The step that opens the slot's session once more, if one is open."""
        session = self._open.get(slot)
        return None if session is None else Open(slot, session.owner, session.task)

    def allows(self, step: Step) -> bool:
        match step:
            case Open(slot):
                # Whether a fork's request is an opening's, the contract does not say.
                session = self._open.get(slot)
                return session is None or not (session.lost or session.task == FORKED)
            case Call(slot):
                return self._allows_call(step)
            case Burst(calls):
                return all(
                    one.slot in self._open
                    and one.ahead == 0
                    and one.deed in _SIDE_BY_SIDE
                    and one.label not in self._open[one.slot].inherited
                    and self._allows_call(one)
                    for one in calls
                )
            case Sleep(slot, label, tool):
                session = self._open.get(slot)
                return (
                    session is not None
                    and session.sleeping is None
                    and self.tools[tool].sleeps
                    and label not in session.inherited
                    and self._allows_call(Call(slot, label, Deed.ANY, tool))
                )
            case Late(slot, label, tool):
                session = self._open.get(slot)
                return (
                    session is not None
                    and session.sleeping is not None
                    and session.calls[session.sleeping].tool == tool
                    and not self.tools[tool].parallel
                    and label not in session.calls
                    and label not in session.inherited
                )
            case Again(slot, label):
                session = self._open.get(slot)
                if session is None:
                    return (slot, label) in self._made
                return label in session.calls and not session.lost
            case Cancel(slot):
                return not self._is_lost(slot)
            case Fork(slot, child):
                parent = self._open.get(slot)
                return (
                    parent is not None
                    and parent.sleeping is None
                    and not parent.lost
                    and child not in self._open
                    and child not in self._ended
                    and all(tool.forks for tool in self.tools)
                )
            case Look(slot):
                return not self._is_lost(slot)
            case _:
                return True

    def follow(self, step: Step, seen: Seen) -> None:
        """CheckFailed where what was seen is not what the contract says."""
        match step:
            case Open():
                self._open_session(step, seen)
            case Close(slot):
                was_open = self._open.pop(slot, None) is not None
                if was_open:
                    self._ended.add(slot)
                _same(seen, Closed(was_open))
            case List():
                expect(isinstance(seen, Listed), _instead(seen, "a list"))
                self._listed = self._listed or seen.record  # type: ignore[union-attr]
                expect(seen == Listed(self._listed), "the list of tools is another one")
            case Renew():
                self._renew(step, seen)
            case Fork():
                self._fork(step, seen)
            case Burst(calls):
                expect(isinstance(seen, Results), _instead(seen, "results"))
                self._burst(calls, seen.results)  # type: ignore[union-attr]
            case Call() | Sleep() | Late() | Again() | Cancel() | Look():
                session = self._open.get(step.slot)
                if session is None:
                    reasons = GONE if step.slot in self._ended else ("SESSION_NOT_FOUND",)
                    _refused(seen, *reasons, *_unserved(step))
                else:
                    self._in_session(session, step, seen)

    def _in_session(
        self, session: _Session, step: Call | Sleep | Late | Again | Cancel | Look, seen: Seen
    ) -> None:
        match step:
            case Call():
                self._call(session, step, seen)
            case Sleep(slot, label, tool):
                _same(seen, Running())
                session.calls[label] = _Made(tool, session.turn)
                session.sleeping = label
                session.acknowledged = session.turn
                self._began(slot, label)
                session.perhaps.add(label)
            case Late():
                _refused(seen, "QUEUE_LIMIT")
            case Again():
                _again(session, step, seen)
            case Cancel(_, label):
                _cancel(session, label, seen)
            case Look():
                _look(session, seen)

    def _is_lost(self, slot: int) -> bool:
        return slot in self._open and self._open[slot].lost

    def _allows_call(self, step: Call) -> bool:
        if step.deed is not Deed.UNKNOWN and step.deed not in self.tools[step.tool].deeds:
            return False
        session = self._open.get(step.slot)
        if session is None:
            return True
        if session.lost or step.label in session.calls or step.label in session.undecided:
            return False
        if session.sleeping is not None:
            return self.tools[step.tool].parallel and step.ahead == 0
        if step.deed is Deed.UNKNOWN:
            # Whether a refused call acknowledges, the contract does not say.
            return step.ahead == 0
        return step.ahead >= 0 or session.turn + step.ahead in range(session.acknowledged)

    def _open_session(self, step: Open, seen: Seen) -> None:
        session = self._open.get(step.slot)
        if session is not None and (session.owner, session.task) != (step.owner, step.task):
            _refused(seen, "INVALID_REQUEST")
            return
        if step.slot in self._ended and isinstance(seen, Refused):
            _refused(seen, *GONE)
            return
        _same(seen, Opened(same=True))
        if session is None:
            self._open[step.slot] = _Session(step.owner, step.task, [0] * len(self.tools))

    def _call(self, session: _Session, step: Call, seen: Seen) -> None:
        turn = self.turn(step.slot, step.ahead)
        if step.label in session.inherited:
            _refused(seen, *TAKEN)
        elif turn < session.acknowledged:
            _refused(seen, "RESULT_FORGOTTEN")
        elif step.deed is Deed.UNKNOWN:
            _refused(seen, "UNKNOWN_TOOL")
        else:
            result = _result(seen)
            self._record(session, step, turn, result)
            self._began(step.slot, step.label)
            if step.deed is Deed.READ:
                counter = session.counters[step.tool]
                expect(result.number == counter, f"the counter is {result.number}, not {counter}")

    def _record(self, session: _Session, step: Call, turn: int, result: Result) -> None:
        session.calls[step.label] = _Made(step.tool, turn, result)
        session.turn = session.acknowledged = max(session.turn, turn)
        session.lost = session.lost or result.lost
        if step.deed is Deed.ECHO:
            word = word_of(step)
            expect(word in result.text, f"the call for {word!r} got {result.text[:40]!r}")
        if step.deed is Deed.EFFECT:
            session.counters[step.tool] += 1
        if step.deed in (Deed.EFFECT, Deed.READ, Deed.ECHO):
            expect(not result.error, f"it came to the tool error {result.error}")
        if step.deed is Deed.FAIL:
            expect(result.error, "a call that fails came to no tool error")
        expect(
            result.valid or step.deed in (Deed.ANY, Deed.FAIL, Deed.UNREADABLE),
            "an action of the tool was called invalid",
        )
        if step.deed is Deed.UNREADABLE:
            expect(not result.valid, "what is no action was called valid")
        if not result.valid:
            session.perhaps.add(step.label)

    def _burst(self, calls: Sequence[Call], results: Sequence[Result | Refused]) -> None:
        first: dict[Call, Result | Refused] = {}
        for call, result in zip(calls, results, strict=True):
            known = first.setdefault(call, result)
            expect(known == result, f"{call}, sent twice at once, has two answers")
        for call, result in first.items():
            session = self._open[call.slot]
            self._record(session, call, session.turn, _result(result))
        for slot in {call.slot for call in first}:
            labels = frozenset(call.label for call in first if call.slot == slot)
            self._began(slot, *labels)

    def _began(self, slot: int, *labels: int) -> None:
        self._open[slot].began.append(frozenset(labels))
        self._made.update((slot, label) for label in labels)

    def _renew(self, step: Renew, seen: Seen) -> None:
        expect(isinstance(seen, Leases), _instead(seen, "leases"))
        assert isinstance(seen, Leases)
        own = {slot for slot, one in self._open.items() if one.owner == step.owner}
        sure = {slot for slot in own if not self._open[slot].lost}
        expect(
            sure <= seen.held <= own, f"held are {sorted(seen.held)}, and open are {sorted(own)}"
        )
        lost = set(step.believed) - seen.held
        expect(seen.lost == lost, f"lost are {sorted(seen.lost)}, not {sorted(lost)}")

    def _fork(self, step: Fork, seen: Seen) -> None:
        if any(tool.replays for tool in self.tools) and seen == Refused("NOT_SERVED"):
            return
        _same(seen, Opened(same=True))
        parent = self._open[step.slot]
        self._open[step.child] = _Session(
            parent.owner,
            FORKED,
            list(parent.counters),
            inherited=parent.inherited.union(parent.calls),
            turn=parent.turn,
            began=list(parent.began),
            perhaps=set(parent.perhaps),
        )


def word_of(call: Call) -> str:
    """What an echo is told to say."""
    return f"word-{call.slot}-{call.label}-"


def _again(session: _Session, step: Again, seen: Seen) -> None:
    call = session.calls[step.label]
    old = call.turn < session.acknowledged
    if step.change not in (Change.NONE, Change.LIMITS):
        _refused(seen, "CALL_ID_REUSED", *(["RESULT_FORGOTTEN"] if old else []))
    elif call.result is None:
        _same(seen, Running())
    elif isinstance(seen, Refused) and old:
        _refused(seen, "RESULT_FORGOTTEN")
        call.forgotten = True
    else:
        expect(_result(seen) == call.result, "the answer is not the recorded one")
        expect(not call.forgotten, "a result that was forgotten is there again")


def _cancel(session: _Session, label: int, seen: Seen) -> None:
    if session.sleeping != label:
        _same(seen, Cancelled(stopped=False))
        return
    expect(isinstance(seen, Cancelled) and seen.stopped, _instead(seen, "a call that was stopped"))
    assert isinstance(seen, Cancelled)
    result = _result(seen.result)
    expect(result.error == "CANCELLED", f"a cancelled call answered {result.error or 'no error'}")
    session.calls[label].result = result
    session.sleeping = None
    session.lost = result.lost


def _look(session: _Session, seen: Seen) -> None:
    if isinstance(seen, Refused):
        _refused(seen, "NOT_SERVED")
        return
    expect(isinstance(seen, Told), _instead(seen, "what ran"))
    assert isinstance(seen, Told)
    perhaps = session.perhaps
    told = [label for label in seen.labels if label not in perhaps]
    ran = [group - perhaps for group in session.began]
    wrong = f"GetSession tells of the calls {told}; there ran {[sorted(one) for one in ran if one]}"
    expect(len(set(seen.labels)) == len(seen.labels), f"{wrong}: one stands there twice")
    expect(len(told) == sum(map(len, ran)), wrong)
    for group in ran:
        expect(set(told[: len(group)]) == group, wrong)
        told = told[len(group) :]


def _unserved(step: Step) -> tuple[str, ...]:
    return ("NOT_SERVED",) if isinstance(step, Look) else ()


def _result(seen: Seen | None) -> Result:
    if not isinstance(seen, Result):
        raise CheckFailed(_instead(seen, "a result"))
    return seen


def _refused(seen: Seen, *reasons: str) -> None:
    expect(
        isinstance(seen, Refused) and seen.reason in reasons, _instead(seen, " or ".join(reasons))
    )


def _same(seen: Seen, wanted: Seen) -> None:
    expect(seen == wanted, _instead(seen, str(wanted)))


def _instead(seen: Seen | None, wanted: str) -> str:
    return f"{str(seen)[:120]}, not {wanted}"
