"""MCP servers that list or answer as they should not."""

import sys
import time

import pytest

from tests.support import odd_mcp_server
from tests.support.mcp_host import call, hosting, text_of
from toolsvc.errors import StartError
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolsvc.sources.mcp.mcp_tool import own_names
from toolwright.types import ToolErrorKind

pytestmark = pytest.mark.quick


def server(mode: str) -> str:
    return f"mcp:{sys.executable} {odd_mcp_server.__file__} '{mode}'"


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("same", ["echo"]),
        ("circle", ["echo"]),
        ("pages", ["t0", "t1", "t2"]),
        ("names", ["a_b", "a_b_2", "c"]),
        ("names as here", ["a_b", "a_b_2", "a_b_3", "a_b_4"]),
        ("foreign names", ["__", "___2"]),
    ],
)
async def test_every_tool_is_listed_once(mode: str, names: list[str]) -> None:
    async with hosting(server(mode)) as host:
        assert sorted(tool.name for tool in host.list_tools()) == names


async def test_a_tool_of_a_changed_name_is_called_by_its_own() -> None:
    async with hosting(server("names as here")) as host:
        said = [
            text_of(await call(host, name, {}, name)) for name in ("a_b", "a_b_2", "a_b_3", "a_b_4")
        ]
    assert said == ["a_b", "a_b_2", "a.b", "a/b"]


def test_names_do_not_depend_on_the_order_of_the_list() -> None:
    names = ["a/b", "a.b", "a_b", "a b", "z"]
    assert own_names(names) == own_names(names[::-1])


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("two of one name", "two different tools named 'echo'"),
        ("endless", "more than 100 pages"),
        ("unreadable list", "is not MCP"),
    ],
)
async def test_a_list_that_cannot_be_served_is_one_sentence(mode: str, says: str) -> None:
    with pytest.raises(StartError, match=says) as failure:
        await load_tools([server(mode)], {}, SandboxConfig())
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("half a pair", "half a surrogate pair ('\\ud800')"),
        ("other half", "half a surrogate pair ('\\udc00')"),
        ("half in meta", "half a surrogate pair"),
        ("unknown content", "content of type 'resource_foo'; MCP has audio, image"),
        ("no content", "is not MCP"),
        ("text without text", "is not MCP"),
    ],
)
async def test_an_answer_that_is_not_mcp_is_one_sentence_at_once(mode: str, says: str) -> None:
    async with hosting(server(mode)) as host:
        began = time.monotonic()
        result = await call(host, "echo", {})
        assert time.monotonic() - began < 10  # of a run limit of 30
    assert result.error.kind is ToolErrorKind.EXCEPTION
    assert says in text_of(result)
    assert "\n" not in text_of(result)
