"""Mistakes of a new user: each is one sentence with the thing and the fix, and exit code 1, before
anything is started.

The commands run in this process. What `engine check` refuses is what `engine serve` refuses.
"""

from __future__ import annotations

import http.server
import json
import shutil
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
from tests.integration.engine.test_cli import Command, run, sentence, services
from tests.support.recipes import merged
from toolsvc.cli import app as toolsvc

pytestmark = pytest.mark.quick

__all__ = ["run", "services"]  # fixtures

Changes = dict[str, Any]
Prepare = Callable[[Path], Changes]


def rows(*lines: object, name: str = "q.jsonl") -> Prepare:
    """task.source is a file of these lines; bytes and texts stand as they are."""

    def write(folder: Path) -> Changes:
        data = [
            line
            if isinstance(line, bytes)
            else (line if isinstance(line, str) else json.dumps(line)).encode()
            for line in lines
        ]
        (folder / name).write_bytes(b"".join(line + b"\n" for line in data))
        return {"task": {"source": name}}

    return write


def reward(text: str | bytes) -> Prepare:
    def write(folder: Path) -> Changes:
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "my_reward.py").write_bytes(data)
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


def file_at(name: str, changes: Changes) -> Prepare:
    def write(folder: Path) -> Changes:
        (folder / name).write_text("a file", encoding="utf-8")
        return changes

    return write


def said(**changes: Any) -> Prepare:
    return lambda _folder: changes


GOOD = {"prompt": "1+1", "answer": "2"}
SUITE = {"name": "held-out", "source": "e.jsonl", "n": 5}
MISTAKES: list[tuple[str, Prepare, str, str]] = [
    # (the mistake, how it is made, what is named, the mend)
    ("a run folder that is a file", file_at("run", {}), "run is a file", "choose another run.fold"),
    (
        "a run folder below a file",
        file_at("run", {"run": {"folder": "run/first"}}),
        "run is a file",
        "choose another run.folder",
    ),
    ("a key that nobody knows", said(run={"grup_size": 2}), "run.grup_size", "did you mean"),
    ("a table that nobody knows", said(enigne={}), "[enigne]", ""),
    ("steps below zero", said(run={"steps": -1}), "run.steps", "greater than or equal to 0"),
    (
        "a URL for the engine",
        said(run={"engine": "http://127.0.0.1:50051"}),
        "run.engine",
        'write "127.0.0.1:50051"',
    ),
    (
        "no scheme",
        said(sampler={"endpoints": ["127.0.0.1:30000"]}),
        "sampler.endpoints",
        'write "http://127.0.0.1:30000"',
    ),
    (
        "the path of another API",
        said(sampler={"endpoints": ["http://127.0.0.1:30000/v1"]}),
        "sampler.endpoints",
        'write "http://127.0.0.1:30000"',
    ),
    ("no questions", rows(), "q.jsonl has no rows", "write one question in each line"),
    ("a table of a spreadsheet", rows("a,b", name="q.csv"), "q.csv", "write .jsonl"),
    ("a table in a .jsonl", rows("question,answer", "1,2"), "q.jsonl:1: not JSON", "q.jsonl:1"),
    ("a JSON list", rows(json.dumps([GOOD])), "q.jsonl:1", "one JSON object a line"),
    ("questions in Latin-1", rows('{"prompt": "é"}'.encode("latin1")), "q.jsonl:1", "not UTF-8"),
    (
        "no question in the rows",
        rows({"text": "1+1"}),
        "q.jsonl:1",
        "no question in prompt",
    ),
    (
        "a suite with more rows than its file",
        lambda folder: merged(
            {"engine": {"evaluation": {"suites": [SUITE]}}},
            rows(GOOD, name="e.jsonl")(folder) and {},
        ),
        "e.jsonl has 1 tasks, 5 are",
        "suite",
    ),
    ("a typing error in the reward", reward("def score(t:\n"), "my_reward.py", "line 1"),
    (
        "another name in the reward",
        reward("def other(t): return 1\n"),
        "'score'",
        "correct the name",
    ),
    (
        "a reward of two arguments",
        reward("def score(t, x): return 1\n"),
        "(t, x)",
        "is called with",
    ),
    (
        "a reward that exits",
        reward("import sys\nsys.exit(3)\n"),
        "my_reward.py",
        "it calls sys.exit",
    ),
    (
        "a reward in Latin-1",
        reward("def score(t): return 'é'".encode("latin1")),
        "my_reward.py",
        "utf-8",
    ),
    (
        "a tool service without a table",
        said(task={"tools": ["search"]}),
        "task.tools names ['search']",
        "there are python",
    ),
    (
        "a tool that the service has not",
        said(tools={"python": {"names": ["sql"]}}),
        "has no sql",
        "it has python",
    ),
    ("no config.json", policy("config.json"), "config.json", "give a local Hugging Face folder"),
    ("no tokenizer", policy("tokenizer.json"), "no tokenizer in", "copy tokenizer.json"),
    ("no template", policy("chat_template.jinja"), "chat template", "policy.model"),
    (
        "a broken config.json",
        policy(config="{"),
        "config.json cannot be read: it is not JSON",
        "line 1",
    ),
    ("a broken tokenizer", policy(tokenizer="{"), "tokenizer.json is not a tokenizer", "line 1"),
    (
        "a file for the policy's folder",
        file_at("weights", {"policy": {"model": "weights"}}),
        "weights/config.json",
        "give a local Hugging Face folder",
    ),
    ("no rollouts in a group", said(run={"group_size": 0}), "run.group_size", "greater than or"),
    (
        "an API in a training run",
        said(sampler={"api": "openai-chat"}),
        "sampler.api = 'openai-chat' is for `engine eval`",
        'set sampler.api = "sglang"',
    ),
    (
        "a key of an API without one",
        said(sampler={"key_env": "API_KEY"}),
        "key_env belongs to an API",
        "leave key_env out",
    ),
    ("a sampler's context that is too small", said(task={"limits": {"model": 10**7}}), "", "lower"),
    ("an address for everybody", said(run={"engine": "0.0.0.0:50051"}), "0.0.0.0", "bearer token"),
]


