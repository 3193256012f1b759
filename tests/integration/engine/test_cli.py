"""`engine serve`, `check` and `render`: each fault is one clear sentence and exit code 1.

The commands run in this process, the services that they find in a thread beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.scripted import ScriptedSampler, replies
from engine.cli import app
from engine.core.text.codec import HuggingFaceCodec
from tests.support.net import free_port
from tests.support.policy import QWEN_TEMPLATE, write_policy
from tests.support.recipes import merged, recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving
from toolwright.trajectory_files import read_trajectories

pytestmark = pytest.mark.quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Addresses of a sampler and a tool service that are up."""

    sampler: str
    tools: str


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    found: list[Services] = []
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            sampler = ScriptedSampler(script=replies([[1, 2]]))
            await stack.enter_async_context(sampler)
            double = await stack.enter_async_context(serving(ToolDouble()))
            found.append(Services(sampler=sampler.url, tools=double.address))
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert up.wait(20)
    yield found[0]
    down.set()
    thread.join(20)


@dataclass(slots=True, kw_only=True)
class Command:
    """Runs commands on one recipe with changes."""

    folder: Path
    tables: dict[str, Any]

    def __call__(self, command: str, *options: str, **changes: Any) -> Result:
        file = write_recipe(self.folder, merged(self.tables, changes))
        return CliRunner().invoke(app, [command, str(file), *options])


@pytest.fixture
def run(tmp_path: Path, policy_folder: Path, services: Services) -> Command:
    tables = recipe_tables(
        policy=policy_folder,
        sampler=services.sampler,
        tools={"python": services.tools},
        engine=f"127.0.0.1:{free_port()}",
    )
    return Command(folder=tmp_path, tables=tables)


def sentence(result: Result) -> str:
    """The one line that a failed command says."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    (line,) = [
        text
        for text in result.stderr.splitlines()
        if not text.startswith(("[", "engine serves", "warning:")) and "done before" not in text
    ]
    assert line.startswith("engine: ")
    assert "Traceback" not in result.output
    return line


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_no_recipe(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "absent.toml")])
    assert re.search(r"no recipe at .*absent\.toml", sentence(result))


def test_a_sampler_that_is_down(run: Command) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    changes = {"sampler": {"endpoints": [url]}}
    for command, *options in (["serve"], ["check", "--connect"]):
        line = sentence(run(command, *options, **changes))
        assert f"sampler {url} is down" in line
        assert "start it or correct sampler.endpoints" in line


def test_a_tool_service_that_is_down(run: Command) -> None:
    address = f"127.0.0.1:{free_port()}"
    changes = {"tools": {"python": {"service": address}}}
    for command, *options in (["serve"], ["check", "--connect"]):
        line = sentence(run(command, *options, **changes))
        assert f"tools.python: no tool service answers at {address}" in line
        assert f"toolsvc serve TOOL --listen {address}`" in line and "tools.python.service" in line


def test_a_port_in_use(run: Command, taken: int) -> None:
    held = f"127.0.0.1:{taken}: the port is in use by process {os.getpid()} (python"
    assert held in sentence(run("serve", run={"engine": f"127.0.0.1:{taken}"}))
    assert held in sentence(run("serve", engine={"listen": f"127.0.0.1:{taken}"}))


def test_a_metrics_port_in_use(run: Command, taken: int) -> None:
    line = sentence(run("serve", engine={"metrics_port": taken}))
    assert f"engine.metrics_port: port {taken} is in use by process {os.getpid()}" in line
    assert "choose another or 0" in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": {"model": "absent"}}, r"policy\.model: no .*absent/config\.json"),
        ({"task": {"source": "absent.jsonl"}}, r"task source: no file .*absent\.jsonl"),
        ({"task": {"source": "absent.py:f"}}, r"task source no file .*absent\.py"),
        ({"task": {"source": "task.py:absent"}}, r"task source .*has no 'absent'"),
        ({"task": {"reward": "./absent.py:score"}}, r"task\.reward: no file .*absent\.py"),
        ({"task": {"reward": "./my_reward.py:scoer"}}, r"task\.reward: .*has no 'scoer'"),
        ({"task": {"protocol": "engine.api:Taged"}}, r"task\.protocol: .*'Taged'"),
        (
            {"task": {"protocol_options": {"observation": "no"}}},
            r"task\.protocol_options: .*needs \{text\}",
        ),
        ({"task": {"protocol_options": {"answr": "no"}}}, r"task\.protocol_options: .*answr"),
        (
            {"engine": {"evaluation": {"suites": [{"name": "s", "source": "x.jsonl", "n": 1}]}}},
            r"task source: no file .*x\.jsonl",
        ),
        ({"run": {"max_staleness": 1}}, r"staleness 0 takes .*above 0 takes 'decoupled'"),
    ],
)  # fmt: skip
def test_what_the_recipe_names_and_is_not_there(
    run: Command, changes: dict[str, Any], words: str
) -> None:
    assert re.search(words, sentence(run("check", **changes)))
    assert re.search(words, sentence(run("serve", **changes)))


def test_a_source_that_ends_in_mid_run(run: Command) -> None:
    """It fails inside the train lane's tasks, and is one sentence all the same."""
    line = sentence(run("serve", task={"source": "task.py:short"}, run={"groups_per_step": 9}))
    assert "task.py:short ended after 3 tasks" in line


