"""`engine serve`, `check`, `render` and `sample` as commands, in this process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.core.text.codec import HuggingFaceCodec
from engine.serving.journal.journal import Journal
from tests.integration.engine.commands import Command, Services, run, sentence, services
from tests.support.net import free_port
from tests.support.policy import QWEN_TEMPLATE, write_policy
from tests.support.recipes import merged
from toolwright.trajectory_files import read_trajectories

pytestmark = pytest.mark.quick

__all__ = ["run", "services"]  # fixtures

CONVERSATION = {
    "messages": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<answer> 2</answer>"},
    ]
}
CLOSED = {"endpoints": ["http://127.0.0.1:0"]}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another socket listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_services_that_are_down(run: Command) -> None:
    address = f"127.0.0.1:{free_port()}"
    sampler = {"sampler": {"endpoints": [f"http://{address}"]}}
    tools = {"tools": {"python": {"service": address}}, "run": {"folder": "other"}}
    for command, *options in (["serve"], ["check", "--connect"]):
        line = sentence(run(command, *options, **sampler))
        assert f"sampler http://{address} is down" in line
        assert "start it or correct sampler.endpoints" in line
        line = sentence(run(command, *options, **tools))
        assert f"tools.python: no tool service answers at {address}" in line
        assert "tools.python.service" in line
    assert run("check", **tools).exit_code == 0, "it asks only with --connect"


def test_a_port_in_use(run: Command, taken: int) -> None:
    address = f"127.0.0.1:{taken}"
    for changes in (
        {"run": {"engine": address}},
        {"engine": {"listen": address}},
        {"engine": {"metrics_port": taken}},
    ):
        assert f"in use by process {os.getpid()} (python" in sentence(run("serve", **changes))


def test_what_only_the_run_shows_is_one_sentence_too(run: Command) -> None:
    """A source that ends fails inside the train lane's tasks."""
    line = sentence(run("serve", task={"source": "task.py:short"}, run={"groups_per_step": 9}))
    assert "task.py:short ended after 3 tasks" in line
    assert "/proc/run cannot be made" in sentence(run("serve", run={"folder": "/proc/run"}))
    line = sentence(run("serve", run={"engine": "127.0.0.1:0"}))
    assert "run.engine = '127.0.0.1:0' is any free port" in line


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
    resolved = run.folder / "run" / "engine.resolved.json"
    journal = Journal(run.folder / "run" / "journal.sqlite")
    resolved.write_text("of the run that is served", encoding="utf-8")
    assert "in use" in sentence(run("serve", engine={"drain_s": 1.0}))
    assert resolved.read_text(encoding="utf-8") == "of the run that is served"
    asyncio.run(journal.close())


def test_nothing_is_trained_from_an_api(run: Command) -> None:
    api = {"api": "openai-completions", "model": "m"}
    for command, *options in (["serve"], ["sample", "--output", "out", "--n", "1"]):
        line = sentence(run(command, *options, sampler=api))
        assert f"this is `engine {command}`: an API gives neither token ids nor log-probs" in line
    assert not list(run.folder.glob("**/journal.sqlite"))


def test_check_says_what_is_in_order(run: Command, services: Services) -> None:
    suites = [{"name": "heldout", "source": "task.py:training", "n": 5}]
    said = run.says(engine={"evaluation": {"suites": suites}})
    for words in (
        "policy: vocabulary 320, end of turn '<|im_end|>'",
        "first task: t0:",
        "first prompt: ",
        "evaluation heldout: 5 tasks",
        "the recipe is in order",
        "not contacted: samplers, tools.python",
    ):
        assert words in said
    assert not (run.folder / "run").exists()
    said = run.says("--connect")
    assert "warning" not in said
    assert f"sampler {services.sampler}: SGLang " in said
    assert f"tools.python at {services.tools}: python" in said


def test_check_warns_of_what_does_nothing(run: Command, tmp_path: Path) -> None:
    """Of each kind: what teaches nothing, what is not read, what the template does not know."""
    said = run.says(run={"group_size": 1}, learner={"updates": 999})
    assert "warning: run.group_size = 1 leaves nothing to compare a rollout with" in said
    assert "warning: learner.updates = 999 deals a batch" in said
    assert "task.limits.model is 8: no token" in run.says(task={"limits": {"model": 8}})
    said = run.says(learner={"loss": {"kind": "gspo"}, "correction": {"upper": 3.0}})
    assert "[learner] in force: loss gspo (mean ratio 0.9997 to 1.0004), seq-mean-token" in said
    assert "warning: learner.correction.upper = 3.0 does nothing: it is read where" in said
    assert said.endswith("the recipe is in order, but for 1 warning\n")
    thinks = "{% if enable_thinking %}<think>{% endif %}" + QWEN_TEMPLATE
    policy = {"model": write_policy(tmp_path / "qwen", template=thinks)}
    said = run.says(policy={**policy, "template": {"enable_thinknig": True, "x": 1}})
    line = "policy.template: the chat template does not read"
    assert f"warning: {line} enable_thinknig: did you mean enable_thinking?" in said.splitlines()
    assert f"{line} x" in said.splitlines()
    assert line not in run.says(policy={**policy, "template": {"enable_thinking": True}})


def test_check_starts_what_the_engine_would_start(run: Command) -> None:
    """For as long as it asks."""
    served = {"python": None, "end": {"serve": ["finish"]}}
    assert "tools.end at `toolsvc serve finish`: finish" in run.says("--connect", tools=served)
    assert not psutil.Process().children()
    line = sentence(run("check", "--connect", tools={**served, "end": {"serve": ["finsih"]}}))
    assert line.startswith("engine: tools.end: `toolsvc serve finsih`: ")


