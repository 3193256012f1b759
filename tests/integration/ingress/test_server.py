"""The HTTP surface: keys, refusals, retries, outages, disconnects and keep-alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ingress import model_call
from ingress.errors import StartError
from ingress.http import event_stream, keys, server
from tests.support.agents import END, TOOLS, Served, call_text, served_agents
from tests.support.families import write_family
from tests.support.policy import write_policy
from tests.support.waiting import passes
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.process.backoff import Backoff
from toolwright.rpc.errors import ServiceError
from toolwright.wire import unpack

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "q"}
TEXTS = [f"Answer number {number}, in words.{END}" for number in range(8)]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
async def served(policy_folder: Path) -> AsyncIterator[Served]:
    async with served_agents(policy_folder, TEXTS) as found:
        yield found


@asynccontextmanager
async def posted(
    url: str, body: dict[str, Any] | bytes, **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", data=data, headers=given) as response,
    ):
        yield response


async def answered(url: str, body: dict[str, Any] | bytes, **headers: str) -> tuple[int, Any]:
    async with posted(url, body, **headers) as response:
        return response.status, await response.json()


def asking(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "policy", "messages": [*messages] or [USER], **more}


def said(body: Any) -> str:
    return str(body["choices"][0]["message"]["content"])


async def chunks(response: aiohttp.ClientResponse) -> list[Any]:
    """The stream's events; comments as they are."""
    lines = (await response.text()).split("\n\n")
    return [
        json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else line
        for line in lines
        if line
    ]


async def test_a_key_in_the_path_or_in_a_header(served: Served) -> None:
    for url, headers in (
        (f"{served.root}/t/key/v1", {}),
        (f"{served.root}/t/key/a/critic/v1", {}),
        (f"{served.root}/v1", {"Authorization": "Bearer key"}),
        (f"{served.root}/v1", {"x-api-key": "key", "x-toolwright-agent": "critic"}),
    ):
        status, body = await answered(url, asking(), **headers)
        assert (status, body["object"]) == (200, "chat.completion")
    agents = [call.ask.agent for call in served.engine.calls]
    assert agents[1] == agents[3] == "critic"
    assert agents[0] == agents[2] != "critic"
    for url in (f"{served.root}/v1", f"{served.root}/t/other/v1"):
        status, body = await answered(url, asking())
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")


async def test_a_wrong_key_is_refused_before_the_body_is_read(served: Served) -> None:
    port = int(served.root.split(":")[-1])
    head = (
        b"POST /t/%b/v1/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9999999\r\n\r\n"
    )
    for path in (b"chat/completions", b"messages", b"responses", b"messages/count_tokens"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % (b"other", path))
        assert b" 401 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
        writer.close()
    assert served.engine.checked == ["other"] * 4


async def test_the_engine_checks_a_key_once(served: Served) -> None:
    for _ in range(3):
        assert (await answered(served.url, asking()))[0] == 200
    assert served.engine.checked == ["key"]


async def test_a_key_is_held_while_the_engine_is_away(served: Served) -> None:
    await served.engine.stop()
    waiting = asyncio.create_task(answered(served.url, asking()))
    await asyncio.wait((waiting,), timeout=0.2)
    assert not waiting.done()
    await served.engine.start()
    assert (await waiting)[0] == 200
    assert served.engine.checked == ["key"]


async def test_a_reward_key_makes_no_calls(served: Served) -> None:
    served.engine.reward_keys = frozenset({"reward"})
    status, body = await answered(f"{served.root}/t/reward/v1", asking())
    assert (status, body["error"]["code"]) == (403, "wrong_key")
    assert not served.engine.calls


async def test_requests_of_a_key_are_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MOST_REQUESTS", 1)
    served.engine.gate.clear()
    waiting = asyncio.create_task(answered(served.url, asking()))
    await served.engine.begun.wait()
    status, body = await answered(served.url, asking())
    assert (status, body["error"]["code"]) == (429, "too_many_calls")
    served.engine.gate.set()
    assert (await waiting)[0] == 200
    assert (await answered(served.url, asking()))[0] == 200


