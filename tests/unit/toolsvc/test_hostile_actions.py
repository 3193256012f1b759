"""What a policy writes is arguments or an invalid action, whatever it is and whichever tool reads
it: never an error of the service, which would end the trajectory and give the policy another."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import CallToolRequestParams
from pydantic import BaseModel

from tests.support.hosts import Counter, calling, opening
from toolsvc.edge.wire import call_from_proto
from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.reading import arguments_of, tool_of_action
from toolsvc.plugin.tool import Tool
from toolsvc.schemas.schema_tool import SchemaTool
from toolsvc.sources.mcp.offer import Offer
from toolsvc.sources.verltool.http import ObservationServer
from toolsvc.tools.bash.bash_tool import BashTool
from toolsvc.tools.create.create_tool import CreateTool
from toolsvc.tools.finish import AnswerOptions, FinishTool
from toolsvc.tools.image.image_tool import ImageOptions, ImageTool
from toolsvc.tools.python import PythonTool
from toolsvc.tools.sql.templates import Templates
from toolsvc.types import Call, RawFormat, Result
from toolwright.reading.json_text.json_bounds import (
    MOST_CHARACTERS,
    MOST_VALUES,
    OutOfBounds,
    check_values,
    read_json,
)
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind


class Adder(Tool):
    class Arguments(BaseModel):
        a: float
        b: Any = 0

    name = "adder"
    arguments = Arguments

    async def call(self, state: object, call: Call) -> str:
        return "never"


class Schemed(SchemaTool):
    name = "schemed"
    schema: Mapping[str, Any] = {"properties": {"a": {"type": ["integer", "string", "array"]}}}

    async def call(self, state: object, call: Call) -> str:
        return "never"


TOOLS: list[Tool] = [
    Adder(),
    Schemed(),
    FinishTool(AnswerOptions()),
    BashTool(),
    CreateTool(),
    PythonTool(),
    ImageTool(ImageOptions()),
]
DESCRIPTORS = [tool.describe() for tool in TOOLS]
VALUES = {
    "brackets": "[" * 3000,
    "braces": '{"a":' * 3000,
    "lists": "[" * 60 + "]" * 60,
    "digits": "9" * 400,
    "more-digits": "9" * 5000,
    "exponent": "1e999",
    "minus": "-" + "9" * 400,
    "nan": "NaN",
    "surrogate": r'"\ud83d"',
    "name-of-surrogates": r'{"\udfff": 1}',
    "many": "[" + "1," * MOST_VALUES + "1]",
    "half": '{"a": ',
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_no_value_in_a_call_is_an_error_of_the_service(tool: Tool, value: str) -> None:
    """As an argument, in the place of the arguments, and in the place of the call."""
    for body in (
        f'{{"name": "{tool.name}", "arguments": {{"a": {value}}}}}',
        f'{{"name": "{tool.name}", "arguments": {value}}}',
        value,
    ):
        action = f"<tool_call>{body}</tool_call>"
        with suppress(InvalidAction):
            tool_of_action(action, DESCRIPTORS, lambda _: True)
        with pytest.raises(InvalidAction):
            arguments_of(tool, tool.describe(), action, None)


@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf")])
def test_arguments_that_came_as_data_have_the_same_bounds(number: float) -> None:
    for tool in TOOLS:
        with pytest.raises(InvalidAction):
            arguments_of(tool, tool.describe(), "", {"a": number})
        with pytest.raises(InvalidAction):
            arguments_of(tool, tool.describe(), "", {"a": [{"b": number}]})


def test_an_action_has_a_length() -> None:
    for tool in TOOLS:
        action = f"<{tool.name}>{'7' * MOST_CHARACTERS}</{tool.name}>"
        with pytest.raises(InvalidAction, match="characters"):
            arguments_of(tool, tool.describe(), action, None)
        with pytest.raises(InvalidAction, match="characters"):
            tool_of_action(action, [tool.describe()], lambda _: True)


def _raise(error: Exception) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise error

    return method


@pytest.mark.parametrize(
    "error", [RecursionError(), OverflowError("int too large"), KeyError("a"), MemoryError()]
)
@pytest.mark.parametrize("method", ["make_arguments", "check_arguments", "parse", "accepts"])
async def test_whatever_a_tool_raises_while_it_reads_is_an_invalid_action(
    method: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class First(Counter):
        name = "first"
        format = RawFormat()

    class Second(Counter):
        name = "second"
        format = RawFormat()

    tool = First()
    monkeypatch.setattr(tool, method, _raise(error))
    async with Host([tool, Second()]) as host:
        await host.open(opening())
        name = "" if method == "accepts" else "first"
        answer = await host.call(calling("a", tool=name, action="x</bash>", arguments=None))
        assert answer.result.error.kind is ToolErrorKind.INVALID_ACTION
        # Its id is taken: the answer is recorded like any other.
        again = await host.call(calling("a", tool=name, action="x</bash>", arguments=None))
        assert again is answer


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(json_values)
def test_what_passes_can_be_said_in_json_and_in_utf8(value: Any) -> None:
    try:
        check_values(value)
    except OutOfBounds:
        return
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    assert read_json(text.encode().decode()) == value


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TOOLS), st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_any_arguments_are_arguments_or_invalid(tool: Tool, given_: dict[str, Any]) -> None:
    action = f"<tool_call>{json.dumps({'name': tool.name, 'arguments': given_})}</tool_call>"
    for given_now in (None, given_):
        with suppress(InvalidAction):
            assert isinstance(arguments_of(tool, tool.describe(), action, given_now), dict)


@pytest.mark.parametrize(
    "given_",
    [
        {"edit": "view", "path": "x" * 5000},
        {"edit": "create", "path": "b/" * 300 + "a", "file_text": "a"},
        {"edit": "create", "path": "b", "file_text": "\x01" * 990_000},
        {"command": "\x01" * 990_000},
    ],
)
def test_an_edit_that_the_sandbox_cannot_take_costs_no_session(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidAction):
        arguments_of(TOOLS[3], DESCRIPTORS[3], "", given_)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800", "..", "a/b", ""])
def test_a_database_name_that_no_file_can_have_is_refused(name: str, tmp_path: Any) -> None:
    templates = Templates(tmp_path, key="database", cache_bytes=1 << 20)
    with pytest.raises(Refused) as caught:
        templates.find({"database": name})
    assert len(caught.value.message) < 500


def test_a_result_is_unchanged_by_the_bounds() -> None:
    value = {"a": [1, 2.5, None, True, "zürich \U0001f600", {"b": [[[[]]]]}]}
    assert read_json(json.dumps(value)) == value
    assert arguments_of(Adder(), Adder().describe(), "", {"a": 1, "b": value})["b"] == value
    assert Result.of("x").valid


@pytest.mark.parametrize("value", [10**400, float("nan"), "\ud83d", [[[[]]] * 60_000]])
async def test_an_mcp_agent_is_told_what_cannot_be_read(value: Any) -> None:
    """Nothing is sent to the service: protobuf could not say it."""
    descriptor = pb.ToolDescriptor(name="adder")
    offer = Offer(cast("Any", None), {"adder": descriptor}, "stdio")
    params = CallToolRequestParams(name="adder", arguments={"a": value})
    told = await offer._call_tool(cast("Any", None), params)
    assert told.is_error
    assert "cannot read the call" in str(told.content[0])


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_arguments_over_grpc_have_the_same_bounds(value: str) -> None:
    """As JSON beside the Struct, in which integers of any size travel, or what is no JSON."""
    request = pb.CallToolRequest(
        session_id="s", call_id="a", tool="adder", arguments_json=f'{{"a": [{value}]}}'
    )
    request.arguments.SetInParent()
    async with Host([Adder()]) as host:
        await host.open(opening())
        answer = await host.call(call_from_proto(request))
        assert answer.result.error.kind is ToolErrorKind.INVALID_ACTION


async def test_an_action_over_verltool_s_http_may_be_anything() -> None:
    async with (
        Host([Adder(), Schemed()]) as host,
        ObservationServer(host, "127.0.0.1:0", insecure=False) as server,
        aiohttp.ClientSession() as session,
    ):
        actions = [
            f'<tool_call>{{"name": "adder", "arguments": {{"a": {value}}}}}</tool_call>'
            for value in VALUES.values()
        ]
        body = {"trajectory_ids": [str(n) for n in range(len(actions))], "actions": actions}
        url = f"http://127.0.0.1:{server.port}/get_observation"
        async with session.post(url, json=body) as answer:
            told = await answer.json()
    assert told["valids"] == told["dones"] == [False] * len(actions)
