"""One call from its request to its record.

Invariants
- Time before the tool starts is queue time, bounded by the queue limit; time after is run time,
  bounded by the run limit. What the tool then waits for others (`plugin.waiting`) is queue time
  too, with a bound of its own. Neither is counted into the other.
- A refused call ran nothing and its id is free, unless its thread goes on. Once the executor has
  returned nothing frees the id: a later fault is INTERNAL, and no cancelling reaches the call.
- A tool without parallel calls keeps its place until it is idle, even if the call has its answer.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.host.admission import Gate, Permit
from toolsvc.host.blobs import Blobs, is_large
from toolsvc.host.observation import tidy
from toolsvc.host.open_session import OpenSession, OpenTool, RunningCall
from toolsvc.host.watch import Watch
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.reading import arguments_of, tool_of_action
from toolsvc.plugin.results import failure, invalid
from toolsvc.types import Call, CallRequest, Recorded, Result
from toolwright.tracing.ids import trace_id, trajectory_of
from toolwright.types import ToolErrorKind

LONGEST_RUN = 24 * 3600.0
LONGEST_QUEUE = 3600.0

log = structlog.get_logger(__name__)


def understand(session: OpenSession, request: CallRequest) -> tuple[OpenTool, Call]:
    """Tool and arguments of a request. Raises InvalidAction for an action that makes no sense, and
    Refused if the session does not have the tool."""
    name = request.tool or tool_of_action(
        request.action,
        session.descriptors,
        lambda name: session.tools[name].tool.accepts(request.action),
    )
    entry = session.tools.get(name)
    if entry is None:
        raise Refused(
            Reason.UNKNOWN_TOOL,
            f"session {request.session_id} has no tool {name!r}, only {', '.join(session.tools)}",
            subject=name,
        )
    if request.unreadable:
        raise InvalidAction(f"{entry.tool.name} cannot read the call: {request.unreadable}")
    arguments = arguments_of(entry.tool, entry.descriptor, request.action, request.arguments)
    call = Call(
        session=session.info,
        call_id=request.call_id,
        action=request.action,
        arguments=arguments,
        turn=request.turn,
        turns_left=request.turns_left,
        last_step=request.last_step,
        run_limit=min(request.run_limit or entry.tool.run_limit, LONGEST_RUN),
        metadata=request.metadata,
    )
    return entry, call


class Calls:
    """Begins calls. Each runs in its own task, which the ledger of its session holds."""

    def __init__(self, *, permits: int | None, observation_limit: int, watch: Watch) -> None:
        self.gate = Gate(permits)
        self.blobs = Blobs()
        self._observation_limit = observation_limit
        self._watch = watch

    def begin(self, session: OpenSession, request: CallRequest) -> RunningCall:
        """Begins a call that the ledger does not know. Raises Refused if nothing can run."""
        running = RunningCall()
        try:
            entry, call = understand(session, request)
        except InvalidAction as error:
            session.ledger.open(request.call_id, request.digest, request.turn, running)
            result = tidy(invalid(str(error)), self._observation_limit, "head")
            self._end(session, running, request.call_id, record(result, request.tool, running))
            return running
        session.ledger.open(request.call_id, request.digest, request.turn, running)
        running.task = asyncio.create_task(
            self._run(session, entry, call, min(request.queue_limit, LONGEST_QUEUE), running)
        )
        return running

    async def _run(
        self,
        session: OpenSession,
        entry: OpenTool,
        call: Call,
        queue_limit: float,
        running: RunningCall,
    ) -> None:
        """Runs a call from the queue to its record, and wakes all that wait for it. Only the end of
        the session cancels it."""
        ledger, name = session.ledger, entry.tool.name
        try:
            recorded = await self._recorded(session, entry, call, queue_limit, running)
        except asyncio.CancelledError as error:
            if running.cancellation.requested and not ledger.has_run(call.call_id):
                cancelled = failure(ToolErrorKind.CANCELLED, "cancelled")
                self._end(session, running, call.call_id, record(cancelled, name, running))
                return
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was not cancelled: something that its tool waited for was.
            self._fail(session, running, call.call_id, name, error)
        except Refused as refusal:
            if ledger.has_run(call.call_id):
                self._fail(session, running, call.call_id, name, refusal)
                return
            if running.cancellation.goes_on:  # It may have its effect yet.
                ledger.settle(call.call_id)
            else:
                ledger.release(call.call_id)
            self._watch.call_refused(refusal.reason)
            running.end(refusal)
        except Exception as error:  # noqa: BLE001 - logged and told by `_fail`
            self._fail(session, running, call.call_id, name, error)
        else:
            self._end(session, running, call.call_id, recorded)

    async def _recorded(
        self,
        session: OpenSession,
        entry: OpenTool,
        call: Call,
        queue_limit: float,
        running: RunningCall,
    ) -> Recorded:
        """Record of a call, which waits and then runs."""
        tool = entry.tool
        permit = _enter(entry, running, self.gate)
        if permit is None:
            permit = await _queue(entry, call, queue_limit, running, self.gate)
        try:
            running.started_at = time.perf_counter()
            session.ledger.begin(call.call_id)
            result = await entry.executor.run(entry.state, call, running.cancellation)
            session.ledger.ran(call.call_id)
            new_tools = await session.add_tools_of(entry) if entry.gives_tools else ()
        finally:
            permit.release()
            running.cancellation.when_idle(entry.turnstile.leave)
        recorded = record(
            tidy(result, self._observation_limit, tool.keep), tool.name, running, tool.isolation
        )
        if new_tools:
            recorded = recorded._replace(new_tools=new_tools)
        if any(map(is_large, recorded.result.observation)):
            result = await self.blobs.take_out(call.session.session_id, recorded.result)
            recorded = recorded._replace(result=result)
        return recorded

    def _fail(
        self,
        session: OpenSession,
        running: RunningCall,
        call_id: str,
        tool: str,
        error: BaseException,
    ) -> None:
        """Ends a call by a fault of the service. The id stays taken if the tool may have run."""
        trace = trace_id(session.info.owner, trajectory_of(call_id))
        log.error("call failed", call=call_id, tool=tool, trace=trace, exc_info=error)
        if running.started_at is None:
            session.ledger.release(call_id)
        else:
            session.ledger.settle(call_id)
        self._watch.call_refused(Reason.INTERNAL)
        running.end(Refused(Reason.INTERNAL, f"{type(error).__name__}: {error}"))

    def _end(
        self, session: OpenSession, running: RunningCall, call_id: str, recorded: Recorded
    ) -> None:
        session.ledger.settle(call_id)
        self._watch.call_recorded(recorded)
        self._watch.call_ended(session.info, call_id, recorded)
        running.end(recorded)


def record(result: Result, tool: str, running: RunningCall, isolation: str = "") -> Recorded:
    queued, run = running.times()
    return Recorded(result=result, tool=tool, queued=queued, run=run, isolation=isolation)


def _enter(entry: OpenTool, running: RunningCall, gate: Gate) -> Permit | None:
    """Permit to start, with the tool's turnstile entered, if the call need not wait; else None."""
    if running.cancellation.requested:
        raise asyncio.CancelledError
    if not entry.live.ready or not entry.turnstile.try_enter():
        return None
    if entry.tool.queues:
        return gate.pass_by()
    permit = gate.try_enter()
    if permit is None:
        entry.turnstile.leave()
    return permit


async def _queue(
    entry: OpenTool, call: Call, queue_limit: float, running: RunningCall, gate: Gate
) -> Permit:
    """Permit to start, after the tool, the call's state and the gate were waited for."""
    running.queueing = True
    inside = False
    try:
        async with asyncio.timeout(queue_limit):
            await entry.turnstile.enter()
            inside = True
            if not entry.live.ready:
                await entry.live.prepare()
            return gate.pass_by() if entry.tool.queues else await gate.enter()
    except TimeoutError:
        if inside:
            entry.turnstile.leave()
        raise Refused(
            Reason.QUEUE_LIMIT,
            f"call {call.call_id} did not start within its queue limit of {queue_limit:g} s",
            subject=call.call_id,
            retry_after=RETRY_SECONDS,
            fix="raise the queue limit, or send fewer calls at once",
        ) from None
    except BaseException:
        if inside:
            entry.turnstile.leave()
        raise
    finally:
        running.queueing = False
