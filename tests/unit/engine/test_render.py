"""Recorded conversations become trajectories."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from engine.config import RenderTable
from engine.core.protocols.tagged import Tagged
from engine.core.text.codec import HuggingFaceCodec
from engine.errors import StartupError
from engine.offline.render import RenderPart, render, render_recipe
from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import Recipe, load_recipe
from toolwright.trajectory_files import read_trajectories
from toolwright.types import Author, Trajectory

CONVERSATION = {
    "id": "c1",
    "messages": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<python> 1+1</python>"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "<answer> 2</answer>"},
    ],
}


def rendered(folder: Path, codec: HuggingFaceCodec, *lines: Any) -> list[Trajectory]:
    file = folder / "conversations.jsonl"
    file.write_text(
        "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines),
        encoding="utf-8",
    )
    out = folder / "out" / "x.trajectories"
    count = render([RenderPart(file=file, protocol=Tagged())], out, codec)
    read = list(read_trajectories(out))
    assert len(read) == count
    return read


def test_segments(tmp_path: Path, codec: HuggingFaceCodec) -> None:
    (trajectory,) = rendered(tmp_path, codec, CONVERSATION)
    (sequence,) = trajectory.sequences
    shown = [(s.author, codec.decode(s.token_ids), s.turn, s.trainable) for s in sequence.segments]
    assert shown == [
        (
            Author.PROMPT,
            "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n",
            0,
            False,
        ),
        (Author.MODEL, "<python> 1+1</python>", 0, True),
        (Author.TOOL, "<result> 2</result>", 0, False),
        (Author.MODEL, "<answer> 2</answer><|im_end|>", 1, True),
    ]
    assert sequence.action_spans[1][0] == 1
    assert trajectory.tokenizer_hash == codec.hash
    assert trajectory.task.id == "c1"
    for segment in sequence.segments:
        wrote = segment.author is Author.MODEL
        zeros = array("f", [0.0] * len(segment.token_ids))
        assert segment.logprobs == (zeros if wrote else None)


def test_blank_lines_are_skipped_and_lines_are_names(
    tmp_path: Path, codec: HuggingFaceCodec
) -> None:
    bare = {"messages": CONVERSATION["messages"]}
    read = rendered(tmp_path, codec, bare, "", bare)
    assert [t.task.id for t in read] == ["1", "3"]
    assert len({t.id for t in read}) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ":2: "),
        ({"conversation": []}, ':2: a line is {"messages"'),
        ([1], ':2: a line is {"messages"'),
        ({"messages": ["hello"]}, ":2: message 1 is a str"),
        ({"messages": [{"role": "user", "content": "x"}]}, ":2: a conversation needs"),
    ],
)
def test_a_line_that_does_not_fit_is_named_and_nothing_is_left(
    tmp_path: Path, codec: HuggingFaceCodec, line: Any, words: str
) -> None:
    with pytest.raises(StartupError) as caught:
        rendered(tmp_path, codec, CONVERSATION, line)
    assert "conversations.jsonl" + words in str(caught.value)
    assert not (tmp_path / "out" / "x.trajectories").exists()


def test_no_file(tmp_path: Path, codec: HuggingFaceCodec) -> None:
    with pytest.raises(StartupError, match=r"render\.conversations: no file"):
        render(
            [RenderPart(file=tmp_path / "absent.jsonl", protocol=Tagged())], tmp_path / "x", codec
        )


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
