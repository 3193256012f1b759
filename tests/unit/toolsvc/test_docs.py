"""The examples of docs/tools/index.md are tools; tests/integration/toolsvc/test_docs.py calls them.
So is that of docs/tools/built-in.md, which is called here."""

import sys
import types
from pathlib import Path

import pytest

from tests.support.docs import example as block
from tests.support.hosts import calling, opening, said
from tests.support.tutorial import EXAMPLES, Example
from toolsvc.errors import StartError
from toolsvc.host.host import Host
from toolsvc.plugin.built_in import BUILT_IN, make_built_in
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tool_file


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.file)
def test_an_example_can_be_served(tmp_path: Path, example: Example) -> None:
    path = tmp_path / example.file
    path.write_text(example.code, encoding="utf-8")
    (tool,) = load_tool_file(path)
    assert tool.describe().stop_strings
    assert len(example.code.splitlines()) <= 22


async def test_the_built_in_tool_of_the_page_has_options_and_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("clip")
    monkeypatch.setitem(sys.modules, "clip", module)
    monkeypatch.setitem(BUILT_IN, "clip", "clip:ClipTool")
    exec(block("tools/built-in.md", "`clip`"), module.__dict__)
    tool = make_built_in("clip", {"words": 2}, SandboxConfig())
    async with Host([tool]) as host:
        await host.open(opening())
        action = {"action": "<clip>one two three</clip>", "arguments": None}
        answer = await host.call(calling("1", tool="clip", **action))
    assert said(answer) == "one two"
    with pytest.raises(StartError, match=r"--set clip\.words"):
        make_built_in("clip", {"words": 0}, SandboxConfig())
