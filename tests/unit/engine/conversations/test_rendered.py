"""What others recorded, rendered: the tokens that a rollout with the row's tools would have."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from engine.config import RenderTable
from engine.core.protocols import Protocol
from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from engine.offline.render import RenderPart, render, render_recipe
from engine.types import ToolSpec
from tests.support.messages import assistant, call, tool, user
from tests.support.recipes import merged, recipe_tables, write_recipe
from tests.unit.engine.conversations.test_layouts import HERMES, OPENAI, PARAMETERS, gpt
from toolwright.recipe import Recipe, load_recipe
from toolwright.trajectory_files import read_trajectories
from toolwright.types import Author, Task, Trajectory

PARALLEL = Chat(parallel=True)
TOOL = ToolSpec(name="weather", description="Of a city.", arguments_schema=PARAMETERS)
ASK = user("Oslo?")
CALLED = assistant(None, call("weather", '{"city": "Oslo"}'))
ONE = {"messages": [ASK, CALLED, tool("blue"), assistant("Blue.")], "tools": OPENAI["tools"]}


def rendered(
    folder: Path, codec: HuggingFaceCodec, protocol: Protocol, *rows: Any, **options: Any
) -> list[Trajectory]:
    file, out = folder / "c.jsonl", folder / "x.trajectories"
    file.write_text(
        "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in rows), encoding="utf-8"
    )
    part = RenderPart(file=file, protocol=protocol, tools=tuple(options.pop("tools", ())))
    count = render([part], out, codec, **options)
    read = list(read_trajectories(out))
    assert len(read) == count
    return read


def texts(trajectory: Trajectory, codec: HuggingFaceCodec) -> list[tuple[Author, str]]:
    (sequence,) = trajectory.sequences
    return [(one.author, codec.decode(one.token_ids)) for one in sequence.segments]


def test_a_row_is_rendered_with_its_own_tools(tmp_path: Path, qwen: HuggingFaceCodec) -> None:
    other = ToolSpec(name="other")
    bare = {"messages": ONE["messages"]}
    own, asked = rendered(tmp_path, qwen, Chat(), ONE, bare, tools=[other])
    task = Task(id="x", messages=(ASK,))
    prompts = [list(one.sequences[0].segments[0].token_ids) for one in (own, asked)]
    assert prompts == [
        Chat().prompt(task, (TOOL,), qwen),
        Chat().prompt(task, (other,), qwen),
    ]
    assert texts(own, qwen)[1:] == [
        (
            Author.MODEL,
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
        ),
        (
            Author.TOOL,
            "<|im_end|>\n<|im_start|>user\n<tool_response>\nblue\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (Author.MODEL, "Blue.<|im_end|>"),
    ]
    segments = own.sequences[0].segments
    assert [(one.turn, one.trainable) for one in segments[1:]] == [(0, True), (0, False), (1, True)]
    for one in segments:
        zeros = array("f", [0.0] * len(one.token_ids))
        assert one.logprobs == (zeros if one.author is Author.MODEL else None)
    assert own.tokenizer_hash == qwen.hash


def test_both_layouts_give_the_same_tokens(tmp_path: Path, qwen: HuggingFaceCodec) -> None:
    openai, hermes = rendered(tmp_path, qwen, PARALLEL, OPENAI, HERMES)
    assert openai.sequences[0].token_ids == hermes.sequences[0].token_ids
    prompt, action, answers, last = texts(openai, qwen)
    assert prompt[1].startswith('<|im_start|>system\n# Tools\n{"type": "function"')
    assert "function calling AI model" not in prompt[1]
    assert action[1].count("<tool_call>") == 2
    assert action[1].endswith("</tool_call><|im_end|>"), "with parallel calls the turn ends it"
    assert answers[1].count("<tool_response>") == 2
    assert answers[1].count("<|im_start|>") == 2, "one turn of answers and one generation prompt"
    assert last == (Author.MODEL, "Blue and grey.<|im_end|>")


def test_a_template_without_a_place_for_tools(tmp_path: Path, codec: HuggingFaceCodec) -> None:
    told: list[str] = []
    openai, hermes = rendered(tmp_path, codec, PARALLEL, OPENAI, HERMES, show=told.append)
    assert "<tools>" not in texts(openai, codec)[0][1]
    assert "function calling AI model" in texts(hermes, codec)[0][1], "its own words tell the tools"
    (line,) = told
    assert "1 rows have tools that their prompts do not show" in line


def test_what_shall_not_be_imitated_is_no_target(tmp_path: Path, qwen: HuggingFaceCodec) -> None:
    messages = [dict(one) for one in ONE["messages"]]
    messages[1]["weight"] = 0
    (found,) = rendered(tmp_path, qwen, Chat(), {"messages": messages})
    assert [one.trainable for one in found.sequences[0].segments] == [False, False, False, True]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (OPENAI, "set parallel = true"),
        (gpt("hello"), "message 3 answers no call"),
        ({"messages": [ASK, assistant("a<|im_end|>b")]}, "holds <|im_end|>, at which a rollout"),
        ({"messages": [ASK, assistant("a"), ASK]}, 'set system_role = "user"'),
        ({"messages": [ASK]}, "a conversation needs"),
    ],
)
def test_a_row_that_cannot_be_rendered_is_named(
    tmp_path: Path, qwen: HuggingFaceCodec, row: Any, words: str
) -> None:
    with pytest.raises(StartupError) as caught:
        rendered(tmp_path, qwen, Chat(), ONE, row)
    assert "c.jsonl:2: " in str(caught.value)
    assert words in str(caught.value)
    assert not (tmp_path / "x.trajectories").exists()
    assert (tmp_path / "x.trajectories.unfinished").exists(), "what was rendered before that row"


def test_some_broken_rows_may_be_passed_over(tmp_path: Path, qwen: HuggingFaceCodec) -> None:
    told: list[str] = []
    read = rendered(tmp_path, qwen, Chat(), ONE, "{", OPENAI, ONE, max_bad_rows=2, show=told.append)
    assert [one.task.id for one in read] == ["1", "4"]
    assert [line.split(": ")[0] for line in told] == ["skipped"] * 2
    assert "c.jsonl:2: not JSON" in told[0]
    assert "c.jsonl:3: a message has 2 calls" in told[1]
    with pytest.raises(StartupError, match=r"c\.jsonl:3: .*more than render.max_bad_rows = 1"):
        rendered(tmp_path, qwen, Chat(), ONE, "{", OPENAI, max_bad_rows=1)


def test_a_tagged_policy_takes_calls_of_one_argument(
    tmp_path: Path, codec: HuggingFaceCodec
) -> None:
    (found,) = rendered(tmp_path, codec, Tagged(), ONE)
    assert texts(found, codec)[1][1] == "<weather> Oslo</weather>"
    with pytest.raises(StartupError, match="2 calls"):
        rendered(tmp_path, codec, Tagged(), OPENAI)


SAID = (assistant("<python> 1+1</python>"), tool("2"), assistant("<answer> 2</answer>"))
CONVERSATION = {"id": "c1", "messages": [user("1+1?"), *SAID]}


def test_conversations_of_each_task_are_told_in_its_own_protocol(
    tmp_path: Path, policy_folder: Path, codec: HuggingFaceCodec
) -> None:
    """One file of tokens, in the order in which the recipe names the tasks' files."""
    for name in ("sums", "finds"):
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({**CONVERSATION, "id": name}) + "\n", encoding="utf-8"
        )
    recipe = two_tasks(tmp_path, policy_folder)
    files = {"finds": "finds.jsonl", "sums": "sums.jsonl"}
    table = RenderTable.model_validate({"conversations": files, "output": "both.trajectories"})
    assert render_recipe(recipe, table).startswith("2 trajectories: ")
    finds, sums = read_trajectories(tmp_path / "both.trajectories")
    assert (finds.id, sums.id) == ("demonstration-finds", "demonstration-sums")
    assert "(2)" in codec.decode(finds.sequences[0].token_ids)
    assert "<result> 2</result>" in codec.decode(sums.sequences[0].token_ids)


