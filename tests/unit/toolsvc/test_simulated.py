"""Tools that a model plays, in front of an endpoint on loopback whose answers the test writes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.chat_endpoint import ChatEndpoint, chat_endpoint, fault
from tests.support.hosts import calling, opening, refused
from tests.unit.toolsvc.test_simulated_schemas import FILM, film
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.schemas.lint import MOST_TOOLS
from toolsvc.sources.simulated.cast import Cast
from toolsvc.sources.simulated.options import SimulatedOptions
from toolsvc.sources.simulated.simulated_tool import MadeTools
from toolsvc.sources.simulated.source import HybridSource, SimulatedSource
from toolsvc.types import Recorded, Text
from toolwright.types import ToolErrorKind

GOLD = "Sofia Coppola"
TASK = {"question": "Who directed the film of 2003?", "answer": GOLD, "answers": [GOLD]}


def makes(_request: dict[str, Any]) -> str:
    """A ToolMaker's answer that passes."""
    return json.dumps([FILM])


@asynccontextmanager
async def simulated(
    say: Callable[[dict[str, Any]], str],
    tools: Any = (FILM,),
    folder: Path | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Host, ChatEndpoint]]:
    """Without a folder, tools are made from the question."""
    where = ""
    if folder is not None:
        where = _written(folder, tools)
    source = HybridSource if isinstance(tools, dict) else SimulatedSource
    async with chat_endpoint(say) as endpoint:
        given = SimulatedOptions.model_validate(
            {"endpoint": endpoint.url, "model": "tiny", "retries": 0, **options}
        )
        made = await source.tools(where, given, SandboxConfig())
        async with Host(made) as host:
            yield host, endpoint


def _written(folder: Path, tools: Any) -> str:
    path = folder / "tools.json"
    path.write_text(json.dumps(tools), encoding="utf-8")
    return str(path)


def asking(call_id: str, title: Any = "Lost", session: str = "s", **more: Any) -> Any:
    fields = {"tool": "film", "arguments": {"title": title}, "digest": f"{call_id}{title}".encode()}
    return calling(call_id, session=session, **{**fields, **more})


async def told(host: Host, request: Any) -> tuple[Recorded, Any]:
    """The record and the observation, which is JSON."""
    answer = await host.call(request)
    (part,) = answer.result.observation
    assert isinstance(part, Text)
    return answer, json.loads(part.text)


def year(_: Any) -> str:
    return '{"year": 2003}'


async def test_arguments_that_do_not_fit_reach_no_model(tmp_path: Path) -> None:
    async with simulated(year, folder=tmp_path) as (host, endpoint):
        await host.open(opening())
        answer, said = await told(host, asking("a", title=7))
        assert not answer.result.valid
        assert said == {
            "status": "error",
            "error": {
                "type": "validation_error",
                "stage": "pre",
                "tool": "film",
                "violations": [{"path": "$.title", "rule": "type", "expected": "string"}],
            },
        }
        _, said = await told(host, asking("b", title="x" * 20_000))
        assert said["error"]["violations"][0]["rule"] == "maxLength"
        _, said = await told(host, asking("c", arguments=None, action="<tool_call>{</tool_call>"))
        assert said["error"]["type"] == "parse_error"
        assert endpoint.requests == []


async def test_an_observation_that_does_not_fit_is_asked_for_again(tmp_path: Path) -> None:
    answers = ["no JSON", '{"year": "2003"}', '{"year": 2003}']
    async with simulated(lambda _: answers.pop(0), folder=tmp_path) as (host, endpoint):
        await host.open(opening())
        _, said = await told(host, asking("a"))
    assert said == {"year": 2003}
    assert [request["seed"] for request in endpoint.requests] == [0, 1, 2]
    assert "$.year" in endpoint.requests[2]["messages"][-1]["content"]


async def test_one_that_never_fits_is_a_structured_error(tmp_path: Path) -> None:
    async with simulated(lambda _: '{"year": "2003"}', folder=tmp_path) as (host, endpoint):
        await host.open(opening())
        answer, said = await told(host, asking("a"))
    assert said["error"] == {
        "type": "validation_error",
        "stage": "post",
        "tool": "film",
        "violations": [{"path": "$.year", "rule": "type", "expected": "integer"}],
    }
    assert answer.result.error.kind is ToolErrorKind.EXCEPTION
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(("consistent", "asked"), [(True, 1), (False, 8)])
async def test_a_group_sees_one_world(tmp_path: Path, consistent: bool, asked: int) -> None:
    numbers = iter(range(100))
    async with simulated(
        lambda _: json.dumps({"year": next(numbers)}), folder=tmp_path, consistent=consistent
    ) as (host, endpoint):
        names = [f"s{number}" for number in range(8)]
        for name in names:
            await host.open(opening(name))
        said = await asyncio.gather(*(told(host, asking("a", session=name)) for name in names))
        await told(host, asking("b", title="another", session="s0", turn=1))
    assert len({json.dumps(observation) for _, observation in said}) == asked
    assert len(endpoint.requests) == asked + 1


