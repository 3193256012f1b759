"""`toolsvc serve WORD...`: built-in names and files, and what is said when that fails."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolsvc.errors import StartError
from toolsvc.plugin.registry import parse_settings
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools

pytestmark = pytest.mark.quick

SANDBOX = SandboxConfig()

GOOD = '''
from toolsvc import Tool, tool

@tool
def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()

class Counter(Tool):
    name = "counter"
    stateful = True
    def open(self, session):
        return [0]
    def call(self, state, call):
        state[0] += 1
        return str(state[0])
'''


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


async def test_a_built_in_name_and_a_file(tmp_path: Path) -> None:
    tools = await load_tools(["python", write(tmp_path, GOOD)], {}, SANDBOX)
    assert [tool.name for tool in tools] == ["python", "shout", "counter"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("def broken(:", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("x = 1", "@toolsvc.tool"),
        ("1 / 0", "ZeroDivisionError"),
        ("from toolsvc import Tool\nclass A(Tool):\n    name = 'two words'\n", "two words"),
        ("from toolsvc import Tool\nclass A(Tool):\n    name = 'python'\n", "two tools"),
        (
            "from toolsvc import Tool\nclass A(Tool):\n    name = 'a'\n"
            "    def __init__(self):\n        raise OSError('no disk')\n",
            "no disk",
        ),
    ],
)
async def test_a_file_that_does_not_serve_is_one_sentence(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(StartError) as failure:
        await load_tools(["python", write(tmp_path, text)], {}, SANDBOX)
    assert says in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "limit", ["'5s'", "float('nan')", "float('inf')", "-1", "0", "0.0005", "None", "True", "1e300"]
)
@pytest.mark.parametrize(
    "form",
    [
        "from toolsvc import tool\n@tool(run_limit={})\ndef slow(text: str): ...",
        "from toolsvc import Tool\nclass Slow(Tool):\n    name = 'slow'\n    run_limit = {}",
    ],
)
async def test_a_run_limit_that_no_call_could_have_is_refused(
    tmp_path: Path, form: str, limit: str
) -> None:
    with pytest.raises(StartError) as failure:
        await load_tools([write(tmp_path, form.format(limit))], {}, SANDBOX)
    assert f"mine.py: tool 'slow': run_limit = {eval(limit)!r} is" in str(failure.value)
    assert "0.001 at least" in str(failure.value)


@pytest.mark.parametrize("limit", ["0.001", "1", "31_536_000"])
async def test_a_run_limit_at_a_bound_is_taken(tmp_path: Path, limit: str) -> None:
    text = f"from toolsvc import tool\n@tool(run_limit={limit})\ndef slow(text: str): ..."
    (one,) = await load_tools([write(tmp_path, text)], {}, SANDBOX)
    assert one.run_limit == float(limit)


async def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(StartError, match=r"'pyhton' \(did you mean 'python'\?\): .*python"):
        await load_tools(["pyhton"], {}, SANDBOX)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("python", "tool.option=value"),
        ("python.output_kib", "table.key=value"),
        ("python.output_kib=many", "python.output_kib"),
        ("python.outputs=1", "options of python: mode, format"),
        ("sqll.database=x", "sqll"),
    ],
)
async def test_a_setting_that_does_not_fit_is_named(word: str, says: str) -> None:
    with pytest.raises(StartError, match=re.escape(says)):
        await load_tools(["python"], parse_settings([word]), SANDBOX)


WITH_OPTIONS = '''
from pydantic import BaseModel, Field
from toolsvc import Tool, tool

class Weather(BaseModel):
    limit: int = Field(default=3, ge=1, description="days of a forecast")

@tool(config=Weather)
def forecast(text: str, config: Weather) -> str:
    """Tells the weather."""
    return f"{text} {config.limit}"

class Climate(Tool):
    name = "climate"
    Config = Weather
    def call(self, state, call):
        return self.config.limit

class Frozen(Tool):
    name = "frozen"
    Config = Weather
    def __init__(self, config, sandbox):
        super().__init__(config)
        self.run_limit, self.ready = config.limit, sandbox.ready
'''


async def test_every_tool_of_a_file_has_options(tmp_path: Path) -> None:
    settings = parse_settings(["forecast.limit=5", "climate.limit=6", "frozen.limit=7"])
    sandbox = SandboxConfig(ready=2)
    forecast, climate, frozen = await load_tools([write(tmp_path, WITH_OPTIONS)], settings, sandbox)
    assert forecast.describe().arguments_schema["properties"].keys() == {"text"}
    given = SimpleNamespace(arguments={"text": "rain"})
    assert (forecast.call(None, given), climate.call(None, given)) == ("rain 5", 6)
    assert (frozen.run_limit, frozen.ready) == (7, 2)
    (unset, *_) = await load_tools([write(tmp_path, WITH_OPTIONS)], {}, sandbox)
    assert unset.config.limit == 3


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("climate.limit=0", "--set climate.limit: Input should be greater than or equal to 1"),
        (
            "forecast.days=4",
            "--set forecast.days: there is no such option",
        ),
        ("shout.days=4", "--set shout: nothing of that name is served here"),
    ],
)
async def test_a_wrong_option_of_a_file_s_tool_is_named(
    tmp_path: Path, word: str, says: str
) -> None:
    with pytest.raises(StartError, match=re.escape(says)):
        await load_tools([write(tmp_path, WITH_OPTIONS)], parse_settings([word]), SANDBOX)
