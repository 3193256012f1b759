"""What a trajectory does next, given its state: the turn loop as a pure function.

The loop calls `next_step(state, rules)` after every event and carries out the answer. A later life
of the engine that goes on from the same events does the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import is_
from typing import cast

from engine.core.images.placeholders import forges
from engine.core.protocols import Protocol, Rewriting
from engine.core.protocols.spoken import spoken
from engine.core.trajectory.chain import ImageSlot
from engine.core.trajectory.state import Action, State
from engine.types import Answer, Call, Calls, Codec, Decision, End, Rewrite, Say, View
from toolwright.recipe import Limits
from toolwright.text.truncation import Keep
from toolwright.types import Author, FinishKind, StopReason, Task, ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for all trajectories of a run."""

    protocol: Protocol
    codec: Codec
    limits: Limits
    observation_keep: Keep
    """Which end of a long observation stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Ask the sampler for at most `room` tokens."""

    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Send these calls; the first one is number `first` of the turn."""

    calls: tuple[Call, ...]
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Wait for the answer to an open call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """All calls of the turn are answered: append their outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The trajectory is over."""

    reason: StopReason
    answer: str | None = None
    """What the protocol read as the answer; None without one."""


class DecisionCache:
    """The last decision of an attempt's protocol. The protocol decides once for an action. It
    decides again only if tools or events came since, because its view is then another one."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._decision: Decision | None = None

    def recall(self, state: State) -> Decision | None:
        """The decision; None if the protocol must decide."""
        same = self._seen and all(map(is_, self._seen, _seen(state)))
        return self._decision if same else None

    def keep(self, state: State, decision: Decision) -> None:
        self._seen, self._decision = _seen(state), decision


def _seen(state: State) -> tuple[object, ...]:
    return state.actions[-1], state.tools, state.events


Step = Generate | Dispatch | Await | Observe | Say | Rewrite | Finish


def view(state: State, task: Task) -> View:
    """The state as a protocol sees it while the turn in progress is decided."""
    turn = state.turn
    return View(
        task=task,
        turn=turn,
        actions=tuple(action.text for action in state.actions[:turn]),
        calls=tuple(call for call in state.calls if call.turn < turn),
        events=state.events,
        tools=state.tools,
    )


def next_step(
    state: State, rules: Rules, task: Task, decided: DecisionCache | None = None
) -> Step | None:
    """The next step; None after the end. decided: the attempt's cache, which spares a second
    decision."""
    if state.ended is not None:
        return None
    if state.acted:
        return _after_action(state, rules, task, decided or DecisionCache())
    return _before_action(state, rules, task)


def calls_at(text: str, mark: str, state: State, rules: Rules, task: Task) -> Dispatch | None:
    """Calls that may be sent while the action is still being written; `text` ends on a mark."""
    if state.turn >= rules.limits.turns:
        return None
    said = spoken(text, state.token_ids, state.tools, rules.protocol, rules.codec)
    decision = rules.protocol.decide(said, mark, view(state, task), rules.codec)
    return _dispatch(state, decision, rules) if isinstance(decision, Calls) else None


def spoken_of(state: State, turn: int, protocol: Protocol, codec: Codec) -> str:
    """What the protocol reads of a turn's action."""
    text = state.actions[turn].text
    if codec.thought is None:
        return text
    return spoken(text, state.before_action(turn), state.tools, protocol, codec)


def action_room(state: State, limits: Limits) -> int:
    """Tokens that the policy may still write. `limits.policy` counts actions alone; without it,
    observations take from the same budget."""
    if limits.policy:
        return limits.policy - sum(action.tokens for action in state.actions)
    return response_room(state, limits)


def observation_room(state: State, limits: Limits) -> int:
    """Tokens that the environment may still write. Under `limits.policy` only the context bounds
    them."""
    model = model_room(state, limits)
    return model if limits.policy else min(model, response_room(state, limits))


def response_room(state: State, limits: Limits) -> int:
    """Response tokens that may still come; below 0 if images took more than was reserved."""
    images = (slot for slot in state.images if slot.in_response)
    return limits.response - state.response_ids - extra_tokens(images, limits)


def model_room(state: State, limits: Limits) -> int:
    """Tokens that are left of the sampler's context."""
    return limits.model - len(state.token_ids) - extra_tokens(state.images, limits)


def extra_tokens(images: Iterable[ImageSlot], limits: Limits) -> int:
    """Tokens that images take in addition to the one placeholder of each in `token_ids`."""
    return sum((slot.tokens or limits.image_tokens) - 1 for slot in images)


