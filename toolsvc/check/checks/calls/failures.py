"""Rule 1: what the tool did wrong is an answer, what the service could not do is an error."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, error_kind, refused, text_of
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
        f"{what} came to the tool error {kind or 'none'}, not INVALID_ACTION",
    )


@check(Rule.FAILURES)
async def a_result_names_its_tool(client: CheckClient) -> None:
    """A result names the tool that answered."""
    session = await client.open()
    result = await session.call()
    expect(result.tool == session.subject.name, f"the result is of the tool {result.tool!r}")


@check(Rule.FAILURES)
async def an_author_may_speak_in_observations(client: CheckClient) -> None:
    """A result's author is TOOL, MEMORY, SYSTEM or nobody, and its token budget is one that a model
    could read."""
    for subject in client.subjects:
        session = await client.open(subject)
        result = await session.call()
        expect(result.author in AUTHORS, f"{subject.name} names the author {result.author}")
        expect(
            result.token_budget <= MOST_TOKENS,
            f"{subject.name} names a budget of {result.token_budget} tokens",
        )


@check(Rule.FAILURES)
async def the_tool_is_found_by_its_format(client: CheckClient) -> None:
    """A call that names no tool goes to the one whose format its action has."""
    for subject in client.subjects:
        if subject.descriptor.action_format.WhichOneof("format") == "raw":
            continue
        session = CheckSession(
            client, subject, request := client.opening(), await client.send_opening(request)
        )
        result = await session.call(tool="")
        expect(
            result.tool == subject.name,
            f"an action in the format of {subject.name} went to {result.tool or 'no tool'!r}",
        )
        return
    raise Skipped("every tool takes raw text")


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
    failure = await session.call(Kind.FAIL)
    if failure.error.session_lost:
        raise Skipped("a failure of this tool loses the session")
    await session.call(Kind.EFFECT)
    await session.expect_count(2, "one effect before and one after a failed call")


@check(Rule.FAILURES)
async def text_without_a_block_is_invalid(client: CheckClient) -> None:
    """An action without the tool's marks is an answer: not valid, a reason, INVALID_ACTION."""
    for subject in client.subjects:
        if subject.descriptor.action_format.WhichOneof("format") != "raw":
            session = await client.open(subject)
            result = await session.call(action="nothing that a tool could read")
            _expect_invalid(result, "an action without the tool's marks")
            return
    raise Skipped("every tool takes raw text")


@check(Rule.FAILURES)
async def broken_json_is_invalid(client: CheckClient) -> None:
    """A JSON call that is no JSON is an answer: not valid, a reason, INVALID_ACTION."""
    for subject in client.subjects:
        form = subject.descriptor.action_format
        if form.HasField("json_call"):
            session = await client.open(subject)
            action = f'{form.json_call.open}{{"name": {form.json_call.close}'
            _expect_invalid(await session.call(action=action), "a call that is no JSON")
            return
    raise Skipped("no tool takes JSON calls")


@check(Rule.FAILURES)
async def missing_arguments_are_invalid(client: CheckClient) -> None:
    """Arguments without what the schema requires are an answer: INVALID_ACTION."""
    for subject in client.subjects:
        if subject.schema.get("required"):
            session = await client.open(subject)
            result = await session.call(arguments=wire.struct({}))
            _expect_invalid(result, "a call without its required arguments")
            return
    raise Skipped("no tool requires an argument")


@check(Rule.FAILURES)
async def an_unknown_tool_is_refused(client: CheckClient) -> None:
    """A call for a tool that the session does not have is refused, and not shown to the policy."""
    session = await client.open()
    await refused(
        session.call(tool="no-such-tool"), "UNKNOWN_TOOL", doing="a call for an unknown tool"
    )


@check(Rule.FAILURES)
async def an_unknown_session_is_refused(client: CheckClient) -> None:
    """A call for a session that was never opened is refused, and not shown to the policy."""
    session = await client.open()
    request = session.calling(session_id=f"{session.id}/never-opened")
    await refused(session.send(request), "SESSION_NOT_FOUND", doing="a call in an unknown session")


@check(Rule.FAILURES)
async def a_lost_session_is_refused(client: CheckClient) -> None:
    """Once a result said `session_lost`, later calls say so too, or are refused: SESSION_LOST."""
    subject = client.subject(Kind.SLEEP)
    session = await client.open(subject)
    result = await session.call(Kind.SLEEP, seconds=3.0, run_limit=wire.duration(0.1))
    expect(error_kind(result) == "TIMEOUT", "a call past its run limit did not answer TIMEOUT")
    if result.error.session_lost:
        try:
            again = await session.call()
        except Refusal as refusal:
            expect(refusal.reason == "SESSION_LOST", f"a call in a lost session: {refusal}")
        else:
            expect(again.error.session_lost, "a call in a lost session answered as in any other")
    else:
        await session.call()
