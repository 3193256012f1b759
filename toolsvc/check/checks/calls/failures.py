"""Rule 1: a tool's failure is an answer, and a call that the service could not run is an error."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import (
    CheckClient,
    CheckSession,
    error_kind,
    expect_error,
    refused,
    text_of,
)
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, Skipped, expect
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.tool.v1 import tool_pb2 as pb

AUTHORS = (
    trajectory_pb2.AUTHOR_UNSPECIFIED,
    trajectory_pb2.AUTHOR_TOOL,
    trajectory_pb2.AUTHOR_MEMORY,
    trajectory_pb2.AUTHOR_SYSTEM,
)
MOST_TOKENS = 1 << 20


def _expect_invalid(result: pb.CallResult, what: str) -> None:
    expect(not result.valid, f"{what} was called valid")
    expect(result.invalid_reason, f"{what} was called invalid without a reason")
    kind = error_kind(result)
    expect(
        kind in ("INVALID_ACTION", "UNKNOWN_TOOL"),
        f"{what} has the tool error {kind or '(unknown)'}, not INVALID_ACTION",
    )


@check(Rule.FAILURES)
async def a_result_names_its_tool(client: CheckClient) -> None:
    """A result names the tool that answered."""
    session = await client.open()
    result = await session.call()
    expect(result.tool == session.subject.name, f"the result names the tool {result.tool!r}")


@check(Rule.FAILURES)
async def an_author_may_speak_in_observations(client: CheckClient) -> None:
    """A result's author is TOOL, MEMORY, SYSTEM or not given, and a model could read as many
    tokens as its token budget."""
    for subject in client.subjects:
        result = await (await client.open(subject)).call()
        expect(result.author in AUTHORS, f"{subject.name} names the author {result.author}")
        budget = result.token_budget
        expect(budget <= MOST_TOKENS, f"{subject.name} names a budget of {budget} tokens")


@check(Rule.FAILURES)
async def the_tool_is_found_by_its_format(client: CheckClient) -> None:
    """A call that does not name a tool goes to the tool whose format its action has."""
    subject = client.find(lambda one: not one.is_raw, "with an action format of its own")
    request = client.opening()
    session = CheckSession(client, subject, request, await client.send_opening(request))
    tool = (await session.call(tool="")).tool
    expect(
        tool == subject.name,
        f"an action in the format of {subject.name} went to {tool or 'no tool'!r}",
    )


@check(Rule.FAILURES)
async def a_failure_is_an_answer(client: CheckClient) -> None:
    """A tool that ran and failed answers OK with a tool error that says what happened."""
    session = await client.open(client.subject(Kind.FAIL))
    result = await session.call(Kind.FAIL)
    kind = error_kind(result)
    expect(kind, "the tool failed and the result has no tool error of a known kind")
    expect(kind != "UNSPECIFIED", "the tool error has no kind")
    expect(result.error.message or text_of(result), "the tool error says nothing")


@check(Rule.FAILURES)
async def a_failure_leaves_the_session(client: CheckClient) -> None:
    """After a failure that did not lose the session, the next call runs."""
    session = await client.open(client.subject(Kind.FAIL, Kind.EFFECT, Kind.READ))
    await session.call(Kind.EFFECT)
    if (await session.call(Kind.FAIL)).error.session_lost:
        raise Skipped("a failure of this tool loses the session")
    await session.call(Kind.EFFECT)
    await session.expect_count(2, "one effect before and one after a failed call")


@check(Rule.FAILURES)
async def text_without_a_block_is_invalid(client: CheckClient) -> None:
    """An action without the tool's marks is an answer: not valid, a reason, INVALID_ACTION."""
    subject = client.find(lambda one: not one.is_raw, "with an action format of its own")
    session = await client.open(subject)
    result = await session.call(action="nothing that a tool could read")
    _expect_invalid(result, "an action without the tool's marks")


@check(Rule.FAILURES)
async def broken_json_is_invalid(client: CheckClient) -> None:
    """A call in broken JSON is an answer: not valid, a reason, INVALID_ACTION."""
    subject = client.find(
        lambda one: one.descriptor.action_format.HasField("json_call"), "that takes JSON calls"
    )
    form = subject.descriptor.action_format.json_call
    session = await client.open(subject)
    result = await session.call(action=f'{form.open}{{"name": {form.close}')
    _expect_invalid(result, "a call in broken JSON")


@check(Rule.FAILURES)
async def missing_arguments_are_invalid(client: CheckClient) -> None:
    """Arguments without a required argument are an answer: INVALID_ACTION."""
    subject = client.find(lambda one: one.schema.get("required"), "that requires an argument")
    result = await (await client.open(subject)).call(arguments=wire.struct({}))
    _expect_invalid(result, "a call without its required arguments")


@check(Rule.FAILURES)
async def an_unknown_tool_is_refused(client: CheckClient) -> None:
    """A call for a tool that the session does not have is refused. The policy does not see it."""
    unknown = (await client.open()).call(tool="no-such-tool")
    await refused(unknown, "UNKNOWN_TOOL", doing="a call for an unknown tool")


@check(Rule.FAILURES)
async def an_unknown_session_is_refused(client: CheckClient) -> None:
    """A call in a session that was never opened is refused. The policy does not see it."""
    session = await client.open()
    request = session.calling(session_id=f"{session.id}/never-opened")
    await refused(session.send(request), "SESSION_NOT_FOUND", doing="a call in an unknown session")


@check(Rule.FAILURES)
async def a_lost_session_is_refused(client: CheckClient) -> None:
    """After a result with `session_lost`, later calls say the same or are refused: SESSION_LOST."""
    session = await client.open(client.subject(Kind.SLEEP))
    result = await session.call(Kind.SLEEP, seconds=3.0, run_limit=wire.duration(0.1))
    expect_error(result, "TIMEOUT", "a call past its run limit")
    if not result.error.session_lost:
        await session.call()
        return
    try:
        again = await session.call()
    except Refusal as refusal:
        expect(refusal.reason == "SESSION_LOST", f"a call in a lost session: {refusal}")
    else:
        expect(again.error.session_lost, "a call in a lost session was answered as usual")
