"""Warnings about a recipe, its limits and its data, as `engine check` and `engine render` print
them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineTable, RenderTable
from engine.errors import StartupError
from engine.offline.check.budgets import budget_lines
from engine.offline.check.command import check
from engine.offline.check.recipe_warnings import question_of
from engine.offline.render import render_recipe
from tests.support.families import write_family
from tests.support.messages import user
from tests.support.policy import QWEN_TEMPLATE, write_policy
from tests.support.recipes import merged, to_toml
from toolwright.recipe import Limits, load_recipe
from toolwright.types import Task

pytestmark = pytest.mark.quick

ROWS = [{"id": f"r{n}", "question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(6)]
ASKED = {"role": "user", "content": "What is 1 + 1?"}
CONVERSATION = {"messages": [ASKED, {"role": "assistant", "content": "2"}]}
TABLES: dict[str, Any] = {
    "run": {
        "name": "own", "folder": "run", "steps": 3, "groups_per_step": 1, "group_size": 4,
        "engine": "127.0.0.1:0",
    },
    "policy": {"model": "policy"},
    "task": {"source": "q.jsonl", "reward": "./r.py:score", "protocol": "engine.api:Chat"},
    "sampler": {"endpoints": ["http://127.0.0.1:0"]},
    "tools": {"shop": {"service": "127.0.0.1:1"}},
}  # fmt: skip


def rows(folder: Path, name: str, *found: Mapping[str, Any]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_policy(tmp_path / "policy", template=QWEN_TEMPLATE)
    (tmp_path / "r.py").write_text("def score(t):\n    return 1.0\n", encoding="utf-8")
    rows(tmp_path, "q.jsonl", *ROWS)
    return tmp_path


def written(folder: Path, changes: Mapping[str, Any]) -> Path:
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(TABLES, changes)), encoding="utf-8")
    return file


def warnings(folder: Path, about: str = "", **changes: Any) -> list[str]:
    """What `engine check` warns of, but for the template's own names and calls."""
    recipe = load_recipe(written(folder, changes))
    lines = check(recipe, recipe.table("engine", EngineTable), connect=False)
    found = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    own = ("which policy.template does not set", "</tool_call>")
    return [line for line in found if about in line and not any(word in line for word in own)]


def suite(source: str, n: int = 2, **more: Any) -> dict[str, Any]:
    return {"evaluation": {"suites": [{"name": "held", "source": source, "n": n, **more}]}}


def test_a_recipe_in_order_has_no_doubts(folder: Path) -> None:
    rows(folder, "e.jsonl", {"question": "What is 50 + 50?", "answer": "100"})
    assert warnings(folder, engine=suite("e.jsonl", 1)) == []


@pytest.mark.parametrize("sampler", [{"temperature": 0.0}, {"top_k": 1}])
def test_training_samples_that_cannot_differ(folder: Path, sampler: Mapping[str, Any]) -> None:
    (found,) = warnings(folder, sampler=sampler)
    assert f"sampler.{next(iter(sampler))} = " in found
    assert warnings(folder, sampler=sampler, run={"steps": 0}) == []


def test_limits_above_the_policy_s_context(folder: Path) -> None:
    limits = {"limits": {"model": 8192}}
    small: dict[str, Any] = {"template": QWEN_TEMPLATE, "max_position_embeddings": 4096}
    write_policy(folder / "policy", **small)
    (found,) = warnings(folder, task=limits)
    assert "task.limits.model = 8192" in found and "4096 tokens" in found
    assert warnings(folder, task={"limits": {"model": 4096}}) == []
    write_policy(folder / "policy", **small, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert warnings(folder, task=limits) == []


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ([{"question": " what is 2  +\n2? ", "answer": "4"}, {"question": "new?"}], "1 of 2"),
        ([{"messages": [ASKED], "answer": "2"}], ""),
    ],
)
def test_a_suite_that_asks_what_training_asks(folder: Path, asked: list[Any], count: str) -> None:
    rows(folder, "e.jsonl", *asked)
    found = warnings(folder, "training file", engine=suite("e.jsonl", len(asked)))
    assert [f"evaluation held: {count} questions" in one for one in found] == [True] * bool(count)


def test_a_function_with_the_seed_of_training_is_what_training_asks(folder: Path) -> None:
    (folder / "t.py").write_text(
        "from toolwright.types import Task\n"
        "def tasks(seed):\n"
        "    while True:\n"
        "        yield Task(id='a', prompt='What?', answers=('1',))\n",
        encoding="utf-8",
    )
    task = {"source": "./t.py:tasks"}
    (found,) = warnings(folder, "seed", task=task, engine=suite("./t.py:tasks"))
    assert "evaluation held: ./t.py:tasks with seed 0" in found
    assert warnings(folder, "seed", task=task, engine=suite("./t.py:tasks", seed=7)) == []


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (lambda n: {"extra_info": {"answer": f"so it is {2 * n}"}}, "metadata.extra_info.answer"),
        (lambda n: {"metadata": {"info": [{"ground_truth": 2 * n}]}}, "metadata.info.ground_truth"),
        (lambda n: {"computed": 2 * n}, "metadata.computed"),
        (lambda n: {"level": 2, "extra_info": {"answer": None, "gold": ""}}, ""),
    ],
)
def test_answers_in_the_metadata_reach_tools(folder: Path, column: Any, path: str) -> None:
    rows(folder, "q.jsonl", *({**row, **column(n)} for n, row in enumerate(ROWS)))
    said = f"6 of 6 rows also have their answer in {path},"
    assert [said in one for one in warnings(folder, "metadata")] == [True] * bool(path)
    assert warnings(folder, "metadata", tools={"shop": None}) == []


