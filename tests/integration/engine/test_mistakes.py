"""Mistakes of a new user, one of each kind: one sentence with the thing and the fix, and exit code
1, before anything is started.

The commands run in this process. What `engine check` refuses is what `engine serve` refuses.
"""

from __future__ import annotations

import http.server
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from engine.cli import app
from engine.core.tools.tool_file_check import tool_files
from learner.cli import app as learner
from tests.integration.engine.commands import Command, run, sentence, services
from toolsvc.cli import app as toolsvc

pytestmark = pytest.mark.quick

__all__ = ["run", "services"]  # fixtures

Changes = dict[str, Any]
Prepare = Callable[[Path], Changes]


def rows(*lines: object, name: str = "q.jsonl") -> Prepare:
    """task.source is a file of these lines; texts stand as they are."""

    def write(folder: Path) -> Changes:
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (folder / name).write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return {"task": {"source": name}}

    return write


def reward(text: str, encoding: str = "utf-8") -> Prepare:
    def write(folder: Path) -> Changes:
        (folder / "my_reward.py").write_text(text, encoding=encoding)
        return {}

    return write


def policy(*gone: str, **files: str) -> Prepare:
    """policy.model is a copy without some files, or with others."""

    def write(folder: Path) -> Changes:
        for name in gone:
            (folder / "model" / name).unlink()
        for name, text in files.items():
            (folder / "model" / f"{name}.json").write_text(text, encoding="utf-8")
        return {"policy": {"model": "model"}}

    return write


def run_folder_below_a_file(folder: Path) -> Changes:
    (folder / "run").write_text("a file", encoding="utf-8")
    return {"run": {"folder": "run/first"}}


def said(**changes: Any) -> Prepare:
    return lambda _folder: changes


GOOD = {"prompt": "1+1", "answer": "2"}
SUITE = {"name": "held-out", "source": "e.jsonl", "n": 1}


def suite_longer_than_its_file(folder: Path) -> Changes:
    rows(GOOD, name="e.jsonl")(folder)
    return {"engine": {"evaluation": {"suites": [{**SUITE, "n": 5}]}}}


MISTAKES: list[tuple[Prepare, str, str]] = [
    # (how the mistake is made, what is named, the fix)
    (run_folder_below_a_file, "run is a file", "choose another run.folder"),
    (said(enigne={}), "[enigne]", ""),
    (rows("a,b", name="q.csv"), "q.csv", "write .jsonl"),
    (rows([GOOD]), "q.jsonl:1", "one JSON object a line"),
    (said(task={"source": "task.py:absent"}), "task source", "has no 'absent'"),
    (said(engine={"evaluation": {"suites": [SUITE]}}), "task source: no file", "e.jsonl"),
    (suite_longer_than_its_file, "e.jsonl has 1 tasks, 5 are", "suite"),
    (reward("def score(t:\n"), "my_reward.py", "line 1"),
    (reward("def other(t): return 1\n"), "'score'", "correct the name"),
    (reward("def score(t, x): return 1\n"), "(t, x)", "is called with"),
    (reward("import sys\nsys.exit(3)\n"), "my_reward.py", "it calls sys.exit"),
    (reward("def score(t): return 'é'", "latin1"), "my_reward.py", "utf-8"),
    (said(task={"protocol": "engine.api:Taged"}), "task.protocol", "'Taged'"),
    (said(task={"protocol_options": {"answr": "no"}}), "task.protocol_options", "answr"),
    (said(task={"protocol_options": {"observation": ""}}), "task.protocol_options", "needs {text}"),
    (said(tools={"python": {"names": ["sql"]}}), "has no sql", "it has python"),
    (policy("config.json"), "config.json", "give a local Hugging Face folder"),
    (policy("chat_template.jinja"), "chat template", "policy.model"),
    (policy(config="{"), "config.json cannot be read: it is not JSON", "line 1"),
    (policy(tokenizer="{"), "tokenizer.json is not a tokenizer", "line 1"),
    (said(sampler={"api": "openai-chat"}), "for `engine eval`", 'sampler.api = "sglang"'),
    (said(task={"limits": {"model": 10**7}}), "task.limits.model", "lower"),
    (said(run={"engine": "0.0.0.0:50051"}), "0.0.0.0", "bearer token"),
    (said(task={"agent": {"kind": "command", "command": ["nope"]}}), "'nope'", "install it"),
    (said(run={"max_staleness": 1}), "staleness 0", "above 0 takes 'decoupled'"),
]