async def test_models_and_health(policy_folder: Path) -> None:
    async with (
        served_agents(policy_folder, TEXTS, aliases={"gpt": "aside"}) as served,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{served.url}/models") as response:
            names = [one["id"] for one in (await response.json())["data"]]
        assert names == ["policy", "aside", "gpt"]
        async with session.get(f"{served.root}/health") as response:
            health = await response.json()
        assert (health["status"], health["in_flight"]) == ("healthy", 0)
        assert health["engine"] == "answers"
        for name, aside in (("policy", False), ("aside", True), ("gpt", True)):
            assert (await answered(served.url, {**asking(), "model": name}))[0] == 200
            assert served.engine.calls[-1].ask.aside is aside
        status, body = await answered(served.url, {**asking(), "model": "other"})
        assert (status, body["error"]["code"]) == (404, "model_not_found")


async def test_health_says_that_the_engine_is_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def health() -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{served.root}/health") as response,
        ):
            return response.status, await response.json()

    await served.engine.stop()
    await passes(1.0, "silence that is not shown as an answer")
    status, found = await health()
    assert (status, found["status"]) == (200, "healthy")
    assert found["engine"].startswith("has been silent for")
    monkeypatch.setattr(server, "ENGINE_SECONDS", 0.1)
    status, found = await health()
    assert (status, found["status"]) == (503, "unhealthy")
    await served.engine.start()
    async with asyncio.timeout(60):
        while (await health())[0] != 200:
            pass


async def test_parameters_reach_the_engine(policy_folder: Path) -> None:
    async with served_agents(policy_folder, TEXTS) as served:
        status, body = await answered(
            served.url,
            asking(
                temperature=0.25, top_p=0.5, seed=7, max_tokens=3, n=2, stop=["x"], logprobs=True,
                tools=TOOLS, tool_choice="required",
            ),
        )  # fmt: skip
        ask = served.engine.calls[0].ask
    assert status == 200
    assert [one["finish_reason"] for one in body["choices"]] == ["length", "length"]
    assert len(body["choices"][1]["logprobs"]["content"]) == 3
    assert body["usage"]["completion_tokens"] == 6
    assert (ask.sampling.temperature, ask.sampling.seed, ask.n) == (0.25, 7, 2)
    assert list(ask.stops) == ["x"]
    assert "look" in ask.constraint.structural_tag
    assert ask.sampling.max_new_tokens == 3


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, None),
        (b"[]", 400, None),
        (b"[" * server.MOST_BODY_BYTES, 400, None),
        (b'{"messages": [' + b'"",' * (1 << 20) + b'""]}', 400, None),
        (asking(temperature="hot"), 400, None),
        (asking(tool_choice="required"), 400, None),
    ],
)
async def test_a_wrong_request_is_refused_in_the_api_s_shape(
    served: Served, body: Any, status: int, code: str | None
) -> None:
    found, answer = await answered(served.url, body)
    assert found == status
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["code"] == code
    assert not served.engine.calls


@pytest.mark.parametrize("depth", [200, 700, 990, 5000])
async def test_deep_data_are_answered_or_refused(served: Served, depth: int) -> None:
    """Neither the tools' schemas nor the arguments of a call end a worker."""
    text = "[" * depth + "]" * depth
    called = {"name": "look", "arguments": f'{{"a": {text}}}'}
    call = {"id": "c", "type": "function", "function": called}
    history = (USER, {"role": "assistant", "tool_calls": [call]}, USER)
    schema = text.encode()
    bodies = [
        json.dumps(asking(*history)).encode(),
        json.dumps(asking(tools=TOOLS)).encode().replace(b'"string"', schema),
        json.dumps(asking(response_format={"type": "json_schema", "json_schema": {"schema": 0}}))
        .encode()
        .replace(b'"schema": 0', b'"schema": ' + schema),
    ]
    for body in bodies:
        status, answer = await answered(served.url, body)
        assert status in (200, 400)
        assert "error" in answer or said(answer)
    assert (await answered(served.url, asking()))[0] == 200


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "\\ufffe"])
async def test_odd_characters_are_answered_or_refused(served: Served, text: str) -> None:
    body = (
        b'{"model": "policy", "messages": [{"role": "user", "content": "' + text.encode() + b'"}]}'
    )
    status, answer = await answered(served.url, body)
    assert status == (400 if "d800" in text else 200)
    assert "error" in answer or said(answer)