def _before_action(state: State, rules: Rules, task: Task) -> Step:
    limits = rules.limits
    response, model = action_room(state, limits), model_room(state, limits)
    if state.observed:
        outcomes = [call.outcome for call in state.calls_of(state.observed - 1)]
        if any(outcome.session_lost for outcome in outcomes):
            return Finish(reason=StopReason.SESSION_LOST)
        if any(outcome.done for outcome in outcomes):
            return Finish(reason=StopReason.TOOL_SIGNALED_DONE)
        if rewrite := _rewrite(state, rules, task):
            return rewrite
        if not state.fitted:
            full = StopReason.MAX_MODEL_LENGTH if limits.policy else _full(response, model)
            return Finish(reason=full)
    if response <= 0:
        return Finish(reason=StopReason.MAX_RESPONSE_LENGTH)
    if model <= 1:
        return Finish(reason=StopReason.MAX_MODEL_LENGTH)
    room = min(limits.action, response, model)
    wanted = state.sampling.max_new_tokens if state.sampling else None
    return Generate(room=min(room, wanted or room))


def _rewrite(state: State, rules: Rules, task: Task) -> Rewrite | None:
    """What the protocol puts in place of the context, once a turn, before its action has begun."""
    protocol = rules.protocol
    if not _may_rewrite(type(protocol)) or state.partial is not None:
        return None
    if state.rewrites and state.rewrites[-1].turn == state.turn:
        return None
    seen = ids()
    for segment in state.segments:
        if segment.turn == state.turn - 1 and segment.author > Author.MODEL:
            seen.extend(segment.token_ids)
    now = replace(
        view(state, task),
        context=len(state.token_ids) + extra_tokens(state.images, rules.limits),
        room=max(0, observation_room(state, rules.limits)),
        seen=rules.codec.decode(seen),
    )
    return cast("Rewriting", protocol).rewrite(now, rules.codec)


@lru_cache(maxsize=8)
def _may_rewrite(kind: type) -> bool:
    """Whether a protocol's class is Rewriting. (To check that costs 50 us.)"""
    return issubclass(kind, Rewriting)


def _after_action(state: State, rules: Rules, task: Task, decided: DecisionCache) -> Step:
    action = state.actions[-1]
    if action.stop is None:
        return Finish(reason=_unstopped(state, action, rules.limits))
    decision = decided.recall(state)
    if decision is None:
        decision = _decision(state, action.stop, rules, task)
        decided.keep(state, decision)
    if isinstance(decision, Answer):
        return Finish(reason=StopReason.ANSWERED, answer=decision.text)
    if isinstance(decision, End):
        return Finish(reason=decision.reason)
    if state.turn >= rules.limits.turns:
        return Finish(reason=StopReason.MAX_TURNS)
    if isinstance(decision, Say | Rewrite):
        return decision
    return _dispatch(state, decision, rules) or (Await() if state.open_calls else Observe())


def _decision(state: State, stop: str, rules: Rules, task: Task) -> Decision:
    action = state.actions[-1]
    decision = rules.protocol.decide(
        spoken_of(state, state.turn, rules.protocol, rules.codec),
        stop,
        view(state, task),
        rules.codec,
    )
    mark = rules.codec.image_mark
    if mark is None or isinstance(decision, Answer | End):
        return decision
    written = rules.codec.decode(state.token_ids[len(state.token_ids) - action.tokens :])
    # No request could go on from here: the sampler would look for an image.
    return End() if forges(written, mark) else decision


def _dispatch(state: State, decision: Calls, rules: Rules) -> Dispatch | None:
    """Calls of the turn that may run now; several at once only if their tools allow it."""
    most = rules.limits.calls
    handed = state.dispatched(state.turn)
    if handed >= len(decision.calls):
        return None
    calls = decision.calls[:most]
    if len(decision.calls) > most:
        reason = f"an action may have at most {most} calls; the others were not made"
        calls = (*calls, replace(decision.calls[most], invalid_reason=reason))
    tools = {tool.name: tool for tool in state.tools}
    waiting = [one.tool for one in state.open_calls]
    now: list[Call] = []
    for call in calls[handed:]:
        busy = [tools.get(name) for name in (*waiting, *(one.tool for one in now))]
        parallel = all(tool is not None and tool.parallel_calls for tool in busy)
        known = tools.get(call.tool)
        if busy and not (parallel and known is not None and known.parallel_calls):
            break
        now.append(call)
    return Dispatch(calls=tuple(now), first=handed) if now else None


def _unstopped(state: State, action: Action, limits: Limits) -> StopReason:
    """No stop came: the budget of this action, or of the rest, is used up."""
    if not action.tokens:
        return StopReason.EMPTY_OUTPUT
    if action.finish.kind is FinishKind.STOP:
        return StopReason.NO_ACTION_IN_OUTPUT
    response, model = action_room(state, limits), model_room(state, limits)
    if response > 0 and model > 1:
        return StopReason.MAX_ACTION_LENGTH
    return _full(response, model)


def _full(response: int, model: int) -> StopReason:
    """Which budget ended the trajectory. An image that did not fit leaves room in both."""
    if model <= 0 or model < response:
        return StopReason.MAX_MODEL_LENGTH
    return StopReason.MAX_RESPONSE_LENGTH