@pytest.mark.parametrize("given", ["sums.jsonl", {"sums": "sums.jsonl", "sql": "sql.jsonl"}])
def test_conversations_of_no_task_are_refused_with_the_form(
    tmp_path: Path, policy_folder: Path, given: Any
) -> None:
    recipe = two_tasks(tmp_path, policy_folder)
    table = RenderTable.model_validate({"conversations": given, "output": "x.trajectories"})
    with pytest.raises(StartupError, match=r"write \{ sums = FILE, finds = FILE \}"):
        render_recipe(recipe, table)


def two_tasks(folder: Path, policy: Path) -> Recipe:
    tables = recipe_tables(policy=policy, sampler="http://127.0.0.1:1", tools={}, engine="x:1")
    own = {"source": "a.jsonl", "protocol_options": {"observation": "({text})"}}
    tasks = {"sums": {"source": "b.jsonl"}, "finds": own}
    return load_recipe(write_recipe(folder, merged(tables, {"tasks": tasks})))


def test_no_file(tmp_path: Path, codec: HuggingFaceCodec) -> None:
    part = RenderPart(file=tmp_path / "absent.jsonl", protocol=Tagged())
    with pytest.raises(StartupError, match=r"render\.conversations: no file"):
        render([part], tmp_path / "x", codec)