UNMADE = {
    "policy": {"model": "made/warm"},
    "sft": {"model": "made/raw", "data": "made/rows", "output": "made/warm", "steps": 1},
    "console": {
        "prepare": [
            {"name": "raw", "run": ["python", "p.py"], "makes": "made/raw"},
            {"name": "questions", "run": ["python", "q.py"], "makes": "q.jsonl"},
        ]
    },
    "run": {"engine": "127.0.0.1:0"},
    "sampler": CLOSED,
    "tools": {"python": None, "end": {"serve": ["finish"]}},
}


def test_check_looks_as_far_as_a_fresh_recipe_goes(run: Command, policy_folder: Path) -> None:
    """Its policy and questions are made by `toolwright run`, which chooses the ports as well."""
    said = run.says("--connect", **UNMADE)
    (left,) = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert "tokenizer" in left and "made/warm is not there yet" in left
    assert left.endswith("`toolwright run` makes it by [sft]")
    assert "sampler.endpoints: port 0, chosen by `toolwright run`" in said
    assert "first task: t0" in said
    assert "tools.end at `toolsvc serve finish`: finish" in said
    assert said.endswith("what can be checked of the recipe now is in order\n")

    shutil.copytree(policy_folder, run.folder / "made/raw")  # its tokenizer is the policy's
    said = run.says(**UNMADE)
    assert "policy: vocabulary 320" in said and "first prompt: " in said
    assert "left out: its weights: " in said

    suites = {"evaluation": {"suites": [{"name": "heldout", "source": "q.jsonl", "n": 5}]}}
    made = {**UNMADE, "task": {"source": "q.jsonl"}, "engine": suites}
    said = run.says(**made)
    for part in ("task.source", "evaluation heldout"):
        assert f"left out: {part}: q.jsonl is not there yet" in said
    assert "[[console.prepare]] 'questions'" in said


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
def test_check_finds_faults_of_a_fresh_recipe(
    run: Command, changes: dict[str, Any], words: str
) -> None:
    assert words in sentence(run("check", "--connect", **merged(UNMADE, changes)))


def test_adapters_that_cannot_be_published_are_found_by_check(run: Command) -> None:
    adapters = {"run": {"publish_adapters": True}}
    assert "without [learner.lora]" in sentence(run("check", **adapters))
    trained = {**adapters, "learner": {"lora": {"rank": 4}}}
    assert run("check", **trained).exit_code == 0
    assert "takes no adapters: start it with --enable-lora" in sentence(
        run("check", "--connect", **trained)
    )


def test_overrides(run: Command) -> None:
    assert "run.steps" in sentence(run("check", "--set", "run.steps=-1"))
    run.says("--set", "run.steps=7")
    assert "write it as table.key=value" in sentence(run("check", "--set", "run.steps"))


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
    assert "render.conversations: missing" in sentence(run("render"))


def test_render_can_show_the_tools(run: Command, tmp_path: Path) -> None:
    """Where prompts show tools, demonstrations have to show the same ones: the services know."""
    policy = write_policy(tmp_path / "qwen", template=QWEN_TEMPLATE)
    (run.folder / "c.jsonl").write_text(json.dumps(CONVERSATION) + "\n", encoding="utf-8")
    table = {"conversations": "c.jsonl", "output": "d.trajectories"}
    task = {"protocol": "engine.api:Chat"}

    def prompt(*options: str) -> str:
        result = run("render", *options, render=table, task=task, policy={"model": policy})
        assert result.exit_code == 0, result.output
        (trajectory,) = read_trajectories(run.folder / "d.trajectories")
        return HuggingFaceCodec(policy).decode(trajectory.sequences[0].segments[0].token_ids)

    assert "# Tools" not in prompt()
    assert '"name": "python"' in prompt("--set", "render.ask_tools=true")
    down = {"python": {"service": f"127.0.0.1:{free_port()}"}}
    asks = {**table, "ask_tools": True}
    assert "no tool service answers" in sentence(run("render", render=asks, tools=down))


def test_sample_says_what_became_of_everything(run: Command) -> None:
    """The address of a server may be a word of the command, as for `engine eval`."""
    output = run.folder / "out" / "kept.trajectories"
    options = ("--output", str(output), "--n", "3", "--per-task", "2")
    line = sentence(run("sample", *options, sampler=CLOSED))
    assert """(--set sampler.endpoints='["http://HOST:PORT"]')""" in line
    (url,) = run.tables["sampler"]["endpoints"]
    result = run("sample", *options, "--endpoint", url, sampler=CLOSED)
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
    cause = "raised KeyError('final_txt') at misspelt.py:2"
    assert f"the reward failed for 6 trajectories: {cause}" in result.stderr.splitlines()
    warnings = [one for one in result.stderr.splitlines() if one.startswith("warning: reward fail")]
    assert len(warnings) == 1 and cause in warnings[0]
    assert "engine: the reward function failed for every trajectory" in result.stderr


def test_what_sample_cannot_do_is_one_sentence(run: Command) -> None:
    output = ("--output", str(run.folder / "kept"))
    for options, words in (
        ((), "--n: a task function has no end"),
        (("--n", "1", "--tasks", "absent.jsonl"), "absent.jsonl"),
        (("--n", "1", "--keep", "nothing"), "--keep: 'nothing': write it as package.module:name"),
        (("--n", "1", "--keep", "math:sqrt"), "--keep math:sqrt: it raised TypeError"),
    ):
        assert words in sentence(run("sample", *output, *options))
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
