"""The demonstration's world: its questions, the demonstrator's faults, a token for each word."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer

from tasks.worlds.encyclopedia import Encyclopedia, is_held_out, passages
from toolwright.imports import load_file

FOLDER = Path(__file__).resolve().parents[3] / "recipes/se_search/world"
COUNT = 480


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(FOLDER / "task.py")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(FOLDER / "demonstrations.py")


@pytest.fixture(scope="module")
def shown(demonstrations: ModuleType) -> list[list[dict[str, str]]]:
    return list(islice(demonstrations.conversations(1), COUNT))


def test_questions_depend_on_the_seed_alone_and_never_end(task: ModuleType) -> None:
    first = list(islice(task.training(3), 1500))
    assert list(islice(task.training(3), 1500)) == first
    assert list(islice(task.training(4), 1500)) != first
    assert [one.data_source for one in first[:4]] == ["easy", "hard", "easy", "hard"]


def test_the_corpus_answers_what_is_asked(task: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "new" / "corpus.jsonl"
    task.main(output=file)
    text = file.read_text(encoding="utf-8")
    for stream in (task.training, task.easy, task.hard):
        for one in islice(stream(1), 200):
            assert one.answers[0] in text
    assert len(text.splitlines()) == 320, "a river has no passage"


def test_held_out_questions_are_about_names_that_training_never_asks_about(
    task: ModuleType,
) -> None:
    titles = [
        one["contents"].splitlines()[0].strip('"')
        for one in passages(task.ENCYCLOPEDIA, task.SHAPE)
    ]
    held_out = [title for title in titles if is_held_out(title)]
    for one in islice(task.training(1), 800):
        assert not any(title in one.messages[0]["content"] for title in held_out)
        assert not any(map(is_held_out, one.answers))
    for stream, hops in ((task.easy, 1), (task.hard, 2)):
        for one in islice(stream(1), 128):
            assert any(title in one.messages[0]["content"] for title in held_out)
            assert one.metadata["hops"] == hops
        assert len({one.messages[0]["content"] for one in islice(stream(1), 128)}) > 100


def test_the_demonstrator_has_the_faults_that_reward_is_to_fix(
    task: ModuleType, demonstrations: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    """Right answers are not there to be counted: each set has an encyclopedia of its own."""
    searches, repeats, easy = 0, 0, 0
    for number, messages in enumerate(shown):
        text = "".join(one["content"] for one in messages if one["role"] == "assistant")
        queries = re.findall("<search>(.*?)</search>", text)
        assert text.count("<memory>") == len(queries)
        assert re.search("<answer>[^<]+</answer>$", text)
        repeats += len(set(queries)) < len(queries)
        if number % 2 == 0:
            easy += 1
            searches += len(queries)
    assert 1.6 < searches / easy < 2.1
    assert 0 < repeats / COUNT < 0.3


def test_of_each_entity_two_things_are_told(demonstrations: ModuleType, task: ModuleType) -> None:
    for relation in task.SHAPE.relations:
        assert demonstrations.other(relation) != relation
        assert demonstrations.other(demonstrations.other(relation)) == relation


def test_answers_stand_in_what_was_found(shown: list[list[dict[str, str]]]) -> None:
    for messages in shown:
        found = "".join(one["content"] for one in messages if one["role"] == "tool")
        answer = messages[-1]["content"].partition("<answer>")[2].removesuffix("</answer>")
        assert answer in found


def test_a_search_finds_the_passage_of_a_name_first(
    demonstrations: ModuleType, task: ModuleType
) -> None:
    encyclopedia = Encyclopedia(5, task.SHAPE)
    book = demonstrations.Book(encyclopedia)
    for kind in ("person", "town", "company"):
        for name in encyclopedia.entities[kind]:
            found = book.search(name).splitlines()
            assert found[0].startswith(f"Doc 1(Title: {name}) {name}: ")
            assert 1 <= len(found) <= demonstrations.TOP


def test_no_demonstration_is_set_in_the_encyclopedia_of_the_questions(
    task: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    told = {one["contents"].splitlines()[1] for one in passages(task.ENCYCLOPEDIA, task.SHAPE)}
    lines = Counter(
        line.partition(") ")[2] in told
        for messages in shown
        for one in messages
        if one["role"] == "tool"
        for line in one["content"].splitlines()
    )
    assert lines[True] < 0.01 * lines[False]


def test_write_is_one_conversation_a_line(demonstrations: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "d.jsonl"
    demonstrations.main(output=path, seed=1, count=10)
    rows = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == list(islice(demonstrations.conversations(1), 10))


def test_names_and_fixed_words_are_tokens(
    tmp_path: Path, shown: list[list[dict[str, str]]]
) -> None:
    policy = load_file(FOLDER / "policy.py")
    policy.main(output=tmp_path, seed=1)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    known = {*policy.words(), *policy.TAGS, *"123.?\n"}
    for messages in shown[:150]:
        for one in messages:
            ids = tokenizer.encode(one["content"]).ids
            assert {tokenizer.decode([token], skip_special_tokens=False) for token in ids} <= known
