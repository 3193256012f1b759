"""StreamCalls answers each request once, as CallTool would, however the stream ends."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, changed, expect_success, text_of
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.streaming import Stream
from toolsvc.check.types import CheckFailed, Rule, Skipped, expect
from toolwright import wire
from toolwright.common.v1 import reasons_pb2
from toolwright.tool.v1 import tool_pb2 as pb


@check(Rule.STREAM)
async def a_stream_answers_as_call_tool_does(client: CheckClient) -> None:
    """One call_id gets one answer from StreamCalls and from CallTool, and has its effect once."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    first, second = session.calling(Kind.EFFECT), session.calling(Kind.EFFECT)
    async with Stream(session) as stream:
        streamed = await stream.result(1, first)
        expect(await session.result(first) == streamed, "CallTool had another answer")
        alone = await session.result(second)
        expect(await stream.result(2, second) == alone, "StreamCalls had another answer")
    await session.expect_count(2, "two calls, each sent by both methods")


@check(Rule.STREAM)
async def answers_of_a_stream_are_matched_by_number(client: CheckClient) -> None:
    """Each answer of a stream has the number of its own request, for any numbers."""
    session = await client.open(client.subject(Kind.ECHO))
    texts = {number: f"word-{number}-" for number in (0, 7, 3, 2**63, 1, *range(100, 125))}
    async with Stream(session) as stream:
        for number, text in texts.items():
            await stream.send(number, session.calling(Kind.ECHO, text=text))
        for _ in range(len(texts)):
            answer = await stream.read()
            text = texts.pop(answer.id, "")
            expect(text, f"an answer has the number {answer.id}, which is unknown or used twice")
            seen = text_of(answer.answer.result)
            expect(text in seen, f"the request for {text!r} was answered {seen[:40]!r}")


@check(Rule.STREAM)
async def each_request_is_answered_once(client: CheckClient) -> None:
    """After the caller's last request the stream answers each request once, and ends without an
    error."""
    session = await client.open()
    async with Stream(session) as stream:
        for number in range(8):
            await stream.send(number, session.calling())
        answered = sorted(answer.id for answer in await stream.rest())
    expect(answered == list(range(8)), f"requests 0 to 7 were answered as {answered}")


@check(Rule.STREAM)
async def requests_of_one_message_are_answered_each(client: CheckClient) -> None:
    """A service that takes several requests in a message answers each of them, and puts answers
    together only for a caller that takes that."""
    session = await client.open()
    async with Stream(session) as stream:
        await stream.send(0, session.calling())
        if not (await stream.read()).takes_more:
            raise Skipped("the service takes one request in a message")
        await stream.send_together({number: session.calling() for number in range(1, 9)})
        answered = list[int]()
        for _ in range(8):
            answer = await stream.read()
            expect(not answer.more, "answers came together for a caller that does not take that")
            answered.append(answer.id)
    expect(sorted(answered) == list(range(1, 9)), f"requests 1 to 8 were answered as {answered}")


@check(Rule.STREAM)
async def an_error_leaves_the_stream_open(client: CheckClient) -> None:
    """StreamCalls answers a refusal as a message with CallTool's code, reason and subject, and the
    stream stays open."""
    session = await client.open()
    nowhere = session.calling(session_id=f"{client.owner}/never-opened")
    async with Stream(session) as stream:
        for request in (nowhere, session.calling(tool="no-such-tool"), session.calling(call_id="")):
            alone = await _refusal(session, request)
            await stream.send(1, request)
            _expect_same(alone, await stream.read())
        await stream.result(2, session.calling())


async def _refusal(session: CheckSession, request: pb.CallToolRequest) -> Refusal:
    """CallTool's refusal of the request."""
    try:
        await ask(session.stub.CallTool, request)
    except Refusal as refusal:
        return refusal
    raise CheckFailed("CallTool answered a wrong request")


def _expect_same(alone: Refusal, answer: pb.StreamCallsResponse) -> None:
    expect(
        answer.HasField("error"), f"StreamCalls answered a request that CallTool refuses ({alone})"
    )
    error = answer.error
    reason = reasons_pb2.ErrorReason.Name(error.detail.reason).removeprefix("ERROR_REASON_")
    streamed = (error.code, reason, error.detail.subject)
    called = (alone.code.value[0], alone.reason, alone.subject)
    expect(streamed == called, f"StreamCalls says {streamed}, CallTool {called}")
    invited = error.HasField("retry_after")
    expect(
        invited == (alone.retry_after is not None),
        f"StreamCalls {'invites' if invited else 'does not invite'} a retry, unlike CallTool",
    )


@check(Rule.STREAM, timed=True)
async def a_stream_answers_first_what_ends_first(client: CheckClient) -> None:
    """A short call of one session is answered while a long call of another session sleeps."""
    subject = client.subject(Kind.SLEEP)
    sleeper, other = await client.open(subject), await client.open(subject)
    async with Stream(sleeper) as stream:
        await stream.send(1, sleeper.calling(Kind.SLEEP, seconds=1.5))
        await stream.send(2, other.calling(Kind.SLEEP, seconds=0.01))
        first = await stream.read()
        if first.HasField("error") and first.error.detail.endpoint:
            first = await stream.read()  # Another process holds the other session.
        else:
            expect(first.id == 2, "a short call waited for the long call before it")


@check(Rule.STREAM, timed=True)
async def a_broken_stream_stops_no_call(client: CheckClient) -> None:
    """A call continues when its stream breaks: CallTool gets its result, and the effect happens
    once."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=0.6)
    async with Stream(session) as stream:
        await stream.send(1, changed(request, wait=wire.duration(client.seconds(0.1))))
        expect((await stream.read()).answer.HasField("running"), "a sleeping call is not `running`")
        await stream.send(2, request)
    await client.sleep(0.2)
    expect_success(await session.result(request), "a call whose stream broke")
    await session.expect_count(1, "a call whose stream broke")
