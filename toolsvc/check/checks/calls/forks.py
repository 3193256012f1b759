"""ForkSession: a second session with the state of the first, and separate after that."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, changed, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import TAKEN, CheckFailed, Rule, Skipped, expect


async def _counted(client: CheckClient, effects: int) -> CheckSession:
    """A session of a tool that forks, after this number of effects."""
    subject = client.subject(Kind.EFFECT, Kind.READ, can="fork")
    if not subject.descriptor.stateful:
        raise Skipped(f"{subject.name} keeps no state that a fork could have")
    session = await client.open(subject)
    for _ in range(effects):
        await session.call(Kind.EFFECT)
    return session


@check(Rule.FORK)
async def a_fork_has_its_parents_state(client: CheckClient) -> None:
    """A fork begins with its parent's state."""
    session = await _counted(client, 2)
    child = await session.fork()
    await child.expect_count(2, "a fork of a session with two effects")
    await session.expect_count(2, "the parent of a fork")


@check(Rule.FORK)
async def effects_leak_neither_way(client: CheckClient) -> None:
    """An effect in a fork does not happen in its parent, and an effect in the parent not in the
    fork."""
    session = await _counted(client, 1)
    child = await session.fork()
    await session.call(Kind.EFFECT)
    for _ in range(3):
        await child.call(Kind.EFFECT)
    await session.expect_count(2, "an effect before a fork and one after it, in the parent")
    await child.expect_count(4, "three effects in a fork")


@check(Rule.FORK)
async def a_fork_outlives_its_parent(client: CheckClient) -> None:
    """A fork stays open when its parent is closed."""
    session = await _counted(client, 1)
    child = await session.fork()
    await session.close()
    await child.expect_count(1, "a fork whose parent was closed")


@check(Rule.FORK)
async def a_fork_runs_no_call_of_its_parent(client: CheckClient) -> None:
    """The parent's calls have run in the fork too: its call ids run nothing there."""
    session = await _counted(client, 0)
    request = session.calling(Kind.EFFECT)
    await session.result(request)
    child = await session.fork()
    doing = "a call of a fork under an id of its parent"
    await refused(child.send(changed(request, session_id=child.id)), *TAKEN, doing=doing)
    await child.expect_count(1, doing)
    listed = list((await child.look()).call_ids)
    expect(listed[:1] == [request.call_id], "GetSession of a fork lacks its parent's calls")


@check(Rule.FORK)
async def a_fork_asked_for_twice_is_one(client: CheckClient) -> None:
    """ForkSession is idempotent: a repeated request answers the same session."""
    session = await _counted(client, 1)
    child = await session.fork()
    await child.call(Kind.EFFECT)
    again = await client.send_fork(session, child.request)
    expect(again.session_id == child.id, "a repeated ForkSession answered another session")
    await child.expect_count(2, "a fork after a repeated ForkSession")


@check(Rule.FORK, timed=True)
async def a_fork_amid_a_call_is_busy(client: CheckClient) -> None:
    """ForkSession while a call of the session runs is SESSION_BUSY with RetryInfo; afterwards it is
    served."""
    session = await client.open(client.subject(Kind.SLEEP, can="fork"))
    request = await session.asleep(0.6)
    refusal = await refused(session.fork(), "SESSION_BUSY", doing="a fork during a call")
    expect(refusal.retry_after is not None, "SESSION_BUSY comes without RetryInfo")
    await session.result(request)
    await session.fork()


@check(Rule.FORK)
async def what_does_not_fork_is_not_forked(client: CheckClient) -> None:
    """ForkSession of a session with a tool without the capability `fork` is NOT_SERVED."""
    session = await client.open(client.subject(cannot="fork"))
    try:
        child = await session.fork()
    except Refusal as refusal:
        # A service without forks answers the same to every ForkSession.
        expect(refusal.reason == "NOT_SERVED", f"ForkSession: {refusal}, not NOT_SERVED")
        return
    name = session.subject.name
    raise CheckFailed(f"{name} has no capability `fork`, and was forked: {child.id}")


@check(Rule.FORK)
async def nobody_is_not_forked(client: CheckClient) -> None:
    """ForkSession of a session that was never opened is SESSION_NOT_FOUND."""
    session = await client.open(client.subject(can="fork"))
    session.id = f"{client.owner}/never-opened"
    await refused(session.fork(), "SESSION_NOT_FOUND", doing="a fork of an unknown session")
