"""Rewards, ends and refusals over HTTP: what the engine's half gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ingress.http import reports
from tests.support.agents import END, Served, served_agents
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import Task

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "q"}
TEXTS = [f"Answer {number}.{END}" for number in range(8)]


@pytest.fixture
async def served(policy_folder: Path) -> Any:
    async with served_agents(policy_folder, TEXTS) as found:
        found.engine.reward_keys = frozenset({"reward"})
        yield found


async def sent(
    served: Served,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    key: str = "",
    **headers: str,
) -> tuple[int, Any]:
    if key:
        headers["Authorization"] = f"Bearer {key}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{served.root}{path}", json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def test_a_reward_of_the_trajectory_or_of_a_response(served: Served) -> None:
    for _ in range(2):
        _, said = await sent(served, "/t/key/v1/chat/completions", {"messages": [USER], "n": 2})
    body = {"reward": 0.5, "response_id": said["id"], "choice": 1}
    assert (await sent(served, "/v1/reward", body, key="reward"))[0] == 200
    whole = {"reward": -1, "parts": [{"name": "tests", "value": 0.25, "turn": 3}]}
    assert (await sent(served, "/t/reward/v1/reward", whole))[0] == 200
    of_turn, final = served.engine.reports
    assert (of_turn.node, of_turn.HasField("reward")) == (3, False)
    assert [(one.name, one.value) for one in of_turn.parts] == [("reward", 0.5)]
    assert (final.reward, final.HasField("node")) == (-1, False)
    assert [(one.name, one.value, one.turn) for one in final.parts] == [("tests", 0.25, 3)]


async def test_every_api_s_ids_name_the_call(served: Served) -> None:
    asked = {"messages": [USER], "input": "q", "max_tokens": 99}
    for number, path in enumerate(("chat/completions", "responses", "messages")):
        _, said = await sent(served, f"/t/key/v1/{path}", asked)
        body = {"reward": 1, "response_id": said["id"]}
        assert (await sent(served, "/v1/reward", body, key="reward"))[0] == 200
        assert served.engine.reports[-1].node == number


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "reward"),
        ({"reward": "good"}, "reward"),
        ({"reward": 1, "response_id": "chatcmpl-7"}, "response_id"),
        ({"reward": 1, "parts": [{"name": "x"}]}, "parts[0]"),
        ([], None),
    ],
)
async def test_a_wrong_report_is_refused(served: Served, body: Any, param: str | None) -> None:
    status, answer = await sent(served, "/v1/reward", body, key="reward")
    assert (status, answer["error"]["param"]) == (400, param)
    assert not served.engine.reports


async def test_only_the_reward_key_reports(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, status in (("key", 403), ("other", 401)):
        assert (await sent(served, "/v1/reward", {"reward": 1}, key=key))[0] == status
    assert (await sent(served, "/v1/reward", {"reward": 1}))[0] == 401
    monkeypatch.setattr(reports, "MOST_BYTES", 4)
    assert (await sent(served, "/v1/reward", {"reward": 1}, key="reward"))[0] == 413
    assert not served.engine.reports


async def test_an_agent_ends_its_trajectory_and_cannot_blame_infrastructure(
    served: Served,
) -> None:
    for key, outcome, status in (
        ("key", "infrastructure", 400),
        ("key", "timed_out", 400),
        ("key", "failed", 200),
        ("reward", "infrastructure", 200),
    ):
        body = {"outcome": outcome, "error": "why", "answer": "42"}
        assert (await sent(served, "/v1/end", body, key=key))[0] == status
    assert (await sent(served, "/t/key/v1/end"))[1] == {"status": "ended", "calls": 0}
    ends = [(one.outcome, one.error, one.HasField("answer")) for one in served.engine.ended]
    assert ends == [
        (pb.OUTCOME_FAILED, "why", True),
        (pb.OUTCOME_INFRASTRUCTURE, "why", True),
        (pb.OUTCOME_DONE, "", False),
    ]


async def test_a_driver_takes_and_ends_trajectories(
    policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    async with served_agents(policy_folder, TEXTS) as served:
        task = Task(id="t", prompt="q", metadata={"a": [1]}, answers=("42",))
        served.engine.tasks.append(wire.task_to_proto(task))
        asked = {"worker": "w", "number": 7, "wait": 0.1}
        status, taken = await sent(served, "/v1/trajectories/take", asked, key="token")
        assert (status, taken["key"], taken["reward_key"]) == (200, "key", "")
        assert taken["task"]["metadata"] == {"a": [1]}
        assert (taken["task"]["id"], taken["task"]["answers"]) == ("t", ["42"])
        chat = f"{taken['base_path']}/chat/completions"
        assert (await sent(served, chat, {"messages": [USER]}))[0] == 200
        body = {"key": "key", "outcome": "infrastructure"}
        assert (await sent(served, "/v1/trajectories/end", body, key="token"))[0] == 200
        assert served.engine.ended[0].outcome == pb.OUTCOME_INFRASTRUCTURE
        status, refused = await sent(served, "/v1/trajectories/take", asked, key="token")
        assert (status, refused["error"]["code"]) == (429, "no_trajectory")
        served.engine.over = True
        status, refused = await sent(served, "/v1/trajectories/take", asked, key="token")
        assert (status, refused["error"]["code"]) == (410, "run_over")
        for wrong in ({}, {"worker": "w"}, {**asked, "wait": 1e9}):
            assert (await sent(served, "/v1/trajectories/take", wrong, key="token"))[0] == 400
        for wrong in (
            *({}, {"tasks": []}, {"tasks": [7]}, {"tasks": [{"id": 7}]}),
            *({"tasks": [{"answers": [4]}]}, {"tasks": [{"metadata": "x"}]}),
        ):
            assert (await sent(served, "/v1/trajectories", wrong, key="token"))[0] == 400


@pytest.mark.parametrize("token", ["", "token"])
async def test_an_agent_takes_and_ends_no_other_trajectory(
    policy_folder: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    async with served_agents(policy_folder, TEXTS) as served:
        for path in ("", "/take", "/end"):
            for key in ("key", ""):
                status, _ = await sent(served, f"/v1/trajectories{path}", {}, key=key)
                assert status == (401 if token else 403)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "chat/nothing", {}, 404),
        ("GET", "chat/completions", {}, 405),
        ("POST", "chat/completions", {"Content-Encoding": "gzip"}, 415),
        ("POST", "chat/completions", {"Content-Type": "text/plain"}, 415),
        ("POST", "chat/completions", {"Origin": "http://elsewhere"}, 403),
        ("POST", "messages/nothing", {}, 404),
        ("POST", "messages", {"Content-Type": "text/plain"}, 415),
    ],
)
async def test_the_server_s_own_refusals_have_the_api_s_shape(
    served: Served, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    body = {"messages": [USER]} if method == "POST" else None
    found, answer = await sent(served, f"/t/key/v1/{path}", body, method=method, **headers)
    assert found == status
    assert answer["error"]["message"]
    assert ("code" in answer["error"]) != (answer.get("type") == "error")
    assert ("messages" in path) == (answer.get("type") == "error")