@pytest.mark.parametrize(
    ("answers", "found"), [((2003, 1999), [2003, 2003]), (("1984", 2003), ["1984", 2003])]
)
async def test_a_world_outlives_the_service_and_no_unchecked_world_does(
    tmp_path: Path, answers: tuple[Any, Any], found: list[Any]
) -> None:
    said = []
    for answer in answers:
        async with simulated(
            lambda _, answer=answer: json.dumps({"year": answer}),  # type: ignore[misc]
            folder=tmp_path,
            cache=str(tmp_path / "cache"),
            post_check=isinstance(answer, int),
        ) as (host, _):
            await host.open(opening())
            said.append((await told(host, asking("a")))[1]["year"])
    assert said == found


async def test_a_model_is_shown_what_it_answered_in_this_session(tmp_path: Path) -> None:
    async with simulated(year, folder=tmp_path, history=1) as (host, endpoint):
        await host.open(opening())
        await host.open(opening("t"))
        await told(host, asking("a", title="first"))
        await told(host, asking("b", title="second", turn=1))
        await told(host, asking("c", title="third", turn=2))
        await told(host, asking("d", title="fourth", session="t"))
    prompts = [request["messages"][1]["content"] for request in endpoint.requests]
    assert "first" in prompts[1]
    assert "first" not in prompts[2]
    assert "Earlier" not in prompts[3]


async def test_the_gold_answer_reaches_no_model(tmp_path: Path) -> None:
    def say(request: dict[str, Any]) -> str:
        made = "design tools" in request["messages"][0]["content"]
        return json.dumps([FILM]) if made else year(request)

    for folder in (tmp_path, None):
        async with simulated(say, folder=folder) as (host, endpoint):
            await host.open(opening(metadata=TASK))
            await told(host, asking("a"))
            assert endpoint.requests
            assert GOLD not in json.dumps(endpoint.requests)
            await told(host, asking("b", title=GOLD, turn=1))  # the policy wrote it
            assert GOLD in json.dumps(endpoint.requests)


async def test_tools_are_made_from_the_question_once_for_its_group() -> None:
    async with simulated(makes) as (host, endpoint):
        assert host.list_tools() == ()
        first = await host.open(opening("s", metadata=TASK))
        again = await host.open(opening("t", metadata=TASK))
        assert [tool.name for tool in first.tools] == ["film"]
        assert again.tools == first.tools
        assert len(endpoint.requests) == 1
        assert TASK["question"] in str(endpoint.requests[0])
        await host.open(opening("u", metadata={"question": "Another?"}))
        assert len(endpoint.requests) == 2


async def test_no_tools_are_made_where_the_task_has_them_off() -> None:
    async with simulated(makes) as (host, endpoint):
        opened = await host.open(opening(metadata={**TASK, "tools": "off"}))
        assert opened.tools == ()
        await host.open(opening("t", metadata={"tools": "off"}))
        assert endpoint.requests == []
        on = await host.open(opening("u", metadata={**TASK, "tools": "on"}))
        assert [tool.name for tool in on.tools] == ["film"]


async def test_made_tools_are_linted_and_made_again() -> None:
    answers = [json.dumps([film(description="")]), json.dumps([FILM])]
    async with simulated(lambda _: answers.pop(0)) as (host, endpoint):
        opened = await host.open(opening(metadata=TASK))
    assert [tool.name for tool in opened.tools] == ["film"]
    assert "no description" in endpoint.requests[1]["messages"][-1]["content"]


async def test_the_endpoint_may_be_told_the_form_of_a_tool_set() -> None:
    async with simulated(makes, constrained=True) as (host, endpoint):
        await host.open(opening(metadata=TASK))
    assert "response_format" not in endpoint.requests[0], "that is for answers"
    title = {"title": {"type": "string", "description": "Of the film."}}
    bare = film(parameters={"type": "object", "properties": title})
    async with simulated(lambda _: json.dumps([bare]), constrained_tools=True) as (host, endpoint):
        opened = await host.open(opening(metadata=TASK))
    assert opened.tools[0].arguments_schema["required"] == ["title"]
    assert "minLength" not in endpoint.requests[0]["messages"][0]["content"]
    schema = endpoint.requests[0]["response_format"]["json_schema"]["schema"]
    assert (schema["type"], schema["maxItems"]) == ("array", MOST_TOOLS)