@pytest.mark.parametrize(
    ("prepare", "named", "fix"), MISTAKES, ids=[f"{named}, {fix}" for _, named, fix in MISTAKES]
)
def test_a_mistake_is_one_sentence_with_its_fix(
    run: Command, policy_folder: Path, prepare: Prepare, named: str, fix: str
) -> None:
    shutil.copytree(policy_folder, run.folder / "model")
    line = sentence(run("check", "--connect", **prepare(run.folder)))
    assert named in line
    assert fix in line


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        ("# é".encode("latin1"), "save it as UTF-8"),
        ("[run]\n".encode("utf-16"), "save it as UTF-8"),
        (b"", "run: missing"),
        (None, "no recipe at"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path: Path, data: bytes | None, fix: str) -> None:
    file = tmp_path / "some.toml"
    if data is not None:
        file.write_bytes(data)
    line = sentence(CliRunner().invoke(app, ["check", str(file)]))
    assert "some.toml" in line
    assert fix in line
    assert_one_line(CliRunner().invoke(learner, ["run", str(file)]), fix)


def test_an_agent_without_a_jail_is_warned_of(run: Command) -> None:
    agent = {"kind": "command", "command": ["python", "-V"], "sandbox": "none", "at_once": 3}
    said = run.says(task={"agent": agent})
    assert 'warning: task.agent.sandbox = "none"' in said
    assert "python -V, at most 3 at a time" in said


@pytest.mark.skipif(shutil.which("firejail") is None, reason="firejail is not installed")
def test_a_folder_that_no_jail_can_show_is_warned_of(run: Command) -> None:
    agent = {"kind": "command", "command": ["python", "-V"], "folders": ["/run"]}
    assert "warning: task.agent: /run cannot be seen in a sandbox" in run.says(
        task={"agent": agent}
    )


def test_an_agent_whose_environment_the_run_makes_is_looked_at_later(run: Command) -> None:
    agent = {"kind": "command", "command": ["env/bin/python", "agent.py"], "sandbox": "none"}
    made = {"name": "environment", "run": ["true"], "makes": "env"}
    said = run.says(task={"agent": agent}, console={"prepare": [made]})
    assert "left out: task.agent: env/bin/python is not there yet" in said
    assert "makes it by [[console.prepare]] 'environment'" in said


def test_a_recipe_of_an_editor_of_windows_is_one(run: Command) -> None:
    run.says()
    file = run.folder / "recipe.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    (run.folder / "my_reward.py").write_bytes(b"\xef\xbb\xbfdef score(t):\r\n    return 1.0\r\n")
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0


def test_rows_that_are_seldom_meant_are_warned_of(run: Command) -> None:
    twins = [{"id": "a", **GOOD}, {"id": "a", "prompt": "1+2"}]
    shown = run.says(**rows(*twins)(run.folder))
    assert "warning: task source: 1 of 2 rows have no answer" in shown
    assert "did you mean" not in shown
    assert "warning: task source: 1 of 2 rows repeat an id" in shown
    source = rows(GOOD, "nonsense")(run.folder)
    held = {"prompt": "2+2", "answer": "4"}
    rows(held, "nonsense", held, name="e.jsonl")(run.folder)
    shown = run.says(**source, engine={"evaluation": {"suites": [SUITE]}})
    assert "warning: task source: 1 of 2 rows are not tasks" in shown
    assert "warning: evaluation held-out: 1 of 3 rows are not tasks" in shown
    assert "e.jsonl:2: not JSON" in shown
    assert shown.endswith("the recipe is in order, but for 2 warnings\n")


@pytest.mark.parametrize("column", ["anwser", "Answer", "ground_truth"])
def test_answers_in_a_column_of_another_name(run: Command, column: str) -> None:
    some = [{"prompt": f"1+{n}", "difficulty": 1, column: str(n + 1)} for n in range(20)]
    shown = run.says(**rows(*some)(run.folder))
    assert "warning: task source: 20 of 20 rows have no answer" in shown
    assert f"did you mean 'answer' for '{column}'?" in shown
    assert "metadata, which tool services get" in shown


class Page(http.server.BaseHTTPRequestHandler):
    """A server of another kind."""

    def do_GET(self) -> None:
        known = self.path in ("/v1/models", "/")
        body = b'{"object": "list"}' if known else b"<html>hello</html>"
        self.send_response(404 if self.server.strict and not known else 200)  # type: ignore[attr-defined]
        with suppress(BrokenPipeError):  # the client saw enough
            self.end_headers()
            self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_arguments: object) -> None: ...


