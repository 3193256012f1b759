"""`toolsvc call` and `toolsvc list` against a real service."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolsvc.cli import app
from toolsvc.plugin.registry import SOURCES, TOOLS, registered

pytestmark = pytest.mark.quick

NOBODY = "127.0.0.1:1"


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, words, input=stdin)


def test_list_shows_what_can_be_served_and_its_options() -> None:
    shown = run("list")
    tools = {tool["name"]: tool for tool in json.loads(run("list", "--json").stdout)}
    assert set(tools) == {*registered(TOOLS), *registered(SOURCES)}
    for name, tool in tools.items():
        assert tool["word"] in shown.stdout
        assert tool["word"].partition(":")[0] == name
        assert (":" in tool["word"]) == (name in registered(SOURCES))
    (mode,) = (option for option in tools["python"]["options"] if option["name"] == "mode")
    assert (mode["type"], mode["required"]) == ("session|stateless", False)
    judge = {option["name"]: option["required"] for option in tools["judge"]["options"]}
    assert (judge["endpoint"], judge["cache"]) == (True, False)


def test_list_shows_the_tools_of_a_file_and_their_options(tmp_path: Path) -> None:
    file = tmp_path / "tool.py"
    file.write_text(
        "import pydantic\nimport toolsvc\n\n\n@toolsvc.tool\n"
        'def add(a: int, b: int) -> int:\n    """Adds."""\n    return a + b\n\n\n'
        "class Greeting(pydantic.BaseModel):\n"
        '    word: str = pydantic.Field(description="said first")\n\n\n'
        "@toolsvc.tool(config=Greeting)\ndef greet(text: str, config: Greeting) -> str: ...\n",
        encoding="utf-8",
    )
    shown = " ".join(run("list", str(file)).stdout.split())
    assert shown.startswith("add Adds. greet")
    assert "greet.word text required said first" in shown
    add, greet = json.loads(run("list", str(file), "--json").stdout)
    assert add == {"name": "add", "word": "add", "description": "Adds.", "options": []}
    assert [option["name"] for option in greet["options"]] == ["word"]
    empty = tmp_path / "empty.py"
    empty.touch()
    refused = run("list", str(empty))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"toolsvc: {empty} defines no tool")


def test_list_shows_what_a_service_serves(service: Any) -> None:
    assert "<python> code </python>" in " ".join(run("list", service.address).stdout.split())
    (tool,) = json.loads(run("list", service.address, "--json").stdout)["tools"]
    assert tool["name"] == "python"


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (("print(6 * 7)",), ""),
        (("<python>print(6 * 7)</python>",), ""),
        (("-",), "print(6 * 7)\n"),
        ((), "print(6 * 7)\n"),
        (("--arguments", '{"code": "print(6 * 7)"}'), ""),
        (("--interactive",), "x = 6\nfor _ in range(1):\n    print(x * 7)\n\n"),
    ],
)
def test_an_action_may_come_in_several_ways(
    service: Any, words: tuple[str, ...], stdin: str
) -> None:
    called = run("call", service.address, "python", *words, stdin=stdin)
    assert called.exit_code == 0, called.output
    assert "42" in called.stdout.split()
    assert "isolation" in called.stderr
    assert "isolation" not in called.stdout


def test_a_tool_that_failed_has_answered(service: Any) -> None:
    called = run("call", service.address, "python", "1 / 0")
    assert called.exit_code == 0
    assert "ZeroDivisionError" in called.stdout
    assert "EXCEPTION: ZeroDivisionError: division by zero" in called.stderr
    whole = json.loads(run("call", service.address, "python", "1 / 0", "--json").stdout)
    assert whole["error"]["kind"] == "TOOL_ERROR_KIND_EXCEPTION"


def test_a_named_session_is_gone_on_in(service: Any) -> None:
    words = ("call", service.address, "python", "--session", "test-commands")
    run(*words, "x = 5")
    assert run(*words, "x").stdout == "5\n"
    assert "6\n" in run(*words, "--interactive", stdin="x += 1\nx\n").stdout
    assert run(*words, "x").stdout == "6\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("call", NOBODY, "python", "1"), "no service answers at 127.0.0.1:1"),
        (("list", "pyhton"), "no tool 'pyhton' (did you mean 'python'?)"),
        (("call", "HERE", "nothing", "1"), "there is no tool 'nothing' here, only python"),
        (("call", "HERE", "python", "--arguments", "[1]"), "--arguments [1]"),
        (("call", "HERE", "python", "1", "--metadata", "{"), "--metadata {: not JSON"),
        (("call", "HERE", "python", "'a\udcff'"), "the action is no text"),
        (("call", "HERE", "python", "1", "--interactive"), "--interactive reads actions itself"),
        (("call", "HERE", "python", "1", "--tls-ca", "/no/such/file"), "/no/such/file"),
        (("call", "HERE", "python", "1", "--media", "no-such.png"), "--media no-such.png: No such"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    service: Any, words: tuple[str, ...], says: str
) -> None:
    failed = run(*(service.address if word == "HERE" else word for word in words))
    assert failed.exit_code == 1
    assert failed.stderr.startswith("toolsvc: ")
    assert says in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
