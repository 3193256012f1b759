"""The state of the turn loop that an attempt's events fold to. Pure.

`fold(events)` is `apply` from left to right, so folding a prefix and going on gives the same as
folding the whole.

Invariants
- Its tokens are one `Chain`, which only grows until a rewrite begins the next one. Those of an
  outside agent are a `Forest`: a turn is a completion that the agent got.
- After `Ended` only `Scored` is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import reduce
from typing import Any

import msgspec
from msgspec.structs import replace

from engine.core.trajectory.chain import Chain, ImageSlot
from engine.core.trajectory.events import (
    Acted,
    Answered,
    AnyEvent,
    Appended,
    Asked,
    Begun,
    Called,
    Dropped,
    Ended,
    Forked,
    Noted,
    Opened,
    Replied,
    Rewarded,
    Rewritten,
    Scored,
    Streamed,
)
from engine.core.trajectory.forest import Forest
from engine.core.trajectory.partials import with_part
from engine.types import Generated, SessionRef, ToolSpec, tools_of
from toolwright.types import (
    ActionTimings,
    CallRecord,
    CallTimings,
    FinishReason,
    Ids,
    SamplingParams,
    Segment,
    segments_after,
)
from toolwright.types import Event as Note


class LogError(ValueError):
    """Events in an order that no attempt can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the policy wrote in one turn."""

    text: str
    stop: str | None
    finish: FinishReason
    tokens: int
    """Number of tokens."""
    ends_turn: bool = False
    """Whether `stop` is the end of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """The point at which a log begins by reference to another."""

    parent: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRewrite:
    """The end of one chain and the begin of the next one."""

    chain: Chain
    """The chain that ended."""
    shared: int
    """Number of its first tokens that the next one copies, an image counted as one."""
    turn: int
    """First turn of the next one."""


