"""One attempt at one trajectory: carries out what `next_step` says, and logs the outcome.

Invariants
- The log holds everything that decides: a later life with the same events goes on the same way.
- A turn's call is sent before the stream of that turn has ended and before its event is durable.
- The policy sees what tools answered; a failure of infrastructure ends the attempt.
- The sessions are closed in every case but the engine's own end. Every call that is still in flight
  is closed with them.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import structlog

from engine.core.branching.brancher import Brancher
from engine.core.branching.budget import Branch
from engine.core.images.media import Media
from engine.core.images.placeholders import ExpansionMismatch, check_expansion, data_uri
from engine.core.rollout.action_text import action_text
from engine.core.rollout.assignment import Assignment, RolloutContext
from engine.core.rollout.attempt_start import attempt_sessions, opened_event, restore_images
from engine.core.rollout.decide import (
    Await,
    DecisionCache,
    Dispatch,
    Finish,
    Generate,
    Observe,
    Step,
    calls_at,
    next_step,
)
from engine.core.rollout.observe import Observer
from engine.core.rollout.rewriting import rewrite_context
from engine.core.sampler.policy_sampler import GenerateRequest, OnMark, ignore
from engine.core.sampler.stops import StopTable
from engine.core.text.thoughts import begins_inside
from engine.core.time_limit import TimeLimit
from engine.core.tools.calls import PendingCall
from engine.core.tools.replies import Reply, refused
from engine.core.tools.services import ToolSessions
from engine.core.trajectory.events import Acted, Answered, Called, Ended, Noted, Streamed
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.errors import SamplerFailed, SessionLost
from engine.types import Call, Generated, Images, Rewrite, Say, StopHit, ToolSpec
from toolwright.types import Event, FinishKind, Ids, StopReason, ids

LEAST_LIFE_S = 1.0
"""Shortest life of a replaceable session, in seconds. A session without state that is lost sooner
and brought no event is not replaced: the next one might be lost like it, again and again."""

SAMPLED = "sampled"
"""Kind of the note that holds a sampler's remarks about an action."""

log = structlog.get_logger("rollout")


