"""The plugin interface: decorated functions, subclasses, limits, failures."""

import asyncio
import threading
import time

import pytest

from tests.support.hosts import call_of
from tests.support.trajectory import said
from tests.support.waiting import holds_for
from toolsvc import (
    Author,
    Call,
    InvalidAction,
    JsonCallFormat,
    Media,
    Result,
    Tool,
    ToolFailed,
    tool,
)
from toolsvc.plugin.decorator import tool_of
from toolsvc.plugin.tool import Cancellation, InService, OutOfProcess
from toolsvc.types import TagFormat, Text
from toolwright.types import ToolErrorKind


@tool
def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


@tool(name="add_numbers", run_limit=2.0)
def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


@tool
async def turns(text: str, call: Call) -> str:
    await asyncio.sleep(0)
    return f"{text} {call.turns_left}"


def of(function: object) -> Tool:
    found = tool_of(function)
    assert isinstance(found, type)
    return found()


async def run(tool: Tool, given: Call, cancellation: Cancellation | None = None) -> Result:
    return await InService(tool).run(None, given, cancellation or Cancellation())


def test_one_text_parameter_makes_a_tag_tool() -> None:
    described = of(shout).describe()
    assert described.name == "shout"
    assert described.format == TagFormat(open="<shout>", close="</shout>", argument="text")
    assert described.stop_strings == ("</shout>",)
    assert described.description == "Says it louder."
    assert "<shout>" in described.usage


def test_several_parameters_make_a_json_call_with_a_schema() -> None:
    described = of(add).describe()
    assert described.name == "add_numbers"
    assert described.run_limit == 2.0
    assert described.format == JsonCallFormat()
    assert described.arguments_schema["required"] == ["a"]
    assert described.arguments_schema["properties"]["b"]["default"] == 1


def test_arguments_are_checked_against_the_schema() -> None:
    assert of(add).make_arguments({"a": 2}) == {"a": 2, "b": 1}
    with pytest.raises(InvalidAction, match="a: "):
        of(add).make_arguments({"a": "many"})
    with pytest.raises(InvalidAction, match="c: "):
        of(add).make_arguments({"a": 1, "c": 2})
    with pytest.raises(InvalidAction):
        of(shout).make_arguments({"text": 3})
    with pytest.raises(InvalidAction):
        of(shout).make_arguments({"words": "x"})


async def test_results_of_plain_functions_and_coroutines() -> None:
    assert said(await run(of(shout), call_of(text="a"))) == "A"
    assert said(await run(of(add), call_of(a=2, b=3))) == "5"
    assert said(await run(of(turns), call_of(text="t"))) == "t 0"


@pytest.mark.parametrize(
    ("error", "kind", "valid"),
    [
        (ValueError("no"), ToolErrorKind.EXCEPTION, True),
        (ToolFailed("as it stands"), ToolErrorKind.EXCEPTION, True),
        (InvalidAction("what?"), ToolErrorKind.INVALID_ACTION, False),
    ],
)
async def test_what_a_plugin_raises_is_told_to_the_policy(
    error: Exception, kind: ToolErrorKind, valid: bool
) -> None:
    class Broken(Tool):
        name = "broken"

        def call(self, state: object, call: Call) -> str:
            raise error

    result = await run(Broken(), call_of(text=""))
    assert result.error.kind is kind
    assert result.valid is valid
    assert str(error) in said(result)


async def test_a_thread_outlives_its_limit_and_says_when_it_has_ended() -> None:
    release = threading.Event()

    class Stuck(Tool):
        name = "stuck"

        def call(self, state: object, call: Call) -> str:
            release.wait(10)
            return ""

    cancellation = Cancellation()
    began = time.perf_counter()
    result = await run(Stuck(), call_of(run_limit=0.05), cancellation)
    assert time.perf_counter() - began < 5
    assert result.error.kind is ToolErrorKind.TIMEOUT
    idle = asyncio.Event()
    cancellation.when_idle(idle.set)
    await holds_for(0.05, lambda: not idle.is_set(), "the thread to be running")
    assert not idle.is_set()
    release.set()
    async with asyncio.timeout(5):
        await idle.wait()


def test_a_parameter_that_cannot_be_filled_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(TypeError, match="rest"):

        @tool
        def takes_all(*rest: str) -> str:
            return ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("check", "write `make_arguments`"),
        ("prepare", "write `prepare` of a state that is a `LiveState`"),
        ("lost", "write `lost` of a state that is a `LiveState`"),
        ("run", "add `executor = OutOfProcess`"),
    ],
)
def test_a_method_of_an_earlier_version_names_the_new_one(name: str, says: str) -> None:
    with pytest.raises(TypeError, match=f"tool class Mine has `{name}`: {says}"):
        type("Mine", (Tool,), {"name": "mine", name: lambda self: None})
    assert type("Mine", (Tool,), {"run": lambda self: None, "executor": OutOfProcess})


async def test_waiting_for_something_cancelled_is_the_plugin_s_own_failure() -> None:
    class Waiting(Tool):
        name = "waiting"

        async def call(self, state: object, call: Call) -> str:
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            return str(await other)

    result = await run(Waiting(), call_of())
    assert result.error.kind is ToolErrorKind.EXCEPTION
    assert "CancelledError" in result.error.message


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (Result(observation="text"), "observation"),  # type: ignore[arg-type]
        (Result(observation=(Text(text=b"bytes"),)), "observation"),  # type: ignore[arg-type]
        (Result(observation=(Media(media_type="", data=b"x"),)), "observation"),
        (Result(reward="much"), "reward"),  # type: ignore[arg-type]
        (Result(metrics={"hits": None}), "hits"),  # type: ignore[dict-item]
        (Result(author=Author.MODEL), "author"),
        (Result(author="SYSTEM"), "author"),  # type: ignore[arg-type]
        (Result(token_budget=-1), "token_budget"),
        (Result(token_budget=1 << 30), "token_budget"),
        (Result(token_budget=True), "token_budget"),
        (Result(token_budget=1.5), "token_budget"),  # type: ignore[arg-type]
        (object(), "JSON"),
    ],
)
async def test_what_no_answer_can_hold_is_the_plugin_s_own_failure(
    returned: object, says: str
) -> None:
    class Wrong(Tool):
        name = "wrong"

        async def call(self, state: object, call: Call) -> object:
            return returned

    result = await run(Wrong(), call_of())
    assert result.error.kind is ToolErrorKind.EXCEPTION
    assert says in result.error.message
