"""The demonstration's world: its questions, the tools that are made of them, the demonstrator."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tasks.worlds.encyclopedia import Encyclopedia
from tests.unit.mtr.conftest import FOLDER
from toolsvc.schemas.functions import function_tools
from toolsvc.schemas.lint import lint
from toolsvc.schemas.validation import violations
from toolwright.imports import load_file

COUNT = 240
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(FOLDER / "world/task.py")


@pytest.fixture(scope="module")
def roles() -> ModuleType:
    return load_file(FOLDER / "world/roles.py")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(FOLDER / "world/demonstrations.py")


@pytest.fixture(scope="module")
def actor(task: ModuleType, roles: ModuleType) -> Any:
    return roles.Actor(Encyclopedia(task.ENCYCLOPEDIA, task.SHAPE))


def test_questions_depend_on_the_seed_alone_and_never_end(task: ModuleType) -> None:
    first = list(islice(task.training(3), 1500))
    assert list(islice(task.training(3), 1500)) == first
    assert list(islice(task.training(4), 1500)) != first
    assert [one.data_source for one in first[:4]] == ["easy", "hard", "easy", "hard"]
    assert [one.data_source for one in islice(task.heldout(1), 2)] == ["easy", "hard"]


def test_what_tools_are_told_of_a_task_has_no_answer(task: ModuleType) -> None:
    for stream in (task.training, task.easy, task.hard, task.heldout):
        for one in islice(stream(1), 100):
            assert one.metadata["question"] == one.messages[0]["content"]
            assert not any(gold in json.dumps(one.metadata) for gold in one.answers)


def test_every_question_has_tools_that_lead_to_its_answer(
    task: ModuleType, roles: ModuleType, actor: Any
) -> None:
    book = Encyclopedia(task.ENCYCLOPEDIA, task.SHAPE)
    for question in islice(book.questions("train", (1, 2)), COUNT):
        tools = roles.tool_set(question.text)
        made = function_tools(tools)
        assert not lint(made, ())
        assert 2 <= len(made) <= 4
        about = question.chain[0]
        for relation in question.path:
            tool = next(one.as_json() for one in made if relation in one.returns["properties"])
            arguments = dict.fromkeys(tool["parameters"]["properties"], about)
            for name, schema in tool["parameters"]["properties"].items():
                arguments[name] = schema.get("enum", [about])[0]
            assert not violations(tool["parameters"], arguments)
            found = actor.observation(tool, arguments)
            assert not violations(tool["returns"], found)
            about = found[relation]
        assert about in question.answers


def test_tools_differ_from_question_to_question(task: ModuleType, roles: ModuleType) -> None:
    sets = [roles.tool_set(one.metadata["question"]) for one in islice(task.training(1), COUNT)]
    assert len({one["function"]["name"] for tools in sets for one in tools}) == 27
    wants = sum("edition" in json.dumps(tools) for tools in sets)
    assert 0.4 < wants / COUNT < 0.6
    assert roles.tool_set("of something else") and roles.tool_set("")


def test_the_player_errs_and_is_told_so(roles: ModuleType, actor: Any) -> None:
    """An observation without its value, and a fact of something else for arguments that do not
    fit."""
    tool = function_tools(roles.tool_set("Who governs Norwick?"))[0].as_json()
    (first, *_) = tool["parameters"]["properties"]
    slips = Counter(not actor.slip(tool, {first: f"x{number}"}) for number in range(400))
    assert 25 < slips[True] < 80
    assert actor.observation(tool, {first: "x0"}), "told so, it is right"


@given(tool=st.dictionaries(st.text(max_size=9), ANYTHING), arguments=ANYTHING)
def test_any_tool_and_any_arguments_are_played(
    roles: ModuleType, actor: Any, tool: Any, arguments: Any
) -> None:
    given_ = arguments if isinstance(arguments, dict) else {"a": arguments}
    wild = {**tool, "returns": {"properties": {"mayor": arguments}}, "parameters": tool}
    assert set(actor.observation(wild, given_)) == {"mayor"}
    actor.slip(tool, given_)


def test_without_errors_is_as_the_paper_filters(demonstrations: ModuleType) -> None:
    refused: Counter[str] = Counter()
    stream = demonstrations.kept(1, no_errors=True, refused=refused)
    for messages in islice(stream, COUNT):
        texts = [one["content"] for one in messages if one["role"] == "assistant"]
        assert 2 <= sum("<tool_call>" in text for text in texts) <= 12
        assert not any('"status": "error"' in one["content"] for one in messages)
    assert 0.4 < refused["kept"] / refused["traces"] < 0.6
    assert all(refused[why] for why in ("wrong_answer", "validation_error", "length"))


def test_mended_errors_stay_where_nobody_refuses_them(demonstrations: ModuleType) -> None:
    stream = demonstrations.kept(1, no_errors=False, refused=Counter())
    shown = [json.dumps(messages) for messages in islice(stream, COUNT)]
    assert 0.3 < sum("validation_error" in text for text in shown) / COUNT < 0.5


def test_what_is_kept_has_faults_that_reward_can_tell(demonstrations: ModuleType) -> None:
    """Reasoning that names something else, and calls that were made before."""
    inconsistent = repeated = 0
    for messages in islice(demonstrations.kept(2, no_errors=True, refused=Counter()), COUNT):
        texts = [one["content"] for one in messages if one["role"] == "assistant"]
        said = re.search("the answer is (.*)\\.</think><answer>(.*)</answer>$", texts[-1])
        assert said
        inconsistent += said[1] != said[2]
        calls = [text for text in texts if "<tool_call>" in text]
        bodies = [text.partition("<tool_call>")[2] for text in calls]
        repeated += len(set(bodies)) < len(bodies)
    assert 0.25 < inconsistent / COUNT < 0.55
    assert repeated > 0.05 * COUNT


def test_an_exercise_says_what_stands_in_its_prompt_and_calls_nothing() -> None:
    errors = 0
    for asked, said in islice(load_file(FOLDER / "world/exercises.py").exercises(1), COUNT):
        assert (asked["role"], said["role"]) == ("user", "assistant")
        read = re.fullmatch("<think>(.*)</think><answer>(.*)</answer>", said["content"])
        assert read
        values = [one.partition(" of ")[2] for one in read[1].split(", ")]
        assert all(value in asked["content"] for value in values)
        assert values[-1] == read[2]
        told = json.loads(asked["content"])
        if told.get("status") == "error":
            errors += 1
            assert str([read[2]]) == told["error"]["violations"][0]["expected"]
        else:
            assert sorted(values) == sorted(told.values())
    assert 0.4 < errors / COUNT < 0.6


def test_a_refusal_is_what_the_tools_say(roles: ModuleType) -> None:
    """Word for word, or the warm-up shows errors that no rollout has."""
    question = next(
        f"Who governs {number}?"
        for number in range(99)
        if "edition" in json.dumps(roles.tool_set(f"Who governs {number}?"))
    )
    tool = roles.tool_set(question)[0]
    (made,) = function_tools([tool])
    (first, edition) = tool["function"]["parameters"]["properties"]
    arguments = {first: "Norwick", edition: "tenth"}
    told = load_file(FOLDER / "world/refused.py").refusal(tool["function"])
    found = [one.as_json() for one in violations(made.parameters, arguments)]
    assert told["error"]["violations"] == found


def test_write_is_one_conversation_a_line(
    demonstrations: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "d.jsonl"
    demonstrations.main(output=path, seed=1, count=10)
    rows = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    practised = [rows.pop(at) for at in (9, 4)]
    assert rows == list(islice(demonstrations.kept(1, no_errors=False, refused=Counter()), 8))
    exercises = load_file(FOLDER / "world/exercises.py").exercises(1)
    assert practised[::-1] == list(islice(exercises, 2))
    assert re.match(r"\d+ traces: kept \d+%", capsys.readouterr().out)


def test_names_and_fixed_words_are_tokens(tmp_path: Path, demonstrations: ModuleType) -> None:
    policy = load_file(FOLDER / "world/policy.py")
    policy.main(output=tmp_path, seed=1)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    known = {*policy.words(), *policy.TAGS, *"123.?\n"}
    for one in islice(demonstrations.traces(1), 100):
        for message in one.messages:
            ids = tokenizer.encode(message["content"]).ids
            assert {tokenizer.decode([token], skip_special_tokens=False) for token in ids} <= known
