"""ForkSession: a second session with the state of the first, and nothing in common after that."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import CheckFailed, Rule, Skipped, expect
from toolwright.tool.v1 import tool_pb2 as pb


def _subject(client: CheckClient, *kinds: Kind, forks: bool = True) -> Subject:
    """The first tool that says that it forks (or that it does not), and has a probe for it."""
    for subject in client.subjects:
        has = all(kind in subject.probe for kind in kinds)
        if has and subject.descriptor.capabilities.fork is forks:
            return subject
    wanted = f" and a probe with {', '.join(kinds)}" if kinds else ""
    raise Skipped(f"no tool {'with' if forks else 'without'} the capability `fork`{wanted}")


async def _counted(client: CheckClient, effects: int) -> CheckSession:
    """A session of a tool that forks, after so many effects."""
    subject = _subject(client, Kind.EFFECT, Kind.READ)
    if not subject.descriptor.stateful:
        raise Skipped(f"{subject.name} keeps no state that a fork could have")
    session = await client.open(subject)
    for _ in range(effects):
        await session.call(Kind.EFFECT)
    return session


@check(Rule.FORK)
async def a_fork_has_its_parents_state(client: CheckClient) -> None:
    """A fork goes on from where its parent is."""
    session = await _counted(client, 2)
    child = await session.fork()
    await child.expect_count(2, "a fork of a session with two effects")
    await session.expect_count(2, "the parent of a fork")


@check(Rule.FORK)
async def effects_leak_neither_way(client: CheckClient) -> None:
    """What happens in a fork does not happen in its parent, nor the other way round."""
    session = await _counted(client, 1)
    child = await session.fork()
    await session.call(Kind.EFFECT)
    for _ in range(3):
        await child.call(Kind.EFFECT)
    await session.expect_count(2, "an effect before a fork and one after it, in the parent")
    await child.expect_count(4, "three effects in a fork")


@check(Rule.FORK)
async def a_fork_outlives_its_parent(client: CheckClient) -> None:
    """A fork goes on when its parent is closed."""
    session = await _counted(client, 1)
    child = await session.fork()
    await session.close()
    await child.expect_count(1, "a fork whose parent was closed")


@check(Rule.FORK)
async def a_fork_runs_no_call_of_its_parent(client: CheckClient) -> None:
    """The parent's calls have run in the fork too: a request of it under one of their ids runs
    nothing."""
    session = await _counted(client, 0)
    request = session.calling(Kind.EFFECT)
    await session.result(request)
    child = await session.fork()
    again = pb.CallToolRequest()
    again.CopyFrom(request)
    again.session_id = child.id
    await refused(
        child.send(again),
        "CALL_ID_REUSED",
        "RESULT_FORGOTTEN",
        doing="a call of a fork under an id of its parent",
    )
    await child.expect_count(1, "a call of a fork under an id of its parent")
    told = list((await child.look()).call_ids)
    expect(told[:1] == [request.call_id], "GetSession of a fork does not tell its parent's calls")


@check(Rule.FORK)
async def a_fork_asked_for_twice_is_one(client: CheckClient) -> None:
    """ForkSession is idempotent: the same request again is the same session."""
    session = await _counted(client, 1)
    child = await session.fork()
    await child.call(Kind.EFFECT)
    again = await client.send_fork(session, child.request)
    expect(again.session_id == child.id, "the same request was answered with another session")
    await child.expect_count(2, "a fork that was asked for again")


@check(Rule.FORK, timed=True)
async def a_fork_amid_a_call_is_busy(client: CheckClient) -> None:
    """ForkSession while a call of the session runs is SESSION_BUSY with RetryInfo; afterwards it is
    served."""
    session = await client.open(_subject(client, Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=0.6)
    await session.begin(request)
    refusal = await refused(session.fork(), "SESSION_BUSY", doing="a fork amid a call")
    expect(refusal.retry_after is not None, "SESSION_BUSY comes without RetryInfo")
    await session.result(request)
    await session.fork()


@check(Rule.FORK)
async def what_does_not_fork_is_not_forked(client: CheckClient) -> None:
    """ForkSession of a session with a tool without the capability `fork` is NOT_SERVED."""
    session = await client.open(_subject(client, forks=False))
    try:
        child = await session.fork()
    except Refusal as refusal:
        # Of a service that serves no fork at all this says nothing new.
        expect(refusal.reason == "NOT_SERVED", f"ForkSession: {refusal}, not NOT_SERVED")
    else:
        raise CheckFailed(
            f"{session.subject.name} has no capability `fork`, and was forked: {child.id}"
        )


@check(Rule.FORK)
async def nobody_is_not_forked(client: CheckClient) -> None:
    """ForkSession of a session that was never opened is SESSION_NOT_FOUND."""
    session = await client.open(_subject(client))
    session.id = f"{client.owner}/never-opened"
    await refused(session.fork(), "SESSION_NOT_FOUND", doing="a fork of no session")
