"""judge against a model endpoint on loopback, and finish, which needs none."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_endpoint import ChatEndpoint, chat_endpoint, fault
from tests.support.trajectory import Trajectory, said
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.plugin.registry import make_registered
from toolsvc.sandbox.config import SandboxConfig
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick

QUESTION = "Which is the highest mountain of Norway?"
GOLD = "Galdhopiggen"


@pytest.fixture
def references(tmp_path: Path) -> Path:
    path = tmp_path / "references.jsonl"
    path.write_text(
        json.dumps({"question": QUESTION, "answer": [GOLD, "2469 m"]}) + "\n", encoding="utf-8"
    )
    return path


Judge = Callable[..., Any]


@pytest.fixture
def judge(references: Path) -> Judge:
    @asynccontextmanager
    async def make(endpoint: ChatEndpoint, **options: Any) -> AsyncIterator[Trajectory]:
        given = {
            "endpoint": endpoint.url,
            "model": "tiny",
            "retries": 0,
            "references": references,
            **options,
        }
        async with Host([make_registered("judge", given, SandboxConfig())]) as host:
            yield Trajectory(host, "judge")

    return make


def knows(body: dict[str, Any]) -> str:
    """A judge that looks at the answer; it talks too much."""
    (message,) = body["messages"]
    text = message["content"]
    assert QUESTION in text
    answer = text.partition("Answer to grade:")[2].partition("Does the answer")[0]
    return f"The right answer is {GOLD}.\n{int(GOLD in answer)}"


async def test_a_verdict_is_a_reward_and_nothing_that_the_policy_reads(judge: Judge) -> None:
    async with chat_endpoint(knows) as endpoint, judge(endpoint) as policy:
        right = await policy.act(f"<finish>\\boxed{{{GOLD}}}</finish>")
        wrong = await policy.act("<finish>Snohetta</finish>")
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.done
    assert said(right) == said(wrong) == "The answer was handed in."
    assert right.metrics == {"judge_unparsable": 0.0, "judge_cached": 0.0}


async def test_a_reply_without_a_verdict_is_worth_nothing_and_counted(judge: Judge) -> None:
    async with chat_endpoint(lambda _: GOLD) as endpoint, judge(endpoint) as policy:
        result = await policy.act(f"<finish>{GOLD}</finish>")
        assert (result.reward, result.metrics["judge_unparsable"]) == (0.0, 1.0)


async def test_equal_answers_are_judged_once(judge: Judge, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    async with chat_endpoint(knows) as endpoint:
        for cached in (0.0, 1.0):
            async with judge(endpoint, cache=cache, budget_requests=1) as policy:
                result = await policy.act(f"<finish>{GOLD}</finish>")
                assert (result.reward, result.metrics["judge_cached"]) == (1.0, cached)
        assert len(endpoint.requests) == 1


async def test_without_a_judge_the_call_is_refused(judge: Judge) -> None:
    async with chat_endpoint(knows) as endpoint, judge(endpoint, budget_requests=2) as policy:
        for answer, status, retry_after in (("a", 503, 1.0), ("b", 401, None)):
            endpoint.faults = [fault(status)]
            with pytest.raises(Refused) as caught:
                await policy.act(f"<finish>{answer}</finish>")
            assert caught.value.reason is Reason.BACKEND_DOWN
            assert caught.value.retry_after == retry_after
        with pytest.raises(Refused, match="budget of 2 requests is spent"):
            await policy.act("<finish>c</finish>")


async def test_an_answer_that_the_judge_cannot_read_is_told(judge: Judge) -> None:
    """It would be refused for ever; a shorter one is graded."""
    sglang = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
    async with chat_endpoint(knows) as endpoint, judge(endpoint) as policy:
        for status, message in ((400, sglang), (413, "")):
            endpoint.faults = [fault(status, message)]
            result = await policy.act(f"<finish>{GOLD * 200}</finish>")
            assert (result.done, result.reward, result.valid) == (False, None, False)
            assert said(result) == "the answer is too long: write a shorter one"
        endpoint.faults = [fault(400, "no such model")]
        with pytest.raises(Refused):
            await policy.act("<finish>another</finish>")
        assert (await policy.act(f"<finish>{GOLD}</finish>")).reward == 1.0


async def test_a_prompt_of_ones_own(judge: Judge, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Q {question} R {references} A {answer}", encoding="utf-8")
    async with chat_endpoint(lambda _: "1") as endpoint:
        async with judge(endpoint, prompt=prompt) as policy:
            await policy.act("<finish>x</finish>")
        (asked,) = endpoint.requests
        assert asked["messages"][0]["content"].startswith(f"Q {QUESTION} R - {GOLD}\n- 2469 m A <")
        assert asked["temperature"] == 0
    prompt.write_text("{question}", encoding="utf-8")
    given = {"endpoint": "http://127.0.0.1:9/v1", "model": "m", "prompt": prompt}
    given["references"] = tmp_path / "references.jsonl"
    with pytest.raises(StartError, match=r"has no \{references\}, \{answer\}"):
        make_registered("judge", given, SandboxConfig())


async def test_finish_ends_the_trajectory_with_the_answer() -> None:
    options = {"tag": "done", "answer_chars": 10}
    async with Host([make_registered("finish", options, SandboxConfig())]) as host:
        policy = Trajectory(host, "finish")
        result = await policy.act("so it is <done> 42\n</done>")
        assert (said(result), result.done, result.reward, result.valid) == ("42", True, None, True)
        for action in ("<done> </done>", f"<done>{'4' * 11}</done>", "42"):
            result = await policy.act(action)
            assert (result.done, result.valid) == (False, False)
            assert result.error.kind is ToolErrorKind.INVALID_ACTION