async def test_a_maker_that_makes_nothing_opens_no_session() -> None:
    async with simulated(lambda _: "nonsense") as (host, _):
        with refused(Reason.BACKEND_DOWN) as failure:
            await host.open(opening(metadata=TASK))
        assert "made no tools" in failure.value.message
        with refused(Reason.INVALID_REQUEST) as failure:
            await host.open(opening("t"))
        assert "'question'" in failure.value.message


async def test_maker_and_actor_may_be_two_models(tmp_path: Path) -> None:
    async with chat_endpoint(makes) as maker:
        options = {"maker": {"endpoint": maker.url, "model": "large"}}
        async with simulated(year, **options) as (host, actor):
            await host.open(opening(metadata=TASK))
            await told(host, asking("a"))
        assert [request["model"] for request in maker.requests] == ["large"]
        assert [request["model"] for request in actor.requests] == ["tiny"]


async def test_a_model_that_is_down_or_too_dear_is_nothing_that_the_policy_reads(
    tmp_path: Path,
) -> None:
    async with simulated(year, folder=tmp_path, budget_requests=1) as (host, endpoint):
        endpoint.faults = [fault(503)]
        await host.open(opening())
        with refused(Reason.BACKEND_DOWN) as failure:
            await host.call(asking("a"))
        assert failure.value.retry_after is not None
        with refused(Reason.BACKEND_DOWN) as failure:
            await host.call(asking("a"))
        assert failure.value.retry_after is None


async def test_of_a_hybrid_some_tools_are_real(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(
        "from toolsvc import tool\n\n"
        "@tool\ndef film(title: str) -> dict:\n    return {'real': 1}\n",
        encoding="utf-8",
    )
    both = {"live": ["real.py"], "tools": [FILM, film(name="song")]}
    async with simulated(year, both, folder=tmp_path) as (host, endpoint):
        await host.open(opening())
        _, real = await told(host, asking("a"))
        assert endpoint.requests == []
        _, played = await told(host, asking("b", tool="song", turn=1))
        assert (real, played) == ({"real": 1}, {"year": 2003})


async def test_ordinary_schemas_are_changed_and_counted() -> None:
    member = {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
    ours = film(parameters={"type": "object", "properties": {"title": member}})
    async with chat_endpoint(lambda _: json.dumps([ours])) as endpoint:
        given = {"endpoint": endpoint.url, "model": "tiny", "retries": 0}
        cast = Cast(SimulatedOptions.model_validate(given))
        async with Host([MadeTools(cast)]) as host:
            (tool,) = (await host.open(opening(metadata=TASK))).tools
            assert cast.figures()["schema_changes_total"] == 2
    title = tool.arguments_schema["properties"]["title"]
    assert title == {"type": ["string", "null"], "description": "(format: date)"}
    assert len(endpoint.requests) == 1, "nothing was asked for again"


async def test_prompts_are_options(tmp_path: Path) -> None:
    maker, actor = tmp_path / "maker.txt", tmp_path / "actor.txt"
    maker.write_text("Make {most_tools} tools with {keywords} and {braces}.\n", encoding="utf-8")
    actor.write_text("Be a tool: {tool}.", encoding="utf-8")

    def says(request: dict[str, Any]) -> str:
        return year(0) if "Be a tool" in request["messages"][0]["content"] else makes(request)

    options = {"maker_prompt": maker, "actor_prompt": actor}
    async with simulated(says, **options) as (host, endpoint):
        await host.open(opening(metadata=TASK))
        await told(host, asking("a"))
    made, played = (request["messages"][0]["content"] for request in endpoint.requests)
    assert made.startswith(f"Make {MOST_TOOLS} tools with type, enum, ")
    assert made.endswith(" and {braces}.")
    assert played.startswith("Be a tool: {tool}. Answer with one JSON value")


async def test_the_endpoint_may_be_told_the_schema(tmp_path: Path) -> None:
    async with simulated(year, folder=tmp_path, constrained=True) as (host, endpoint):
        await host.open(opening())
        await told(host, asking("a"))
    schema = endpoint.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["year"]


def test_a_world_may_be_kept_for_ever() -> None:
    """In the word that its option's description has, as it is typed behind --set."""
    told = {"endpoint": "http://127.0.0.1:1/v1", "model": "m"}
    assert SimulatedOptions.model_validate(told).cache_days == 30
    assert SimulatedOptions.model_validate({**told, "cache_days": "none"}).cache_days is None
    assert SimulatedOptions.model_validate({**told, "cache_days": "0.5"}).cache_days == 0.5
    for wrong in ("never", "0", "-1", "inf", "1e9", "nan", ""):
        with pytest.raises(ValidationError):
            SimulatedOptions.model_validate({**told, "cache_days": wrong})
