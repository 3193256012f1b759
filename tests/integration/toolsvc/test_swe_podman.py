"""The swe tool in containers of Debian's podman and runc, behind a service of its own."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.containers.podman import IMAGE, Podman
from tests.support.repository import FIX
from tests.support.service import Client
from tests.support.swe import Source, call, serving, submit
from tests.support.trajectory import Trajectory, said
from toolsvc.errors import Reason, Refused
from toolwright.json_data import struct
from toolwright.rpc.channel import call as rpc
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="podman of an ordinary user bounds no memory without delegated control groups",
    ),
]

FIXES = call("file_editor", command="str_replace", path="bill.py", old_str=FIX[0], new_str=FIX[1])
LEAVES = call("execute_bash", command="sleep 600 & echo begun")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    running = Podman(tmp_path_factory.mktemp("podman"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running
    running.end()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("swe"))


async def test_boxes_are_opened_rewarded_and_removed(
    podman: Podman, source: Source, start: Callable[..., Any]
) -> None:
    """A service on its own event loop: what `conmon` keeps of a box must not keep the service."""
    folders = {"repositories": source.repositories, "verifications": source.verifications}
    settings = {"runner": "podman", "image": IMAGE, **folders}
    service = start("swe", *(f"--set=swe.{name}={value}" for name, value in settings.items()))
    client = Client(service.address)

    async def rollout(*actions: str) -> tuple[str, float]:
        session = await client.open(metadata=struct(source.task()))
        for action in actions:
            answer = await client.call(session, action)
            assert not answer.result.HasField("error"), answer
        text, reward = answer.result.observation[0].text, answer.result.reward
        began = time.monotonic()
        closing = pb.CloseSessionRequest(session_id=session)
        await rpc(client.stub.CloseSession, closing, timeout=30)
        assert time.monotonic() - began < 8.0, "the removal waited for a container to end"
        return text, reward

    fixed, left = await asyncio.gather(
        rollout(FIXES, LEAVES, call("submit")),
        rollout(LEAVES),
    )
    assert fixed == ("Submitted.", 1.0)
    assert left[0] == "begun"
    assert podman.ask("ps", "--all", "--quiet") == ""


FILLS_ITS_BOX = """
python3 -c 'import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)' > /dev/null 2>&1 & sleep 2
"""
"""Each of its processes takes the place of one that ends."""


async def test_what_a_policy_does_to_its_own_container_is_told(
    podman: Podman, source: Source
) -> None:
    options = {"runner": "podman", "image": IMAGE}
    async with serving(source, **options) as host:
        ends, fills, deletes, lost = (Trajectory(host, "swe", source.task()) for _ in range(4))
        # As by the kernel, for want of memory or by a limit that the policy set.
        await ends.open()
        process = podman.ask("inspect", "--latest", "--format", "{{.State.Pid}}")
        os.kill(int(process), signal.SIGKILL)
        for _ in range(2):
            told = await ends.act(call("execute_bash", command="true"))
            assert told.error is not None, told
            assert (told.error.kind, told.error.session_lost) == (ToolErrorKind.CRASHED, True)
            assert "first process ended with exit code 137" in said(told)

        await deletes.act(call("execute_bash", command="rm -f /bin/bash /usr/bin/bash"))
        for action in (call("execute_bash", command="true"), call("search", search_term="x")):
            told = await deletes.act(action)
            assert told.error is not None, told
            assert (told.error.kind, told.error.session_lost) == (ToolErrorKind.EXCEPTION, False)
            assert "no command can be run" in said(told)
        assert (await submit(deletes)).reward == 0.0

        await fills.act(call("execute_bash", command=FILLS_ITS_BOX), run_limit=3.0)
        # One may find a place that another left, and none for what it begins itself.
        told = await fills.act(call("execute_bash", command="echo here"), run_limit=3.0)
        assert told.error is not None or "exit code" in said(told) or said(told) == "here"
        assert (await submit(fills)).reward == 0.0

        await lost.open()
        podman.ask("rm", "--force", "--all")
        with pytest.raises(Refused) as caught:
            await lost.act(call("execute_bash", command="true"))
        assert caught.value.reason is Reason.SESSION_LOST