async def test_a_key_or_a_label_of_any_bytes(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.root.split(":")[-1]))
    body = json.dumps(asking()).encode()
    for key, label, status in ((b"\xff", b"a", b"401"), (b"key", b"\xff" * 99, b"200")):
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nAuthorization: Bearer %b\r\n"
            b"X-Toolwright-Agent: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (key, label, len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == status
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        await reader.readexactly(length)
    writer.close()
    assert served.engine.calls[0].ask.agent == "?" * 64


async def test_a_body_above_the_limit_is_refused(
    policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_BODY_BYTES", 1000)
    async with served_agents(policy_folder, TEXTS) as served:
        body = asking({"role": "user", "content": "x" * 2000})
        status, answer = await answered(served.url, body)
    assert status == 413
    assert "body" in answer["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_context_is_400_whether_streamed_or_not(
    policy_folder: Path, stream: bool
) -> None:
    async with served_agents(policy_folder, TEXTS, context=10) as served:
        status, answer = await answered(served.url, asking(stream=stream))
    assert status == 400
    assert answer["error"]["code"] == "context_length_exceeded"
    assert "maximum context length" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_full_trajectory_ends_its_agent(served: Served, path: str) -> None:
    full = ServiceError(reasons.ERROR_REASON_TRAJECTORY_FULL, "the trajectory has 1024 calls")
    served.engine.failures.append(("ask", full))
    body = {"model": "policy", "input": "q", "messages": [USER], "max_tokens": 9}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.url}/{path}", json=body) as response,
    ):
        found = await response.json()
    assert response.status == 400, "clients retry 429"
    assert found["error"]["type"] == "invalid_request_error"
    assert "1024 calls" in found["error"]["message"]
    assert path == "messages" or found["error"]["code"] == "trajectory_full"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_fault_has_the_api_s_shape(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    async def post() -> tuple[int, Any]:
        body = {"model": "policy", "messages": [USER], "max_tokens": 9, "stream": stream}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{served.url}/{path}", json={**body, "input": "q"}) as response,
        ):
            return response.status, await response.json()

    fault = ServiceError(reasons.ERROR_REASON_INTERNAL, "KeyError: 'secret'")
    served.engine.failures.append(("ask", fault))
    engine_s = await post()

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(model_call, "digests_of", broken)
    for status, body in (engine_s, await post()):
        assert status == 500
        assert "its log says why" in body["error"]["message"]
        assert "secret" not in body["error"]["message"]


async def test_a_marked_retry_is_replayed_and_an_unmarked_one_is_a_new_sample(
    served: Served,
) -> None:
    first, second = [await answered(served.url, asking()) for _ in range(2)]
    marked = await answered(served.url, asking(), **{"x-stainless-retry-count": "1"})
    assert said(first[1]) != said(second[1])
    assert said(marked[1]) == said(second[1])
    assert len(served.engine.calls) == 2


async def test_an_outage_before_the_prompt_makes_no_retry_of_a_new_sample(served: Served) -> None:
    first = await answered(served.url, asking())
    served.engine.failures.append(("ask", ServiceError(reasons.ERROR_REASON_DRAINING, "bye")))
    second = await answered(served.url, asking())
    assert said(first[1]) != said(second[1])
    assert not any(call.ask.retry for call in served.engine.calls)


