"""Forks of the `python` tool: real jails, sessions brought to a state by running it again."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import toolsvc.tools.replaying
from tests.support.hosts import calling, opening, refused, said
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.python import PythonTool
from toolsvc.types import CallRequest, ForkRequest

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    tool = PythonTool(sandbox=SandboxConfig(shards=1, ready=2, memory_bytes=256 * MIB))
    async with Host([tool]) as one:
        yield one


def code(text: str, session: str, **more: Any) -> CallRequest:
    call_id = uuid.uuid4().hex
    return calling(
        call_id, session=session, tool="python", arguments={"code": text},
        digest=call_id.encode(), **more
    )  # fmt: skip


async def opened(host: Host, *programs: str) -> str:
    name = uuid.uuid4().hex
    await host.open(opening(name))
    for program in programs:
        await host.call(code(program, name))
    return name


async def forked(host: Host, parent: str) -> str:
    name = uuid.uuid4().hex
    await host.fork(ForkRequest(parent=parent, child=opening(name)))
    return name


async def test_a_fork_has_variables_imports_and_files_and_effects_leak_neither_way(
    host: Host,
) -> None:
    (tool,) = host.list_tools()
    assert tool.fork and tool.fork_replays
    parent = await opened(
        host, "import math; x = [1]", "open('note', 'w').write('kept')", "x.append(2); 1 / 0"
    )
    child = await forked(host, parent)
    seen = "(x, math.pi > 3, open('note').read())"
    assert said(await host.call(code(seen, child))) == "([1, 2], True, 'kept')"
    await host.call(code("x.append('child'); open('note', 'w').write('child')", child))
    assert said(await host.call(code(seen, parent))) == "([1, 2], True, 'kept')"
    await host.call(code("x.append('parent')", parent))
    assert said(await host.call(code("x", child))) == "[1, 2, 'child']"
    assert len(host.look(child).call_ids) == 3 + 3


async def test_a_fork_of_a_session_that_ran_nothing_and_of_a_fork(host: Host) -> None:
    empty = await opened(host)
    child = await forked(host, empty)
    await host.call(code("y = 1", child))
    grandchild = await forked(host, child)
    assert said(await host.call(code("y", grandchild))) == "1"
    assert "NameError" in said(await host.call(code("y", empty)))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.urandom(16)", "call 2 came to something else"),
        ("while True: pass", "call 2 was stopped (timeout)"),
    ],
)
async def test_a_session_that_does_not_run_again_as_it_did_is_not_forked(
    host: Host, program: str, says: str
) -> None:
    parent = await opened(host, "x = 1")
    await host.call(code(program, parent, run_limit=0.5))
    before = len(host.session_ids)
    with refused(Reason.NOT_SERVED) as failure:
        await forked(host, parent)
    assert says in failure.value.message
    assert len(host.session_ids) == before
    assert said(await host.call(code("x", parent))) == "1"


async def test_a_session_that_crashed_is_lost_to_its_forks_too(host: Host) -> None:
    parent = await opened(host, "import os; os._exit(1)")
    with refused(Reason.SESSION_LOST):
        await forked(host, parent)
    assert host.look(parent)


async def test_more_code_than_is_kept_is_no_fork(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.tools.replaying, "JOURNAL_CHARACTERS", 200)
    parent = await opened(host, "x = 1")
    await forked(host, parent)
    await host.call(code(f"y = {'1' * 100}", parent))
    with refused(Reason.NOT_SERVED) as failure:
        await forked(host, parent)
    assert "200 characters" in failure.value.message