@pytest.mark.parametrize(
    ("prepare", "named", "mend"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_mistake_is_one_sentence_with_its_mend(
    run: Command, policy_folder: Path, prepare: Prepare, named: str, mend: str
) -> None:
    shutil.copytree(policy_folder, run.folder / "model")
    line = sentence(run("check", "--connect", **prepare(run.folder)))
    assert named in line
    assert mend in line


def test_nothing_is_trained_from_an_api(run: Command) -> None:
    api = {"api": "openai-completions", "model": "m"}
    said = "an API gives neither token ids nor log-probs"
    line = sentence(run("serve", sampler=api))
    assert f"this is `engine serve`: {said}" in line
    line = sentence(run("sample", "--output", str(run.folder / "out"), "--n", "1", sampler=api))
    assert f"this is `engine sample`: {said}" in line
    assert not list(run.folder.glob("**/journal.sqlite"))


def test_a_run_folder_that_nobody_may_make(run: Command) -> None:
    """Also where this user is root, and only the attempt tells."""
    line = sentence(run("serve", run={"folder": "/proc/run"}))
    assert "run.folder: /proc/run cannot be made" in line
    assert "or choose another run.folder" in line


def test_any_free_port_is_for_no_engine_by_itself(run: Command) -> None:
    line = sentence(run("serve", run={"engine": "127.0.0.1:0"}))
    assert "run.engine = '127.0.0.1:0' is any free port" in line
    assert "or name a port" in line


@pytest.mark.parametrize(
    ("name", "data", "mend"),
    [
        ("latin.toml", "# é".encode("latin1"), "save it as UTF-8"),
        ("windows.toml", "[run]\n".encode("utf-16"), "save it as UTF-8"),
        ("empty.toml", b"", "run: missing"),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path: Path, name: str, data: bytes, mend: str) -> None:
    (tmp_path / name).write_bytes(data)
    line = sentence(CliRunner().invoke(app, ["check", str(tmp_path / name)]))
    assert name in line
    assert mend in line


def test_a_recipe_of_an_editor_of_windows_is_one(run: Command) -> None:
    assert run("check").exit_code == 0
    file = run.folder / "recipe.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    reward(b"\xef\xbb\xbfdef score(t):\r\n    return 1.0\r\n")(run.folder)
    assert CliRunner().invoke(app, ["check", str(file)]).exit_code == 0


def test_what_is_seldom_meant_is_said(run: Command) -> None:
    twins = [{"id": "a", **GOOD}, {"id": "a", "prompt": "1+2"}]
    shown = run("check", **rows(*twins)(run.folder)).stdout
    assert "warning: task source: 1 of 2 rows have no answer" in shown
    assert "did you mean" not in shown
    assert "warning: task source: 1 of 2 rows repeat an id" in shown
    assert (
        "warning: run.group_size = 1 leaves nothing" in run("check", run={"group_size": 1}).stdout
    )


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("anwser", "did you mean 'answer' for 'anwser'?"),
        ("Answer", "did you mean 'answer' for 'Answer'?"),
        ("ground_truth", "did you mean 'answer' for 'ground_truth'?"),
    ],
)
def test_answers_in_a_column_of_another_name(run: Command, column: str, hint: str) -> None:
    some = [{"prompt": f"1+{n}", "difficulty": 1, column: str(n + 1)} for n in range(20)]
    shown = run("check", **rows(*some)(run.folder)).stdout
    assert "warning: task source: 20 of 20 rows have no answer" in shown
    assert hint in shown
    assert "metadata, which tool services get" in shown
    assert shown.endswith("the recipe is in order, but for 1 warning\n")


def test_rows_that_are_no_tasks_are_a_warning_in_every_file(run: Command) -> None:
    source = rows(GOOD, "nonsense")(run.folder)
    held = {"prompt": "2+2", "answer": "4"}
    rows(held, "nonsense", held, name="e.jsonl")(run.folder)
    suite = {"evaluation": {"suites": [{**SUITE, "n": 1}]}}
    shown = run("check", **source, engine=suite).stdout
    assert "warning: task source: 1 of 2 rows are not tasks" in shown
    assert "warning: evaluation held-out: 1 of 3 rows are not tasks" in shown
    assert "e.jsonl:2: not JSON" in shown
    assert shown.endswith("the recipe is in order, but for 2 warnings\n")


class Page(http.server.BaseHTTPRequestHandler):
    """A server that is none of ours."""

    def do_GET(self) -> None:
        known = self.path in ("/v1/models", "/")
        body = b'{"object": "list"}' if known else b"<html>hello</html>"
        self.send_response(404 if self.server.strict and not known else 200)  # type: ignore[attr-defined]
        with suppress(BrokenPipeError):  # who asked saw enough
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
def test_another_server_where_a_sampler_is_meant(
    run: Command, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    monkeypatch.setattr("engine.core.sampler.fleet.START_SECONDS", 0.1)
    with page(strict=strict) as port:
        url = f"http://127.0.0.1:{port}"
        line = sentence(run("check", "--connect", sampler={"endpoints": [url]}))
    assert f"sampler {url} is down or is not an SGLang server" in line
    assert ("answers, but not as SGLang does" in line) != strict
    assert "start it or correct sampler.endpoints" in line


def test_tls_where_the_sampler_speaks_none(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.sampler.fleet.START_SECONDS", 0.1)
    url = run.tables["sampler"]["endpoints"][0].replace("http:", "https:")
    line = sentence(run("check", "--connect", sampler={"endpoints": [url]}))
    assert "it does not speak TLS; write http://" in line


def test_another_server_where_a_tool_service_is_meant(run: Command) -> None:
    with page(strict=True) as port:
        address = f"127.0.0.1:{port}"
        line = sentence(run("check", "--connect", tools={"python": {"service": address}}))
        assert f"what answers at {address} does not speak gRPC" in line
        assert "tools.python.service" in line
        result = CliRunner().invoke(toolsvc, ["call", address, "python", "{}"])
    assert_one_line(result, f"what answers at {address} does not speak gRPC")


def test_a_learner_and_its_mistakes(run: Command) -> None:
    run("check")
    file = str(run.folder / "recipe.toml")
    line = learner_says("run", file, "--set", "run.engine=127.0.0.1")
    assert 'write "HOST:PORT"' in line
    assert "name a port" in learner_says("run", file, "--set", "run.engine=127.0.0.1:0")
    assert "save it as UTF-8" in learner_says("sft", str(latin(run.folder)))


def latin(folder: Path) -> Path:
    (folder / "latin.toml").write_bytes("# é".encode("latin1"))
    return folder / "latin.toml"


def learner_says(*arguments: str) -> str:
    result = CliRunner().invoke(learner, list(arguments))
    return assert_one_line(result, "learner: ")


def assert_one_line(result: Result, part: str) -> str:
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert part in line
    return line


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


def test_a_tool_file_that_takes_its_time_is_left_to_the_start(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.tools.tool_file_check.IMPORT_SECONDS", 0.1)
    (run.folder / "tool.py").write_text("import time\ntime.sleep(1000)\n", encoding="utf-8")
    result = run("check", tools={"python": {"service": None, "serve": ["tool.py"]}})
    assert result.exit_code == 0, result.output
    assert "warning: tools.python: tool.py takes more than 0.1 s" in result.output


def test_files_among_the_words_of_a_service() -> None:
    words = ("a.py", "python", "--set", "mcp.command=b.py", "--x=c.py", "simulated:d", "./e/f.py")
    assert list(tool_files(words)) == ["a.py", "./e/f.py"]
