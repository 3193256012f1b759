"""Tools that packages register, and what is said when that fails."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolsvc.plugin.registry
from tests.support.docs import example
from tests.support.hosts import calling, hosting, said
from toolsvc.errors import StartError
from toolsvc.plugin.registry import TOOLS, loaded, make_registered, registered, tool_class
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools

pytestmark = pytest.mark.quick

SANDBOX = SandboxConfig()
ENTRIES = """
[toolwright.tools]
clip = acme_clip:ClipTool
python = acme_clip:ClipTool
absent = acme_clip:Absent
lacking = acme_lacking:Tool
no_tool = json:loads
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a stranger's package, installed, which registers the tool of the docs."""
    metadata = tmp_path / "acme_tools-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: acme-tools\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRIES, encoding="utf-8")
    module = example("tools/built-in.md", "`clip`")
    (tmp_path / "acme_clip.py").write_text(module, encoding="utf-8")
    (tmp_path / "acme_lacking.py").write_text("import nothing_of_that_name", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    registered.cache_clear()
    yield tmp_path
    registered.cache_clear()
    sys.modules.pop("acme_clip", None)


async def test_a_stranger_s_package_registers_a_tool_with_options(acme: Path) -> None:
    (tool,) = await load_tools(["clip"], {"clip": {"words": 2}}, SANDBOX)
    async with hosting(tool) as host:
        action = {"action": "<clip>one two three</clip>", "arguments": None}
        answer = await host.call(calling("1", tool="clip", **action))
    assert said(answer) == "one two"
    assert tool.registered
    with pytest.raises(StartError, match=r"--set clip\.words"):
        make_registered("clip", {"words": 0}, SANDBOX)


def test_a_stranger_s_package_does_not_replace_a_tool(acme: Path) -> None:
    assert tool_class("python").__module__ == "toolsvc.tools.python"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lacking", "needs the package nothing_of_that_name: install it .*acme-tools"),
        ("absent", "'absent' of acme-tools: .*Absent"),
        ("no_tool", "is not a subclass of toolsvc.Tool"),
    ],
)
def test_a_tool_that_cannot_be_had_is_one_sentence(acme: Path, name: str, says: str) -> None:
    with pytest.raises(StartError, match=says):
        tool_class(name)


def fail_to_load(error: ImportError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry point raises the error. Its class is not always importlib.metadata's: an
    installed importlib_metadata has one of its own."""
    for kind in {type(point) for point in registered(TOOLS).values()}:
        monkeypatch.setattr(kind, "load", lambda _: (_ for _ in ()).throw(error))


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("browser", "playwright", "browser"), ("search", "faiss", "toolsvc")],
)
def test_a_missing_package_names_the_extra_that_brings_it(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ImportError(name=package)
    fail_to_load(error, monkeypatch)
    with pytest.raises(StartError, match=rf"needs the package {package}: .*\[{extra}\]'$"):
        loaded(TOOLS, name)


@pytest.mark.parametrize("entry", [[], None], ids=["without the group", "of another place"])
def test_an_old_installation_says_to_install_again(
    entry: list[object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if entry is None:
        error = ModuleNotFoundError(name="toolsvc.tools.moved")
        fail_to_load(error, monkeypatch)
    else:
        monkeypatch.setattr(toolsvc.plugin.registry, "entry_points", lambda group: entry)
        registered.cache_clear()
    with pytest.raises(StartError, match="install it again"):
        tool_class("python")
    registered.cache_clear()