def test_a_fault_of_our_own_is_no_sentence(run: Command) -> None:
    """A programming error keeps its traceback."""
    (run.folder / "odd.py").write_text(
        "from engine.core.protocols.tagged import Tagged\n"
        "class Odd(Tagged):\n"
        "    def stops(self, tools, codec): return 1 / 0\n",
        encoding="utf-8",
    )
    result = run("serve", task={"protocol": "./odd.py:Odd"})
    assert isinstance(result.exception, BaseExceptionGroup)
    assert result.exception.subgroup(ZeroDivisionError)


def test_a_start_that_is_refused_leaves_what_the_run_was_made_with(run: Command) -> None:
    from engine.serving.journal.journal import Journal

    resolved = run.folder / "run" / "engine.resolved.json"
    journal = Journal(run.folder / "run" / "journal.sqlite")
    resolved.write_text("of the run that is served", encoding="utf-8")
    assert "in use" in sentence(run("serve", engine={"drain_s": 1.0}))
    assert resolved.read_text(encoding="utf-8") == "of the run that is served"
    asyncio.run(journal.close())


def test_check_says_what_is_in_order(run: Command, services: Services) -> None:
    suites = [{"name": "heldout", "source": "task.py:training", "n": 5}]
    result = run("check", engine={"evaluation": {"suites": suites}})
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "policy: vocabulary 320, end of turn '<|im_end|>'" in said
    assert "first task: t0:" in said
    assert "what is 0+1?" in said
    assert "first prompt: " in said
    assert "evaluation heldout: 5 tasks" in said
    assert "the recipe is in order" in said
    assert "not contacted: samplers, tools.python" in said
    assert services.sampler not in said
    assert not (run.folder / "run").exists()

    result = run("check", "--connect")
    assert result.exit_code == 0, result.output
    assert f"sampler {services.sampler}: SGLang " in result.stdout
    assert f"tools.python at {services.tools}: python" in result.stdout


def test_check_warns_of_a_misspelt_variable_of_the_template(run: Command, tmp_path: Path) -> None:
    thinks = "{% if enable_thinking %}<think>{% endif %}" + QWEN_TEMPLATE
    policy = {"model": write_policy(tmp_path / "qwen", template=thinks)}
    said = run("check", policy={**policy, "template": {"enable_thinknig": True, "x": 1}}).stdout
    line = "policy.template: the chat template does not read enable_thinknig"
    assert f"warning: {line}: did you mean enable_thinking?" in said.splitlines()
    assert "policy.template: the chat template does not read x" in said.splitlines()
    said = run("check", policy={**policy, "template": {"enable_thinking": True}}).stdout
    assert "does not read" not in said


def test_check_starts_what_the_engine_would_start(run: Command) -> None:
    """For as long as it asks."""
    served = {"python": None, "end": {"serve": ["finish"]}}
    result = run("check", "--connect", tools=served)
    assert result.exit_code == 0, result.output
    assert "tools.end at `toolsvc serve finish`: finish" in result.stdout
    assert not psutil.Process().children()
    line = sentence(run("check", "--connect", tools={**served, "end": {"serve": ["finsih"]}}))
    assert line.startswith("engine: tools.end: `toolsvc serve finsih`: ")


UNMADE = {
    "policy": {"model": "made/warm"},
    "sft": {"model": "made/raw", "data": "made/rows", "output": "made/warm", "steps": 1},
    "console": {"prepare": [{"name": "raw", "run": ["python", "p.py"], "makes": "made/raw"}]},
    "run": {"engine": "127.0.0.1:0"},
    "sampler": {"endpoints": ["http://127.0.0.1:0"]},
    "tools": {"python": None, "end": {"serve": ["finish"]}},
}


