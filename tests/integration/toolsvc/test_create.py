"""`create_and_execute`: tools that a policy writes, in the real sandbox."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.toolsvc.conftest import Service
from tests.support.checking import OF_CALLS, keeps_the_contract
from tests.support.hosts import calling, opening, refused
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.create.create_tool import CreateOptions, CreateTool
from toolsvc.types import Recorded, Text
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "arguments": {"a": {"type": "number"}, "b": {"type": "number"}},
    "returns": "their sum",
    "code": "def add(a, b=1):\n    print('adding')\n    return {'sum': a + b}\n",
    "inputs": {"a": 2, "b": 3},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    small = SandboxConfig(shards=1, ready=2, memory_bytes=192 * MIB)
    async with Host([CreateTool(CreateOptions(most=2, timeout=3.0), small)]) as running:
        yield running


def create(session: str, call_id: str = "a", **changes: Any) -> Any:
    arguments = {**ADD, **changes}
    return calling(
        call_id,
        session=session,
        tool="create_and_execute",
        arguments=arguments,
        digest=repr(arguments).encode(),
    )


def use(session: str, call_id: str, tool: str = "add", **arguments: Any) -> Any:
    fields = {"tool": tool, "arguments": arguments, "digest": repr(arguments).encode()}
    return calling(call_id, session=session, turn=1, **fields)


async def told(host: Host, request: Any) -> tuple[Recorded, Any]:
    answer = await host.call(request)
    (part,) = answer.result.observation
    assert isinstance(part, Text)
    try:
        return answer, json.loads(part.text)
    except ValueError:
        return answer, part.text


async def test_what_was_made_can_be_called_and_belongs_to_its_session(host: Host) -> None:
    await host.open(opening("made"))
    await host.open(opening("other"))
    answer, said = await told(host, create("made"))
    assert said == {
        "creation_success": True,
        "execution_result": {"sum": 5},
        "stdout": "adding\n",
        "stderr": "",
    }
    (descriptor,) = answer.new_tools
    assert (descriptor.name, descriptor.arguments_schema["required"]) == ("add", ["a"])
    assert answer.isolation
    answer, said = await told(host, use("made", "b", a=20))
    assert said["execution_result"] == {"sum": 21}
    assert answer.isolation
    answer, said = await told(host, use("made", "c", a="x"))
    assert not answer.result.valid
    with refused(Reason.UNKNOWN_TOOL):
        await host.call(use("other", "d", a=1))


@pytest.mark.parametrize(
    ("words", "properties", "wrong"),
    [
        ("a, b (float)", {"a": {"type": "number"}, "b": {"type": "number"}}, {"a": "x"}),
        ("a: int, b: str", {"a": {"type": "integer"}, "b": {}}, {"a": 2.5}),
        ("two numbers that are added", {"a": {}, "b": {}}, {"c": 1}),
    ],
)
async def test_arguments_may_be_described_in_words(
    host: Host, words: str, properties: dict[str, Any], wrong: dict[str, Any]
) -> None:
    """As in the paper's listing 1: the function's signature says their names."""
    session = f"words {words}"
    await host.open(opening(session))
    answer, said = await told(host, create(session, arguments=words))
    assert said["creation_success"] and said["execution_result"] == {"sum": 5}
    (descriptor,) = answer.new_tools
    assert descriptor.arguments_schema["properties"] == properties
    assert descriptor.arguments_schema["required"] == ["a"]
    answer, said = await told(host, use(session, "c", **wrong))
    assert not answer.result.valid


async def test_what_is_wrong_with_a_tool_is_told_and_nothing_is_made(host: Host) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "there is a tool": {"name": "create_and_execute"},
        "is no name": {"name": "class"},
        "does not parse": {"code": "def add(:"},
        "does not define a function add": {"code": "def other(a, b): return 1"},
        "which add does not take": {"code": "def add(a): return a"},
        "needs a name": {"code": "def add(*a): return a"},
        "is not supported": {"arguments": {"a": {"$ref": "http://127.0.0.1:1"}, "b": {}}},
        "at most 4096": {"arguments": "a (int)" * 1000},
        "unexpected keyword": {"arguments": "a, b", "code": "def add(a):\n    return b"},
        "no JSON": {"code": "def add(a, b): return add"},
        "ZeroDivisionError": {"code": "def add(a, b): return 1 / 0"},
        "stopped after 0.5 s": {"code": "def add(a, b):\n while True: pass", "timeout": 0.5},
        "at most 65536": {"code": "def add(a, b): return 'x' * 70_000"},
        "": {"code": "import os\ndef add(a, b): os._exit(3)"},
    }
    await host.open(opening("wrong"))
    for number, (reason, changes) in enumerate(wrong.items()):
        answer, said = await told(host, create("wrong", str(number), **changes))
        assert answer.new_tools == ()
        assert said["creation_success"] is False, reason
        assert reason in said["error"], said
        assert answer.result.error is not None
    _, said = await told(host, create("wrong", "right"))
    assert said["creation_success"]


async def test_code_cannot_crash_the_parser_or_fill_the_memory_of_the_service(host: Host) -> None:
    await host.open(opening("hostile"))
    for number, code in enumerate(
        (
            "def add(a, b): return " + "-" * 9000 + "1",
            "def add(a, b): return " + "(" * 9000 + "1" + ")" * 9000,
            "def add(a, b): return 'x' * (1 << 40)",
            "import sys\ndef add(a, b):\n sys.__stdout__.write('{}\\n')\n return 1",
        )
    ):
        answer, said = await told(host, create("hostile", str(number), code=code))
        assert isinstance(said["creation_success"], bool)
        if not said["creation_success"]:
            assert answer.result.error is not None


async def test_a_session_makes_so_many_tools_and_no_more(host: Host) -> None:
    await host.open(opening("many"))
    for number in range(3):
        name = f"add{number}"
        code = f"def {name}(a, b): return 1"
        answer, said = await told(host, create("many", name, name=name, code=code))
    assert "2 tools were made" in said["error"]
    assert answer.result.error.kind is ToolErrorKind.INVALID_ACTION


def test_create_and_execute_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    running = start("create_and_execute", "--ready", "2", "--shards", "1", "--memory-mib", "192")
    keeps_the_contract(running.address, *OF_CALLS, folder=tmp_path, least=22)