class Rollout:
    """One attempt. `run` returns when its log has ended, or raises AttemptFailed or TaskUnfit."""

    def __init__(
        self,
        rollout_context: RolloutContext,
        assignment: Assignment,
        log: AttemptLog,
        branch: Branch | None = None,
    ) -> None:
        """log: empty for a new attempt; with events of an earlier life the attempt goes on. branch:
        what the log begins as, with its sessions."""
        self._context = rollout_context
        self._rules = rollout_context.rules
        self._assignment = assignment
        self._log = log
        known = (*assignment.media, *(branch.media if branch else ()))
        self._media: dict[str, Media] = {one.blob.sha256: one for one in known}
        self._forked = branch.tool_sessions if branch else None
        self._brancher: Brancher | None = None
        if assignment.branches is not None:
            self._brancher = Brancher(
                assignment.branches,
                log,
                task=assignment.task,
                tools=rollout_context.tools,
                pool=rollout_context.pool,
            )
        self._pending: dict[str, PendingCall] = {}
        self._answers: dict[str, asyncio.Task[Reply]] = {}
        self._image_data: dict[str, str] = {}
        self._stops: tuple[tuple[ToolSpec, ...], StopTable] | None = None
        self._broken: Exception | None = None
        self._replaced = 0
        """Number of lost sessions without state that were replaced."""
        self._decided = DecisionCache()
        self._turn_began = self._began = time.monotonic()
        self._earlier_s = self._spent_s
        self._limit = self._limit_from_here()

    @property
    def _state(self) -> State:
        return self._log.state

    @property
    def _spent_s(self) -> float:
        """Seconds that the log accounts for."""
        return self._state.open_s + self._state.generate_s + self._state.tool_s

    def _limit_from_here(self) -> TimeLimit:
        return TimeLimit(self._rules.limits.seconds, spent=self._spent_s)

    async def run(self) -> None:
        """Runs until the log has ended. Cancellation closes the sessions and propagates."""
        while True:
            length, began = self._log.length, time.monotonic()
            tool_sessions, self._forked = self._forked, None
            if tool_sessions is None:
                tool_sessions = await attempt_sessions(
                    self._context.tools, self._assignment, self._log, replaced=self._replaced
                )
            opened_at = time.monotonic()
            try:
                await self._run_in(tool_sessions, opened_at - began)
            except SessionLost as error:
                lived = time.monotonic() - opened_at >= LEAST_LIFE_S or self._log.length > length
                if not (lived and tool_sessions.stateless):
                    raise
                log.warning("session_replaced", attempt=self._log.attempt, error=str(error))
                self._replaced += 1
                self._limit = self._limit_from_here()
            else:
                return

    async def _run_in(self, tool_sessions: ToolSessions, open_s: float) -> None:
        """Runs until the log has ended. Then drops what is in flight and closes the sessions."""
        try:
            try:
                if not self._state.opened:
                    event, images = opened_event(
                        tool_sessions, self._rules, self._assignment, open_s
                    )
                    self._log.append(event, images)
                await restore_images(self._log, self._assignment, self._media)
                self._resend_calls(tool_sessions)
                self._observer = Observer(
                    self._rules, self._assignment, self._log, self._media, tool_sessions
                )
                async with self._limit, tool_sessions.until_lost():
                    await self._turns(tool_sessions)
            except TimeoutError as error:
                if not self._context.pool.any_up:  # no sampler was up: not the policy's failure
                    raise SamplerFailed(
                        "no sampler was up until the trajectory's time limit"
                    ) from error
                await tool_sessions.check_reach()
                self._end(StopReason.TRAJECTORY_TIMEOUT)
        finally:
            for answer in self._answers.values():
                answer.cancel()
            self._answers.clear()
            self._pending.clear()
            tool_sessions.close()
            self._context.pool.release(self._log.attempt)

    def _resend_calls(self, tool_sessions: ToolSessions) -> None:
        """Sends calls of an earlier life again, under their ids."""
        for called in self._state.open_calls:
            self._pending[called.call_id] = tool_sessions.resend(
                called.call,
                call_id=called.call_id,
                turn=called.turn,
                turns_left=self._turns_left(called.turn),
            )

    def _turns_left(self, turn: int) -> int:
        """Number of calls that the trajectory may still make after those of a turn."""
        return self._rules.limits.turns - turn - 1

    async def _turns(self, tool_sessions: ToolSessions) -> None:
        while step := self._next_step():
            match step:
                case Generate():
                    await self._generate(tool_sessions, step.room)
                case Dispatch():
                    self._dispatch(tool_sessions, step)
                case Await():
                    await self._await_answer()
                case Observe():
                    reason = await self._observer.observe(time.monotonic() - self._turn_began)
                    if reason is not None:
                        self._end(reason)
                case Say():
                    self._observer.say(step)
                case Rewrite():
                    reason = rewrite_context(self._log, step, self._rules, self._assignment)
                    if reason is not None:
                        self._end(reason)
                case Finish():
                    self._end(step.reason, step.answer)

    def _next_step(self) -> Step | None:
        return next_step(self._state, self._rules, self._assignment.task, self._decided)

    def _end(self, reason: StopReason, answer: str | None = None) -> None:
        seconds = self._earlier_s + time.monotonic() - self._began
        self._log.append(Ended(reason=reason, seconds=seconds, answer=answer))

    async def _generate(self, tool_sessions: ToolSessions, room: int) -> None:
        state, turn = self._state, self._state.turn
        asked_ns = time.monotonic_ns()

        def on_action(generated: Generated) -> None:
            self._turn_began = time.monotonic()
            try:
                self._acted(generated, asked_ns)
            except ExpansionMismatch as error:
                self._broken = error
                return
            step = self._next_step()
            if isinstance(step, Dispatch):
                self._dispatch(tool_sessions, step, generated.read_ns)

        def on_mark(token_ids: Ids, hit: StopHit, read_ns: int) -> None:
            mark = hit.matched_text or ""
            text = self._rules.codec.decode(token_ids)
            text = text[: text.rfind(mark) + len(mark)]
            dispatch = calls_at(text, mark, self._state, self._rules, self._assignment.task)
            if dispatch is not None:
                self._dispatch(tool_sessions, dispatch, read_ns)

        request = GenerateRequest(
            key=self._log.attempt,
            token_ids=state.token_ids,
            sampling=self._assignment.sampling,
            stops=self._stop_table(state),
            max_new_tokens=room,
            segments=state.segments,
            images=self._request_images(state),
            received=state.partial,
            clock=self._limit,
            on_action=on_action,
            on_mark=on_mark,
            on_progress=self._streamed,
        )
        try:
            generated = None
            if self._brancher is not None and self._brancher.examines():
                generated = await self._look(self._brancher, request, tool_sessions, on_mark)
                request = replace(request, received=self._state.partial)
            if generated is None:
                generated = await self._context.pool.generate(request)
        except SamplerFailed as error:
            if turn:  # the refused part may be an observation, which the next attempt has anew
                raise SamplerFailed(str(error)) from error
            raise
        if not self._state.acted and self._broken is None and self._state.turn == turn:
            on_action(generated)
        if self._broken is not None:
            raise SamplerFailed(
                f"{self._broken}; the sampler's image processor must be that of policy.model and "
                "leave all other tokens as they are",
                permanent=not turn,
            ) from self._broken

    async def _look(
        self,
        brancher: Brancher,
        request: GenerateRequest,
        tool_sessions: ToolSessions,
        on_mark: OnMark,
    ) -> Generated | None:
        """Samples the turn's first tokens and lets the trajectory branch before they have any
        effect. They are the whole action if it has ended; otherwise they are `partial` from here
        on."""
        marks: list[tuple[Ids, StopHit, int]] = []
        room = request.max_new_tokens
        head = await self._context.pool.generate(
            replace(
                request,
                max_new_tokens=min(room, brancher.tokens),
                on_action=ignore,
                on_mark=lambda *mark: marks.append(mark),
                on_progress=None,
                top_logprobs=brancher.top_k,
            )
        )
        await brancher.examine(head, tool_sessions, self._media, self._limit)
        for mark in marks:
            on_mark(*mark)
        if head.finish.kind is not FinishKind.LENGTH or len(head.token_ids) >= room:
            return head
        self._streamed(head)
        return None

    def _stop_table(self, state: State) -> StopTable:
        """The stop table, rebuilt only if calls have made tools."""
        tools, codec = state.tools, self._rules.codec
        if self._stops is None or self._stops[0] != tools:
            protocol = self._rules.protocol
            table = StopTable(
                (*protocol.stops(tools, codec), *codec.turn_ends),
                codec,
                marks=protocol.marks(tools, codec),
                json_calls=protocol.json_calls(tools, codec),
            )
            self._stops = tools, table
        table = self._stops[1]
        return table.inside_thought() if begins_inside(codec, state.token_ids) else table

    def _request_images(self, state: State) -> Images | None:
        if not state.images:
            return None
        data = []
        for slot in state.images:
            name = slot.blob.sha256
            if name not in self._image_data:
                self._image_data[name] = data_uri(self._media[name])
            data.append(self._image_data[name])
        unseen = any(slot.tokens is None for slot in state.images)
        return Images(data=tuple(data), return_prompt_ids=unseen)

    def _streamed(self, part: Generated) -> None:
        if not self._state.acted:
            self._log.append(
                Streamed(
                    token_ids=part.token_ids,
                    logprobs=part.logprobs,
                    versions=part.versions,
                    prompt_tokens=part.prompt_tokens,
                    prompt_ids=ids(part.prompt_ids) if part.prompt_ids else None,
                )
            )

    def _acted(self, generated: Generated, asked_ns: int) -> None:
        """Raises ExpansionMismatch if the sampler expanded the images differently than before."""
        state, codec, acted_ns = self._state, self._rules.codec, time.monotonic_ns()
        text, stop = action_text(generated, codec)
        mark = codec.image_mark
        learnt: tuple[int, ...] = ()
        if mark is not None and state.images:
            learnt = check_expansion(
                state.token_ids,
                [slot.tokens for slot in state.images],
                generated,
                mark.placeholder,
            )
        if generated.remarks is not None:
            self._log.append(
                Noted(note=Event(kind=SAMPLED, turn=state.turn, data=generated.remarks))
            )
        self._log.append(
            Acted(
                token_ids=generated.token_ids,
                logprobs=generated.logprobs,
                versions=generated.versions,
                finish=generated.finish,
                text=text,
                stop=stop,
                ends_turn=stop == codec.end_of_turn,
                image_tokens=learnt,
                seconds=(acted_ns - asked_ns) / 1e9,
                asked_ns=asked_ns,
                first_ns=generated.first_ns,
                acted_ns=acted_ns,
            )
        )

    def _dispatch(self, tool_sessions: ToolSessions, step: Dispatch, read_ns: int = 0) -> None:
        for index, call in enumerate(step.calls, step.first):
            self._send(tool_sessions, call, index, read_ns)

    def _send(self, tool_sessions: ToolSessions, call: Call, index: int, read_ns: int) -> None:
        turn = self._state.turn
        call_id = f"{self._log.attempt}/{turn}/{index}"
        sent: PendingCall | Reply
        if call.invalid_reason:  # its own parser could not read it
            sent = Reply(outcome=refused(call.invalid_reason))
        else:
            left = self._turns_left(turn)
            sent = tool_sessions.dispatch(call, call_id=call_id, turn=turn, turns_left=left)
        pending = sent if isinstance(sent, PendingCall) else None
        self._log.append(
            Called(
                call_id=call_id,
                turn=turn,
                index=index,
                action=call.action,
                tool=call.tool,
                arguments="" if call.arguments is None else json.dumps(call.arguments),
                service=pending.service if pending else "",
                refused=pending is None,
                stop_read_ns=read_ns,
                dispatched_ns=pending.dispatched_ns if pending else 0,
            )
        )
        if isinstance(sent, PendingCall):
            self._pending[call_id] = sent
        else:
            self._answered(call_id, sent, time.monotonic_ns())

    async def _await_answer(self) -> None:
        """Waits until one more call has its outcome."""
        if len(self._pending) == 1 and not self._answers:
            ((call_id, pending),) = self._pending.items()
            reply = await pending.result(self._limit)
            del self._pending[call_id]
            self._answered(call_id, reply, pending.result_ns)
            return
        for call_id, pending in self._pending.items():
            if call_id not in self._answers:
                work = pending.result(self._limit)
                self._answers[call_id] = asyncio.get_running_loop().create_task(work)
        await asyncio.wait(self._answers.values(), return_when=asyncio.FIRST_COMPLETED)
        for call_id in [name for name, answer in self._answers.items() if answer.done()]:
            reply = self._answers.pop(call_id).result()
            self._answered(call_id, reply, self._pending.pop(call_id).result_ns)

    def _answered(self, call_id: str, reply: Reply, result_ns: int) -> None:
        self._media.update({one.blob.sha256: one for one in reply.media})
        self._log.append(
            Answered(
                call_id=call_id,
                outcome=reply.outcome,
                new_tools=reply.new_tools,
                result_ns=result_ns,
            )
        )