def test_check_looks_into_a_fresh_recipe_as_far_as_it_goes(
    run: Command, policy_folder: Path
) -> None:
    """Its policy is made by `toolwright run`, which chooses the ports as well."""
    result = run("check", "--connect", **UNMADE)
    assert result.exit_code == 0, result.output
    said = result.stdout
    (left,) = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert "tokenizer" in left and "made/warm is not there yet" in left
    assert left.endswith("`toolwright run` makes it by [sft]")
    assert "sampler.endpoints: port 0, chosen by `toolwright run`" in said
    assert "first task: t0" in said
    assert "tools.end at `toolsvc serve finish`: finish" in said
    assert said.endswith("what can be checked of the recipe now is in order\n")

    shutil.copytree(policy_folder, run.folder / "made/raw")  # its tokenizer is the policy's
    said = run("check", **UNMADE).stdout
    assert "policy: vocabulary 320" in said and "first prompt: " in said
    assert "left out: its weights: " in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": {"reward": "./absent.py:score"}}, "absent.py"),
        ({"task": {"source": "absent.jsonl"}}, "absent.jsonl"),
        ({"task": {"protocol": "./absent.py:Mine"}}, "task.protocol"),
        ({"tools": {"end": {"serve": ["finsih"]}}}, "tools.end: `toolsvc serve finsih`"),
        ({"sft": None, "console": None}, "made/warm/config.json"),
        ({"sft": {"output": "elsewhere"}}, "made/warm/config.json"),
    ],
)
def test_check_finds_what_is_wrong_in_a_fresh_recipe(
    run: Command, changes: dict[str, Any], words: str
) -> None:
    assert words in sentence(run("check", "--connect", **merged(UNMADE, changes)))


def test_check_leaves_out_questions_that_are_made(run: Command) -> None:
    made = {"prepare": [{"name": "questions", "run": ["python", "q.py"], "makes": "q.jsonl"}]}
    suites = [{"name": "heldout", "source": "q.jsonl", "n": 5}]
    changes = {
        "task": {"source": "q.jsonl"},
        "engine": {"evaluation": {"suites": suites}},
        "console": made,
    }
    said = run("check", **changes).stdout
    assert "left out: task.source: q.jsonl is not there yet, `toolwright run` makes it by" in said
    assert "left out: evaluation heldout: q.jsonl is not there yet" in said
    assert "[[console.prepare]] 'questions'" in said


def test_check_warns_of_what_teaches_nothing(run: Command) -> None:
    said = run("check").stdout
    assert "warning" not in said
    said = run("check", run={"group_size": 1}, learner={"updates": 999}).stdout
    assert "warning: run.group_size = 1 leaves nothing to compare a rollout with" in said
    assert "warning: learner.updates = 999 deals a batch" in said
    said = run("check", task={"limits": {"model": 8}}).stdout
    assert "tokens and task.limits.model is 8: no token" in said


def test_check_says_what_is_in_force_and_what_nobody_reads(run: Command) -> None:
    said = run("check", learner={"loss": {"kind": "gspo"}, "correction": {"upper": 3.0}}).stdout
    assert "[learner] in force: loss gspo (mean ratio 0.9997 to 1.0004), seq-mean-token" in said
    assert "warning: learner.correction.upper = 3.0 does nothing: it is read where" in said
    assert said.count("warning: ") == 1
    assert said.endswith("the recipe is in order, but for 1 warning\n")
    result = run("check", policy={"model": "none"})  # what stops the check comes after it
    assert "config.json" in sentence(result) and "[learner] in force: loss ppo" in result.stdout


def test_check_needs_no_service_that_it_does_not_ask(run: Command) -> None:
    result = run("check", tools={"python": {"service": f"127.0.0.1:{free_port()}"}})
    assert result.exit_code == 0


def test_overrides(run: Command) -> None:
    line = sentence(run("check", "--set", "run.steps=-1"))
    assert "run.steps" in line
    assert run("check", "--set", "run.steps=7").exit_code == 0
    assert "write it as table.key=value" in sentence(run("check", "--set", "run.steps"))


CONVERSATION = {
    "messages": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<answer> 2</answer>"},
    ]
}


def test_render(run: Command) -> None:
    file = run.folder / "c.jsonl"
    file.write_text(json.dumps(CONVERSATION) + "\n", encoding="utf-8")
    table = {"conversations": "c.jsonl", "output": "out/d.trajectories"}
    result = run("render", render=table)
    assert result.exit_code == 0, result.output
    out = run.folder / "out" / "d.trajectories"
    assert result.stdout.strip() == f"1 trajectories: {out}"
    assert len(list(read_trajectories(out))) == 1

    file.write_text("{}\n", encoding="utf-8")
    assert "c.jsonl:1: a line is" in sentence(run("render", render=table))
    file.unlink()
    assert re.search(
        r"render\.conversations: no file .*c\.jsonl", sentence(run("render", render=table))
    )
    assert "render.conversations: missing" in sentence(run("render"))


