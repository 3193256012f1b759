"""The `python` tool's options, in real jails; what every session of it does is in test_service."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.trajectory import Trajectory, said
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.python import PythonOptions, PythonTool
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SMALL = SandboxConfig(shards=1, ready=2, memory_bytes=256 * MIB)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stateless() -> AsyncIterator[Host]:
    options: dict[str, Any] = {"mode": "stateless", "format": "fenced", "preload": ["fractions"]}
    tool = PythonTool(PythonOptions.model_validate(options), SMALL)
    async with Host([tool]) as host:
        yield host


def fenced(*blocks: str) -> str:
    return "So:\n" + "\n".join(f"```python\n{block}\n```" for block in blocks) + "\n```output"


async def test_a_stateless_call_finds_nothing_of_the_one_before(stateless: Host) -> None:
    trajectory = Trajectory(stateless, "python")
    made = await trajectory.act(fenced("x = 1; open('note', 'w').write('kept?'); x"))
    assert said(made) == "1"
    code = "import os; ('x' in globals(), os.path.exists('note'))"
    assert said(await trajectory.act(fenced(code))) == "(False, False)"


async def test_all_blocks_of_an_action_are_one_program(stateless: Host) -> None:
    trajectory = Trajectory(stateless, "python")
    assert said(await trajectory.act(fenced("x = 20", "x + 1"))) == "21"
    none = await trajectory.act("no block")
    assert not none.valid


async def test_a_stateless_call_that_dies_loses_no_session(stateless: Host) -> None:
    trajectory = Trajectory(stateless, "python")
    died = await trajectory.act(fenced("print('before', flush=True)", "import os; os._exit(3)"))
    assert died.error.kind is ToolErrorKind.CRASHED
    assert not died.error.session_lost
    assert said(died).startswith("before\nCrashed: its process ended itself with exit code 3")
    late = await trajectory.act(fenced("while True: pass"), run_limit=0.2)
    assert said(late) == "TimeoutError: stopped after 0.2 s"
    assert said(await trajectory.act(fenced("'again'"))) == "'again'"


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        # Preloaded modules are there.
        ("import sys; 'fractions' in sys.modules", "True"),
        # Annotations are no texts, as `from __future__ import annotations` would make them.
        ("def f(x: int): ...\nf.__annotations__['x'] is int", "True"),
        ("print(1)\nexit()\nprint(2)", "1"),
        ("exit('no answer')", "SystemExit: no answer"),
        ("try:\n    quit(2)\nfinally:\n    print('end')", "end\nSystemExit: 2"),
        ('s = """a\n   \nb"""\nprint(repr(s))', r"'a\n   \nb'"),
    ],
)
async def test_code_as_people_write_it(stateless: Host, code: str, reads: str) -> None:
    assert said(await Trajectory(stateless, "python").act(fenced(code))) == reads