FORKED = "sequence_forked"
"""Kind of the note about the begin of another sequence."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one attempt. A protocol reads it and must not change it. (A Struct, because
    every event replaces it: that costs 0.3 us, a frozen dataclass of so many fields 8 us.)"""

    sessions: tuple[SessionRef, ...] = ()
    sampling: SamplingParams | None = None
    chain: Chain = Chain()
    """The context now."""
    rewrites: tuple[ContextRewrite, ...] = ()
    """Earlier contexts, oldest first."""
    forest: Forest | None = None
    """The calls of an outside agent, in place of `chain`."""
    reported: Rewarded | None = None
    """What the agent or its environment reported as the reward."""
    tools: tuple[ToolSpec, ...] = ()
    actions: tuple[Action, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    """Calls with an outcome, in the order of their answers."""
    open_calls: tuple[Called, ...] = ()
    """Calls that wait for their outcome."""
    partial: Generated | None = None
    """Tokens of an action in progress."""
    observed: int = 0
    """Number of turns whose observation is complete."""
    fitted: bool = True
    """Whether the whole last observation found room."""
    events: tuple[Note, ...] = ()
    fork: ForkPoint | None = None
    ended: Ended | None = None
    rewarded: Scored | None = None
    """Score by the reward function and the stop rules."""
    hooked: Scored | None = None
    """Score by the group hook, on top of `rewarded`."""
    action_timings: tuple[ActionTimings, ...] = ()
    iteration: str = ""
    """The iteration that the group began in, RUN.STEP."""
    clock_s: float = 0.0
    open_s: float = 0.0
    generate_s: float = 0.0
    tool_s: float = 0.0

    @property
    def score(self) -> Scored | None:
        """The score that counts."""
        return self.hooked or self.rewarded

    @property
    def token_ids(self) -> Ids:
        """[n] int32, what the next request begins with."""
        return self.chain.token_ids

    @property
    def response_ids(self) -> int:
        """Number of `token_ids` after the prompt; tokens that the policy wrote for an outside
        agent."""
        return self.chain.response_ids if self.forest is None else self.forest.written

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All runs of tokens in the context now, in order."""
        return self.chain.segments

    @property
    def history(self) -> tuple[Segment, ...]:
        """All runs of tokens of all contexts, in order, without copies."""
        if self.forest is not None:
            return tuple(segment for path in self.forest.paths() for segment in path.own)
        chains = [one.chain for one in self.rewrites] + [self.chain]
        shared = [0, *(one.shared for one in self.rewrites)]
        return tuple(
            segment
            for chain, start in zip(chains, shared, strict=True)
            for segment in segments_after(chain.segments, start)
        )

    @property
    def images(self) -> tuple[ImageSlot, ...]:
        """All images of the context now, one for each placeholder in `token_ids`."""
        return self.chain.images

    @property
    def opened(self) -> bool:
        """Whether the attempt has its sessions and its prompt, or its agent may call."""
        return bool(self.chain.segments) or self.forest is not None

    @property
    def turn(self) -> int:
        """The turn in progress, from 0: turns whose observation is complete."""
        return self.observed

    @property
    def acted(self) -> bool:
        """Whether the action of the turn in progress is written."""
        return len(self.actions) > self.observed

    @property
    def last_text(self) -> str:
        """Text of the last action, without the end of its turn."""
        if not self.actions:
            return ""
        last = self.actions[-1]
        return last.text.removesuffix(last.stop or "") if last.ends_turn else last.text

    def before_action(self, turn: int) -> Ids:
        """Ids before the action of a turn; all ids if that turn has no action yet."""
        ended = next((one.chain for one in self.rewrites if turn < one.turn), self.chain)
        return ended.before_action(turn)

    def calls_of(self, turn: int) -> tuple[CallRecord, ...]:
        """Answered calls of one turn, in call order."""
        found = [call for call in self.calls if call.turn == turn]
        return tuple(sorted(found, key=lambda call: call.index))

    def dispatched(self, turn: int) -> int:
        """Number of calls of a turn that were sent, answered ones included."""
        answered = [call.turn for call in self.calls].count(turn)
        return answered + [call.turn for call in self.open_calls].count(turn)


EMPTY = State()


def fold(events: Iterable[AnyEvent], state: State = EMPTY) -> State:
    """The state after all events. Raises LogError for an order that no attempt has."""
    return reduce(apply, events, state)


def apply(state: State, event: AnyEvent) -> State:
    """The state after one more event. Raises LogError if it cannot follow."""
    if state.ended is not None and not isinstance(event, Scored):
        raise LogError(f"{type(event).__name__} after the end")
    if not state.opened and not isinstance(event, Opened | Begun | Ended | Scored):
        raise LogError(f"{type(event).__name__} before anything was opened")
    if state.forest is not None and (grow := _GROW.get(type(event))):
        try:
            return grow(state, state.forest, event)
        except ValueError as error:
            raise LogError(str(error)) from error
    return _APPLY[type(event)](state, event)


def _opened(state: State, event: Opened) -> State:
    if state.opened:
        raise LogError("Opened twice")
    return replace(
        state,
        sessions=event.sessions,
        tools=tools_of(event.sessions),
        sampling=event.sampling,
        chain=Chain.begun(event.prompt, event.images),
        iteration=event.iteration,
        clock_s=event.clock_s,
        open_s=event.seconds,
    )


def _forked(state: State, event: Forked) -> State:
    if state.acted or state.open_calls:
        raise LogError("Forked inside a turn")
    return replace(
        state,
        sessions=event.sessions,
        tools=tools_of(event.sessions),
        fork=ForkPoint(parent=event.parent, offset=event.offset),
    )


def _streamed(state: State, event: Streamed) -> State:
    if state.acted:
        raise LogError("Streamed after the action was complete")
    return replace(state, partial=with_part(state.partial, event))


def _acted(state: State, event: Acted) -> State:
    if state.acted:
        raise LogError("Acted twice in a turn")
    turn = state.turn
    try:
        chain = state.chain.acted(
            event.token_ids,
            event.logprobs,
            event.versions,
            turn=turn,
            sampling=state.sampling,
            finish=event.finish,
            image_tokens=event.image_tokens,
        )
    except ValueError as error:
        raise LogError(str(error)) from error
    return _with_action(replace(state, chain=chain, partial=None), event)


def _with_action(state: State, event: Acted) -> State:
    action = Action(
        text=event.text,
        stop=event.stop,
        finish=event.finish,
        tokens=len(event.token_ids),
        ends_turn=event.ends_turn,
    )
    stamps = ActionTimings(
        turn=len(state.actions),
        asked_ns=event.asked_ns,
        first_ns=event.first_ns,
        acted_ns=event.acted_ns,
    )
    return replace(
        state,
        actions=(*state.actions, action),
        action_timings=(*state.action_timings, stamps) if event.asked_ns else state.action_timings,
        generate_s=state.generate_s + event.seconds,
    )


def _called(state: State, event: Called) -> State:
    if event.turn != state.turn or event.index != state.dispatched(event.turn):
        raise LogError(f"call {event.call_id} out of order")
    return replace(state, open_calls=(*state.open_calls, event))


def _answered(state: State, event: Answered) -> State:
    called = next((one for one in state.open_calls if one.call_id == event.call_id), None)
    if called is None:
        raise LogError(f"an answer to {event.call_id}, which is not open")
    tool, outcome = event.outcome.tool or called.tool, event.outcome
    if not outcome.tool:
        outcome = replace_fields(outcome, tool=tool)
    record = CallRecord(
        call_id=event.call_id,
        turn=called.turn,
        index=called.index,
        tool=tool,
        action=called.action,
        outcome=outcome,
        timings=CallTimings(
            stop_read_ns=called.stop_read_ns,
            dispatched_ns=called.dispatched_ns,
            result_ns=event.result_ns,
        ),
    )
    known = {tool.name for tool in state.tools}
    gained = tuple(tool for tool in event.new_tools if tool.name not in known)
    events = state.events
    if gained:
        data = {"tool": tool, "names": [one.name for one in gained]}
        events = (*events, Note(kind="tools_added", turn=called.turn, data=data))
    return replace(
        state,
        events=events,
        calls=(*state.calls, record),
        open_calls=tuple(one for one in state.open_calls if one is not called),
        tools=state.tools + gained,
    )


def _appended(state: State, event: Appended) -> State:
    if not state.acted or state.open_calls:
        raise LogError("Appended before the turn's action and answers")
    return replace(
        state,
        chain=state.chain.appended(
            event.token_ids, event.author, turn=state.turn, images=event.images
        ),
        observed=state.observed + event.last,
        fitted=event.fitted,
        tool_s=state.tool_s + event.seconds,
    )


def _rewritten(state: State, event: Rewritten) -> State:
    if state.open_calls or state.partial is not None:
        raise LogError("Rewritten inside an action or before the answers to its calls")
    if not 0 <= event.shared <= len(state.token_ids):
        raise LogError(f"Rewritten with {event.shared} shared tokens of {len(state.token_ids)}")
    turn = state.turn + state.acted
    ended = ContextRewrite(chain=state.chain, shared=event.shared, turn=turn)
    data = {
        "cause": event.cause,
        "sequence": len(state.rewrites) + 1,
        "shared": event.shared,
        "before": len(state.token_ids),
        "after": event.shared + len(event.token_ids),
    }
    return replace(
        state,
        chain=state.chain.rewritten(
            event.shared, event.token_ids, turn=turn, shown=event.shown, images=event.images
        ),
        rewrites=(*state.rewrites, ended),
        observed=turn,
        fitted=True,
        events=(*state.events, Note(kind=FORKED, turn=turn, data=data)),
    )


def _begun(state: State, event: Begun) -> State:
    if state.opened:
        raise LogError("Begun after the attempt was opened")
    return replace(
        state,
        forest=Forest(begun=event),
        sampling=event.sampling,
        iteration=event.iteration,
        clock_s=event.clock_s,
        open_s=event.seconds,
    )


def _replied(state: State, forest: Forest, event: Replied) -> State:
    forest = forest.replied(event)
    notes = list[Note]()
    for node in forest.call(event.call):
        if node.acted is None or node.turn is None:
            continue
        state = _with_action(state, node.acted)
        if cause := forest.fork_cause(node):
            data = {"cause": cause, "shared": node.start if node.choice else node.asked.shared}
            notes.append(Note(kind=FORKED, turn=node.turn, data=data))
    events = (*state.events, *notes)
    return replace(state, forest=forest, observed=len(state.actions), events=events)


def _called_outside(state: State, _forest: Forest, event: Called) -> State:
    if event.turn >= state.turn or event.index != state.dispatched(event.turn):
        raise LogError(f"call {event.call_id} out of order")
    return replace(state, open_calls=(*state.open_calls, event))


def _reported(state: State, _forest: Forest, event: Rewarded) -> State:
    before = state.reported or event
    parts = {(part.name, part.turn): part for part in (*before.parts, *event.parts)}
    reward = before.reward if event.reward is None else event.reward
    return replace(state, reported=Rewarded(reward=reward, parts=tuple(parts.values())))


def _misplaced(_state: State, event: AnyEvent) -> State:
    raise LogError(f"{type(event).__name__} in the log of another kind of attempt")


def _noted(state: State, event: Noted) -> State:
    return replace(state, events=(*state.events, event.note))


def _ended(state: State, event: Ended) -> State:
    return replace(state, ended=event, partial=None)


def _scored(state: State, event: Scored) -> State:
    if state.ended is None:
        raise LogError("Scored before the end")
    if event.hooked:
        return replace(state, hooked=event)
    return replace(state, rewarded=event, hooked=None)


_APPLY: dict[type, Callable[[State, Any], State]] = {
    Opened: _opened,
    Forked: _forked,
    Streamed: _streamed,
    Acted: _acted,
    Called: _called,
    Answered: _answered,
    Appended: _appended,
    Rewritten: _rewritten,
    Noted: _noted,
    Ended: _ended,
    Scored: _scored,
    Begun: _begun,
    Asked: _misplaced,
    Replied: _misplaced,
    Dropped: _misplaced,
    Rewarded: _misplaced,
}

_GROW: dict[type, Callable[[State, Forest, Any], State]] = {
    Asked: lambda state, forest, event: replace(state, forest=forest.asked(event)),
    Streamed: lambda state, forest, event: replace(state, forest=forest.streamed(event)),
    Acted: lambda state, forest, event: replace(state, forest=forest.acted(event)),
    Replied: _replied,
    Dropped: lambda state, forest, event: replace(state, forest=forest.dropped(event)),
    Called: _called_outside,
    Rewarded: _reported,
}
"""How a forest's state follows an event; other events are as in our own loop."""