async def test_edited_history_forks_and_parallel_calls_are_siblings(served: Served) -> None:
    _, body = await answered(served.url, asking())
    mine = {"role": "assistant", "content": said(body)}
    more = {"role": "user", "content": "more"}
    for history in (
        (USER, mine, more),
        (USER, mine, more),
        (USER, {**mine, "content": "no"}, more),
    ):
        await answered(served.url, asking(*history))
    assert [node.parent for node in served.engine.nodes] == [None, 0, 0, None]
    forked = served.engine.calls[3].prompt
    assert forked.HasField("fresh")
    assert "no" in served.tokenizer.decode(unpack(forked.fresh.token_ids, "i"))


async def test_results_stand_in_the_order_of_their_calls(policy_folder: Path) -> None:
    texts = [call_text("a") + call_text("b") + END, f"Done.{END}"]
    async with served_agents(policy_folder, texts) as served:
        _, body = await answered(served.url, asking(USER, tools=TOOLS))
        message = body["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": call["function"]["arguments"]}
            for call in message["tool_calls"]
        ]
        await answered(served.url, asking(USER, message, *reversed(results), tools=TOOLS))
        texts = [one.text for one in served.engine.calls[1].prompt.results]
        assert texts == [one["content"] for one in results]
        assert served.engine.nodes[1].parent == 0
        second = served.engine.calls[1]
        assert second.ask.guess.matched == 2
        assert second.ask.guess.prompt.results == second.prompt.results
        assert second.ask.guess.prompt.tail.token_ids[4:] == second.prompt.tail.token_ids


async def test_a_completion_that_its_limit_ended_gets_the_end_of_its_turn(served: Served) -> None:
    _, body = await answered(served.url, asking(max_tokens=4))
    assert body["choices"][0]["finish_reason"] == "length"
    mine = {"role": "assistant", "content": said(body)}
    await answered(served.url, asking(USER, mine, USER))
    node = served.engine.nodes[1]
    assert node.parent == 0
    text = served.tokenizer.decode(node.prompt)
    assert f"<|im_start|>assistant\n{said(body)}{END}\n<|im_start|>user" in text


async def test_a_template_without_tails_is_encoded_as_a_whole(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "p", "mistral")
    async with served_agents(folder, ["Hello.</s>", "Again.</s>"]) as served:
        _, body = await answered(served.url, asking())
        assert said(body) == "Hello."
        history = (USER, {"role": "assistant", "content": "Hello."}, USER)
        _, body = await answered(served.url, asking(*history))
        assert said(body) == "Again."
        assert served.engine.calls[1].prompt.HasField("fresh")


async def test_a_policy_without_a_template_is_refused_at_the_start(tmp_path: Path) -> None:
    folder = write_policy(tmp_path / "p", template=None)
    with pytest.raises(StartError, match="no chat template"):
        async with served_agents(folder, TEXTS):
            pass


async def test_an_outage_before_the_first_byte_delays_the_response(
    served: Served, until: Until
) -> None:
    served.engine.failures.append(("ask", ServiceError(reasons.ERROR_REASON_DRAINING, "bye")))
    assert (await answered(served.url, asking()))[0] == 200
    await served.engine.stop()
    waiting = asyncio.create_task(answered(served.url, asking(USER, USER)))
    await asyncio.wait((waiting,), timeout=0.2)
    assert not waiting.done()
    await served.engine.start()
    assert (await waiting)[0] == 200


async def test_a_stream_that_breaks_goes_on_from_the_recorded_ids(served: Served) -> None:
    """The engine has the call and loses the connection before its Durable."""
    body = asking(stream=True)
    async with posted(served.url, body) as response:
        first = await chunks(response)
    served.engine.failures.append(("delta", ServiceError(reasons.ERROR_REASON_DRAINING, "bye")))
    async with posted(served.url, body) as response:
        again = await chunks(response)
    words = [
        "".join(one["choices"][0]["delta"].get("content", "") for one in found[:-1])
        for found in (first, again)
    ]
    assert words == [TEXTS[0].removesuffix(END)] * 2
    assert again[-1] == "data: [DONE]"