@contextmanager
def page(*, strict: bool) -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.strict = strict  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("strict", [False, True], ids=["HTML", "an OpenAI server"])
def test_another_server_where_one_of_ours_is_meant(
    run: Command, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    monkeypatch.setattr("engine.core.sampler.fleet.START_SECONDS", 0.1)
    with page(strict=strict) as port:
        address = f"127.0.0.1:{port}"
        url = f"http://{address}"
        line = sentence(run("check", "--connect", sampler={"endpoints": [url]}))
        assert f"sampler {url} is down or is not an SGLang server" in line
        assert ("answers, but not as SGLang does" in line) != strict
        line = sentence(run("check", "--connect", tools={"python": {"service": address}}))
        why = f"what answers at {address} does not speak gRPC"
        assert why in line and "tools.python.service" in line
        assert_one_line(CliRunner().invoke(toolsvc, ["call", address, "python", "{}"]), why)
    url = run.tables["sampler"]["endpoints"][0].replace("http:", "https:")
    line = sentence(run("check", "--connect", sampler={"endpoints": [url]}))
    assert "it does not speak TLS; write http://" in line


def assert_one_line(result: Result, part: str) -> None:
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert part in line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def add(:\n", "tool.py cannot be imported: SyntaxError: invalid syntax"),
        ("def add(a: int) -> int:\n    return a\n", "tool.py defines no tool: decorate"),
        (None, "no file "),
    ],
)
def test_a_tool_file_that_cannot_be_served_is_found_before_anything_starts(
    run: Command, text: str | None, why: str
) -> None:
    if text is not None:
        (run.folder / "tool.py").write_text(text, encoding="utf-8")
    line = sentence(run("check", tools={"python": {"service": None, "serve": ["tool.py"]}}))
    assert line.startswith("engine: tools.python.serve: ")
    assert why in line


CONFIGURED = """
import toolsvc
from pydantic import BaseModel

class Planet(toolsvc.Tool):
    name = "planet"
    class Config(BaseModel):
        size: int
"""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--set", "planet.size=big"], "--set planet.size: Input should be a valid integer"),
        (["--set=planet.colour=red"], "--set planet.colour: there is no such option"),
        (["--set", "moon.size=1"], "--set moon: nothing of that name is served here"),
        ([], "--set planet.size: Field required"),
        (["--set", "planet.size=3", "--set", "python.output_kib=1"], ""),
        (["--set", "moon.size=1", "--allow-unsandboxed", "other.py"], "--set planet.size: Field"),
    ],
)
def test_the_options_of_a_tool_file_are_looked_at(
    run: Command, options: list[str], why: str
) -> None:
    (run.folder / "tool.py").write_text(CONFIGURED, encoding="utf-8")
    result = run("check", tools={"python": {"service": None, "serve": ["tool.py", *options]}})
    if why:
        assert sentence(result).startswith(f"engine: tools.python.serve: {why}")
    else:
        assert result.exit_code == 0, result.output


def test_a_tool_file_that_takes_its_time_is_left_to_the_start(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.tools.tool_file_check.IMPORT_SECONDS", 0.1)
    (run.folder / "tool.py").write_text("import time\ntime.sleep(1000)\n", encoding="utf-8")
    result = run("check", tools={"python": {"service": None, "serve": ["tool.py"]}})
    assert result.exit_code == 0, result.output
    assert "warning: tools.python: tool.py takes more than 0.1 s" in result.output


IMPORTS = """
import sys, time
if "slow.py" in sys.argv:
    time.sleep(1000)
if "planet.size=big" in sys.argv:
    sys.exit("toolsvc: --set planet.size: no number")
"""


@pytest.mark.parametrize("size", ["big", "3"])
def test_a_slow_tool_file_leaves_the_others_checked(
    run: Command, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    where = "engine.core.tools.tool_file_check"
    monkeypatch.setattr(f"{where}.IMPORT_SECONDS", 3.0)
    monkeypatch.setattr(f"{where}.CHECK", (sys.executable, "-IS", "-c", IMPORTS))
    serve = ["slow.py", "tool.py", "--set", f"planet.size={size}"]
    result = run("check", tools={"python": {"service": None, "serve": serve}})
    if size == "big":
        assert sentence(result).startswith("engine: tools.python.serve: --set planet.size")
    else:
        assert "warning: tools.python: slow.py takes more than 3 s" in result.output
        assert "tool.py takes" not in result.output


def test_options_of_what_may_be_another_file_are_named(run: Command) -> None:
    (run.folder / "tool.py").write_text(CONFIGURED, encoding="utf-8")
    words = ["tool.py", "--set", "planet.size=3", "--set", "moon.size=1", "--cache", "other.py"]
    output = run("check", tools={"python": {"service": None, "serve": words}}).output
    assert "tools.python: 'other.py' may be another file: options of its tools are" in output


def test_files_among_the_words_of_a_service() -> None:
    words = ("a.py", "python", "--set", "mcp.command=b.py", "--x=c.py", "simulated:d", "./e/f.py")
    assert list(tool_files(words)) == ["a.py", "./e/f.py"]