@pytest.mark.parametrize(("family", "fits"), [("qwen2_5", True), ("llama_3", False)])
def test_a_call_that_the_template_never_writes(folder: Path, family: str, fits: bool) -> None:
    write_family(folder / "policy", family)
    recipe = load_recipe(written(folder, {}))
    lines = check(recipe, recipe.table("engine", EngineTable), connect=False)
    assert any("call_close" in line for line in lines) is not fits


def warm_up(folder: Path, conversation: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    rows(folder, "c.jsonl", conversation)
    return {"conversations": "c.jsonl", "output": "c.trajectories", **more}


def test_a_warm_up_without_the_tools_that_rollouts_show(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    render = warm_up(folder, CONVERSATION)
    (sentence,) = warnings(folder, render=render)
    assert "1 of the first 1 conversations of c.jsonl show no tools" in sentence
    recipe = load_recipe(written(folder, {"render": render}))
    render_recipe(recipe, recipe.table("render", RenderTable))
    assert f"warning: {sentence}" in capsys.readouterr().err
    assert warnings(folder, render={**render, "ask_tools": True}) == []


def test_a_warm_up_with_another_system_message_or_template(folder: Path) -> None:
    messages = [{"role": "system", "content": "Be short."}, *CONVERSATION["messages"]]
    (found,) = warnings(folder, render=warm_up(folder, {"messages": messages}, ask_tools=True))
    assert found.startswith("prompts of c.jsonl begin with ") and "Be short." in found
    write_policy(folder / "base")
    render = warm_up(folder, CONVERSATION, ask_tools=True, model="base")
    (found,) = warnings(folder, render=render)
    assert "render.model has another tokenizer or chat template than policy.model" in found


@pytest.mark.parametrize(
    ("limits", "prompt", "words"),
    [
        ({"turns": 2, "observation": 100, "action": 1, "response": 202}, 0, None),
        (
            {"turns": 2, "observation": 100, "action": 50, "response": 299},
            0,
            r"^k.turns x \(action \+ observation\) = 2 x \(50 \+ 100\) = 300 tokens; k.response = "
            "299 holds 1 such turns: .* max_response_length; raise k.response or lower k.action$",
        ),
        ({"turns": 2, "observation": 100, "action": 50, "response": 300}, 0, None),
        (
            {"turns": 2, "observation": 9, "action": 9, "response": 99, "model": 99},
            65,
            "= 36 tokens; k.model = 99 beside a prompt of 65 tokens holds 1 .* max_model_length",
        ),
        ({"turns": 2, "observation": 100, "response": 200}, 0, "response = 200 is full after 1 of"),
        ({"turns": 5, "response": 2048}, 0, "warning: k.turns x observation = 5 x 1024 = 5120"),
        ({"turns": 5, "policy": 2048, "model": 8192}, 1024, None),
        ({"turns": 5, "policy": 2048, "model": 8192}, 1025, "k.model = 8192 beside a prompt of"),
        ({"turns": 5, "policy": 2048, "model": 4096}, 0, "warning: .* and k.policy = 2048 is full"),
        ({"turns": 1, "policy": 9, "response": 8}, 0, "warning: k.response = 8 has no effect"),
        ({"turns": 9, "response": 4096, "model": 4096}, 4095, "warning: .*k.model .* after 0 of"),
        ({"turns": 0, "response": 1, "model": 2}, 0, None),
    ],
)
def test_observations_are_laid_beside_the_budgets(
    limits: dict[str, int], prompt: int, words: str | None
) -> None:
    said = "\n".join(budget_lines(Limits(**limits), prompt, "k"))  # type: ignore[arg-type]
    if words is None:
        assert said == ""
    else:
        assert re.search(words, said), said


DROPS_USERS = (
    "{% for m in messages %}{% if m.role != 'user' %}{{ m.content }}<|im_end|>{% endif %}"
    "{% endfor %}"
)


def test_a_prompt_without_the_question(folder: Path) -> None:
    write_policy(folder / "policy", template=DROPS_USERS + "<|im_start|>assistant\n")
    (found,) = warnings(folder, "does not hold")
    assert "question of task r" in found


def test_a_prompt_of_no_tokens(folder: Path) -> None:
    write_policy(folder / "policy", template=DROPS_USERS)
    with pytest.raises(StartupError, match=r"the prompt of task r\d has 0 tokens: protocol and"):
        warnings(folder)


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ("How many?", "How many?"),
        ([{"type": "image"}, {"type": "text", "text": "How many?"}], "How many?"),
        ([{"type": "image"}], ""),
        (None, ""),
    ],
)
def test_a_question_is_its_text_alone(content: Any, question: str) -> None:
    task = Task(id="a", messages=(user(content),))
    assert question_of(task) == question