async def test_a_stream_whose_call_is_lost_ends_with_an_error(served: Served) -> None:
    served.engine.failures.append(("delta", ServiceError(reasons.ERROR_REASON_DRAINING, "bye")))
    async with posted(served.url, asking(stream=True)) as response:
        assert response.status == 200
        found = await chunks(response)
    assert "lost a call" in found[-1]["error"]["message"]
    assert "data: [DONE]" not in found
    assert not served.engine.nodes


async def test_a_lost_call_begins_again_after_a_pause(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    class Noted(Backoff):
        def pause(self, tries: int) -> float:
            pauses.append(tries)
            return 0.0

    monkeypatch.setattr(model_call, "LOST_BACKOFF", Noted(1.0, 1.0))
    failure = ServiceError(reasons.ERROR_REASON_DRAINING, "bye", retry_after=0.01)
    served.engine.failures += [("choice", failure)] * 2
    status, body = await answered(served.url, asking(n=2))
    assert (status, len(body["choices"])) == (200, 2)
    assert pauses == [0, 1]


async def test_the_end_waits_until_the_call_is_on_disk(served: Served) -> None:
    served.engine.failures.append(("durable", ServiceError(reasons.ERROR_REASON_INTERNAL, "no")))
    async with posted(served.url, asking(stream=True)) as response:
        found = await chunks(response)
    assert found[-1]["error"]["type"] == "server_error"
    assert all(one["choices"][0]["finish_reason"] is None for one in found[:-1])


async def test_a_choice_that_is_replayed_counts_its_tokens_once(served: Served) -> None:
    """The engine has the call and loses the connection after the first choice."""
    _, first = await answered(served.url, asking(n=2))
    failure = ServiceError(reasons.ERROR_REASON_DRAINING, "bye", retry_after=0.01)
    served.engine.failures.append(("choice", failure))
    status, again = await answered(served.url, asking(n=2))
    assert status == 200
    assert again["usage"] == first["usage"]


async def test_a_waiting_stream_says_something(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    served.engine.gate.clear()
    async with posted(served.url, asking(stream=True)) as response:
        line = await response.content.readline()
        assert line == b": keep-alive\n"
        served.engine.gate.set()
        assert (await chunks(response))[-1] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_leaves_its_call(
    served: Served, until: Until, stream: bool
) -> None:
    served.engine.gate.clear()
    waiting = asyncio.create_task(answered(served.url, asking(stream=stream)))
    await served.engine.begun.wait()
    waiting.cancel()
    await until(lambda: served.engine.left == 1)


async def test_an_integer_beyond_64_bits_comes_back_as_it_went(policy_folder: Path) -> None:
    call = f'<tool_call>\n{{"name": "look", "arguments": {{"id": {2**70 + 1}}}}}\n</tool_call>{END}'
    tool = {"name": "look", "input_schema": {"type": "object"}}
    turns: list[Any] = [USER]
    async with (
        served_agents(policy_folder, [call, call]) as served,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(2):
            body = {"model": "policy", "max_tokens": 999, "messages": turns, "tools": [tool]}
            async with session.post(f"{served.url}/messages", json=body) as response:
                assert response.status == 200, await response.text()
                content = (await response.json())["content"]
            assert content[0]["input"] == {"id": 2**70 + 1}
            result = {"type": "tool_result", "tool_use_id": content[0]["id"], "content": "x"}
            turns += [{"role": "assistant", "content": content}]
            turns += [{"role": "user", "content": [result]}]
    assert [node.parent for node in served.engine.nodes] == [None, 0]


async def test_a_call_is_streamed_whole(policy_folder: Path) -> None:
    async with (
        served_agents(policy_folder, [f"I look. {call_text('here')}{END}"]) as served,
        posted(served.url, asking(stream=True, tools=TOOLS)) as response,
    ):
        assert response.headers["Content-Type"] == "text/event-stream"
        found = await chunks(response)
    deltas = [one["choices"][0]["delta"] for one in found[:-1]]
    (call,) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert json.loads(call["function"]["arguments"]) == {"place": "here"}
    assert "".join(delta.get("content", "") for delta in deltas) == "I look."
    assert found[-2]["choices"][0]["finish_reason"] == "tool_calls"