def test_render_can_show_the_tools(run: Command, tmp_path: Path, services: Services) -> None:
    """Where prompts show tools, demonstrations have to show the same ones: the services know."""
    policy = write_policy(tmp_path / "qwen", template=QWEN_TEMPLATE)
    (run.folder / "c.jsonl").write_text(json.dumps(CONVERSATION) + "\n", encoding="utf-8")
    table = {"conversations": "c.jsonl", "output": "d.trajectories"}
    task = {"protocol": "engine.api:Chat"}
    codec = HuggingFaceCodec(policy)

    def prompt(*options: str) -> str:
        result = run("render", *options, render=table, task=task, policy={"model": policy})
        assert result.exit_code == 0, result.output
        (trajectory,) = read_trajectories(run.folder / "d.trajectories")
        return codec.decode(trajectory.sequences[0].segments[0].token_ids)

    assert "# Tools" not in prompt()
    assert '"name": "python"' in prompt("--set", "render.ask_tools=true")
    table["ask_tools"] = True  # type: ignore[assignment]
    down = {"python": {"service": f"127.0.0.1:{free_port()}"}}
    assert "no tool service answers" in sentence(run("render", render=table, tools=down))


def test_sample_says_what_became_of_everything(run: Command) -> None:
    output = run.folder / "out" / "kept.trajectories"
    result = run("sample", "--output", str(output), "--n", "3", "--per-task", "2")
    assert result.exit_code == 0, result.output
    first, *table, last = result.stdout.splitlines()
    assert (first, last) == ("3 of 3 tasks: 3 kept, 3 duplicate, 0 bad rows", str(output))
    counts = {row.split("  ")[0]: row.split()[-2] for row in table[1:]}
    assert counts["rolled out"] == "6" and counts["kept"] == "3"
    assert "3 tasks, 0 done before; weights " in result.stderr
    assert len(list(read_trajectories(output))) == 3


def test_a_reward_that_always_fails_ends_sample_with_its_line(run: Command) -> None:
    reward = run.folder / "misspelt.py"
    reward.write_text("def score(t):\n    return t.metadata['final_txt']\n", encoding="utf-8")
    options = ("--output", str(run.folder / "kept"), "--n", "3", "--per-task", "2")
    result = run("sample", *options, task={"reward": "./misspelt.py:score"})
    assert result.exit_code == 1
    assert "6 reward failed, 0 bad rows" in result.stderr
    cause = "raised KeyError('final_txt') at misspelt.py:2"
    assert f"the reward failed for 6 trajectories: {cause}" in result.stderr.splitlines()
    assert "reward failed 6 100.0%" in " ".join(result.stderr.split())
    warnings = [one for one in result.stderr.splitlines() if one.startswith("warning: reward fail")]
    assert len(warnings) == 1 and cause in warnings[0]
    assert "engine: the reward function failed for every trajectory" in result.stderr


def test_sample_takes_the_address_of_a_server(run: Command) -> None:
    """As `engine eval` does, for a recipe whose ports `toolwright run` chooses."""
    options = ("--output", str(run.folder / "kept"), "--n", "1")
    url = run.tables["sampler"]["endpoints"][0]
    closed = {"endpoints": ["http://127.0.0.1:0"]}
    line = sentence(run("sample", *options, sampler=closed))
    assert """(--set sampler.endpoints='["http://HOST:PORT"]')""" in line
    result = run("sample", *options, "--endpoint", url, sampler=closed)
    assert result.exit_code == 0, result.output


def test_what_sample_cannot_do_is_one_sentence(run: Command) -> None:
    output = ("--output", str(run.folder / "kept"))
    assert "--n: a task function has no end" in sentence(run("sample", *output))
    line = sentence(run("sample", *output, "--n", "1", "--tasks", "absent.jsonl"))
    assert "absent.jsonl" in line
    line = sentence(run("sample", *output, "--n", "1", "--keep", "nothing"))
    assert "--keep: 'nothing': write it as package.module:name or ./file.py:name" in line
    line = sentence(run("sample", *output, "--n", "1", "--keep", "math:sqrt"))
    assert "--keep math:sqrt: it raised TypeError" in line
    assert run("sample").exit_code == 2
    assert run("sample", *output, "--export", "parquet").exit_code == 2


def test_sample_that_a_signal_stopped_says_so_by_its_exit_code(run: Command) -> None:
    (run.folder / "slow.py").write_text(
        "import asyncio, os, signal\n"
        "async def score(trajectory):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.sleep(60)\n",
        encoding="utf-8",
    )
    output = run.folder / "kept"
    options = ("--output", str(output), "--n", "1")
    result = run("sample", *options, task={"reward": "./slow.py:score"})
    assert result.exit_code == 143, result.output
    assert "engine: stopped by SIGTERM; the same command goes on" in result.stderr
    assert not output.exists()
