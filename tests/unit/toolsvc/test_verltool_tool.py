"""VerlTool tool classes as tools of ours: loading, environments, results."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import calling, opening
from toolsvc.errors import StartError
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools
from toolsvc.types import Media, Result, Text
from toolwright.types import ToolErrorKind

TOOLS = Path(__file__).parents[2] / "support" / "verltool"
STOP = {"verltool": {"stop": ["</tool_call>"]}}

ON_A_LOOP = '''
import asyncio
from .base import BaseTool, register_tool

@register_tool
class Slow(BaseTool):
    """Uses a lock that belongs to one event loop, as a client's connections do."""
    tool_type = "slow"
    stop_tokens = ["</slow>"]

    def __init__(self, num_workers=1):
        super().__init__(num_workers)
        self.lock = asyncio.Lock()
        self.stopped = 0

    async def aget_observations(self, trajectory_ids, actions, extra_fields):
        async with self.lock:
            self.save_env(trajectory_ids[0], self.load_env(trajectory_ids[0]))
            try:
                await asyncio.sleep(float(actions[0]))
            except asyncio.CancelledError:
                self.stopped += 1
                raise
        return [f"slept, {self.stopped} stopped"], [False], [True]
'''


ASKS_A_LOOP = '''
import asyncio
from .base import BaseTool, register_tool

@register_tool
class Piston(BaseTool):
    """Tries its server while it is made, as VerlTool's piston does."""
    tool_type = "piston"
    stop_tokens = ["</piston>"]

    def __init__(self, num_workers=1):
        super().__init__(num_workers)
        self.reached = asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, "reached"))

    def conduct_action(self, trajectory_id, action, extra_field):
        return self.reached, False, True
'''


@pytest.fixture(autouse=True)
def nothing_is_left_imported() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl_tool"]:
        del sys.modules[name]


async def load(path: Path, **settings: Any) -> list[Tool]:
    return await load_tools([f"verltool:{path}"], settings, SandboxConfig())


@asynccontextmanager
async def hosting(tool: Tool, metadata: Any = {}) -> AsyncIterator[Host]:  # noqa: B006
    async with Host([tool]) as host:
        await host.open(opening(metadata=metadata))
        yield host


async def act(host: Host, action: str, call_id: str = "a", **more: Any) -> Result:
    answer = await host.call(
        calling(call_id, tool="", action=action, arguments=None, **more)._replace(
            digest=f"{call_id} {action}".encode()
        )
    )
    return answer.result


async def test_a_class_finds_an_event_loop_while_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "piston.py").write_text(ASKS_A_LOOP, encoding="utf-8")
    (tool,) = await load(tmp_path / "piston.py")
    async with hosting(tool) as host:
        assert await act(host, "x</piston>") == Result.of("reached")


async def test_an_action_that_the_tool_calls_invalid(tmp_path: Path) -> None:
    (tool,) = await load(TOOLS / "word_count.py")
    async with hosting(tool) as host:
        told = await act(host, "nothing")
        assert (told.valid, told.invalid_reason) == (False, "Write <count>text</count>.")
        assert told.error.kind is ToolErrorKind.INVALID_ACTION
        assert (await act(host, "<count> </count>", "b")).invalid_reason == "no words"


async def test_of_several_tools_the_first_that_accepts_the_action_gets_it() -> None:
    words = [f"verltool:{TOOLS / name}" for name in ("basket.py", "word_count.py")]
    async with Host(await load_tools(words, STOP, SandboxConfig())) as host:
        await host.open(opening())
        counted = await act(host, "<count>one two</count>", turns_left=0)
        assert counted == Result.of("<result>2 words, 0 turns left</result>")
        assert await act(host, '{"put": "pear"}', "b") == Result.of("1 from a shop: pear")
        neither = await act(host, "nothing", "c")
        assert "basket, word_count" in neither.invalid_reason


async def test_an_environment_lives_from_call_to_call_and_ends_with_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASKET_FOLDER", str(tmp_path))
    (tool,) = await load(TOOLS / "basket.py", **STOP)
    async with hosting(tool, {"shop": "corner"}) as host:
        await host.open(opening("other"))
        await act(host, '<tool_call>{"put": "pear"}</tool_call>')
        both = await act(host, '<tool_call>{"put": "plum"}</tool_call>', "b")
        assert both == Result.of("2 from corner: pear, plum")
        other = await act(host, '<tool_call>{"put": "fig"}</tool_call>', session="other")
        assert other == Result.of("1 from a shop: fig")
        assert len(os.listdir(tmp_path)) == 2
        await host.close("s")
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


async def test_images_rewards_and_ends_are_ours() -> None:
    (tool,) = await load(TOOLS / "basket.py", **STOP)
    async with hosting(tool) as host:
        photo = await act(host, '{"photo": 3}')
        png = Media(media_type="image/png", data=b"ppp")
        assert photo.observation == (Text(text="before "), png, Text(text=" after"))
        paid = await act(host, '{"pay": true}', "b")
        assert paid == Result.of("paid", done=True, reward=0.5, metrics={"price": 3})
        fell = await act(host, '{"drop": 1}', "c")
        assert fell.error.message == "RuntimeError: the basket fell"


async def test_an_environment_is_deleted_after_a_call_that_outlived_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASKET_FOLDER", str(tmp_path))
    (tool,) = await load(TOOLS / "basket.py", **STOP)
    async with hosting(tool) as host:
        slow = '{"put": "pear", "after": 0.3}'
        result = await act(host, slow, run_limit=0.05)
        assert result.error.kind is ToolErrorKind.TIMEOUT
        await host.close("s")
    assert os.listdir(tmp_path) == []


async def test_coroutines_run_on_one_loop_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(ON_A_LOOP, encoding="utf-8")
    (tool,) = await load(tmp_path / "slow.py")
    async with hosting(tool) as host:
        await host.open(opening("other"))
        limited = act(host, "60", run_limit=0.05)
        others = await asyncio.gather(limited, act(host, "0", session="other"))
        assert others[0].error.kind is ToolErrorKind.TIMEOUT
        assert others[1] == Result.of("slept, 1 stopped")
    assert not [one for one in threading.enumerate() if one.name.startswith("verltool")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from .base import BaseTool", "defines no tool"),
        ("import verl_tool.agent_loop", "PYTHONPATH"),
        ("from .base import BaseTool\nclass A(BaseTool):\n    tool_type = 'a'", "stop_tokens"),
    ],
)
async def test_a_file_that_cannot_be_served_is_one_sentence(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "bad.py").write_text(text, encoding="utf-8")
    with pytest.raises(StartError, match=says) as failure:
        await load(tmp_path / "bad.py")
    assert "\n" not in str(failure.value)


async def test_an_installed_verl_tool_gives_the_base_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "verl_tool" / "servers" / "tools"
    package.mkdir(parents=True)
    (package / "base.py").write_text(
        "class BaseTool:\n    tool_type = 'theirs'\n    stop_tokens = ['.']\n"
        "    def __init__(self, num_workers): self.workers = num_workers\n"
        "    def get_usage_inst(self): return f'{self.workers} workers'\n",
        encoding="utf-8",
    )
    (tmp_path / "mine.py").write_text(
        "from .base import BaseTool\nclass Mine(BaseTool):\n    tool_type = 'mine'\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tool,) = await load(tmp_path / "mine.py", verltool={"num_workers": 7})
    assert tool.describe().description == "7 workers"
