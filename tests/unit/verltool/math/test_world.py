"""The freight yard: right answers, numbers and pairs kept apart, and a demonstrator with faults."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.unit.verltool.math.conftest import FOLDER
from toolwright.imports import load_file

WORLD = FOLDER / "world"
STREAMS = ("training", "heldout", "unseen_pairs")
COUNT = 4000
PROGRAM = re.compile(r"```python\nx = (\d+)(\D+)(\d+)\nprint\(x(\D+)(\d+)\)\n```\n```output")
BOX = re.compile(r"\\boxed\{(\d+)\}")


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(WORLD / "task.py")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(WORLD / "demonstrations.py")


@pytest.fixture(scope="module")
def shown(demonstrations: ModuleType) -> list[list[dict[str, str]]]:
    return list(islice(demonstrations.conversations(1), COUNT))


def text_of(one: Any) -> str:
    return str(one.messages[0]["content"])


def numbers_of(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def shape_of(task: ModuleType, text: str) -> str:
    """The sentences without what is drawn."""
    return re.sub(rf"\d+|{'|'.join(task.GOODS)}", "_", text)


@pytest.mark.parametrize("stream", STREAMS)
def test_the_answer_is_what_python_says(task: ModuleType, stream: str) -> None:
    for one in islice(getattr(task, stream)(5), 500):
        a, b, c = numbers_of(text_of(one))
        first, second = one.metadata["first"], one.metadata["second"]
        assert one.answers == (str(eval(f"({a}{first}{b}){second}{c}")),)
        assert int(one.answers[0]) not in (a, b, c)
        assert int(one.answers[0]) >= 10


def test_each_sentence_has_the_operator_that_it_stands_under(task: ModuleType) -> None:
    for by_sign, place in ((task.LOADS, "first"), (task.EVENTS, "second")):
        signs = {sentence: sign for sign, texts in by_sign.items() for sentence in texts}
        assert len(signs) == sum(map(len, by_sign.values())), "no sentence stands twice"
        for one in islice(task.training(1), 100):
            ((_, sign),) = [
                found
                for found in signs.items()
                if shape_of(task, re.sub(r"\{\w+\}", "_", found[0])) in shape_of(task, text_of(one))
            ]
            assert sign == one.metadata[place]


@pytest.mark.parametrize("stream", STREAMS)
def test_problems_depend_on_the_seed_alone_and_never_end(task: ModuleType, stream: str) -> None:
    made = getattr(task, stream)
    first = list(islice(made(3), 300))
    assert list(islice(made(3), 300)) == first
    assert list(islice(made(4), 300)) != first
    assert len({text_of(one) for one in first}) > 290


def test_no_held_out_numbers_stand_in_training(
    task: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    seen = [text_of(one) for one in islice(task.training(1), COUNT)]
    seen += [messages[0]["content"] for messages in shown]
    assert not any(task.held_out(*numbers_of(text)) for text in seen)
    for stream in (task.heldout, task.unseen_pairs):
        assert all(task.held_out(*numbers_of(text_of(one))) for one in islice(stream(1), 500))


def test_unseen_pairs_are_of_sentences_that_training_shows(
    task: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    trained, unseen, held_out = (
        {shape_of(task, text_of(one)) for one in islice(getattr(task, stream)(1), 400)}
        for stream in ("training", "unseen_pairs", "heldout")
    )
    assert len(trained) == 24 and len(unseen) == 8
    assert trained == held_out and not trained & unseen
    assert {shape_of(task, messages[0]["content"]) for messages in shown} == trained
    for pairs in (task.TRAINED_PAIRS, task.UNSEEN_PAIRS):
        assert len({one.load for one in pairs}) == 4
        assert len({one.event for one in pairs}) == 8
        assert len({(one.first, one.second) for one in pairs}) == 8


def test_a_round_takes_every_pair_once(task: ModuleType) -> None:
    some = list(islice(task.problems(2, held=False), 48))
    for begun in (0, 24):
        assert {one.sentences for one in some[begun : begun + 24]} == set(task.TRAINED_PAIRS)


def test_the_demonstrator_has_the_faults_that_reward_is_to_fix(
    task: ModuleType, demonstrations: ModuleType, shown: list[list[dict[str, str]]]
) -> None:
    seed = random.Random("demonstrator 1").getrandbits(32)
    counts: Counter[str] = Counter()
    for problem, messages in zip(task.problems(seed, held=False), shown, strict=False):
        assert messages[0]["content"] == problem.text
        said = BOX.fullmatch(messages[-1]["content"])
        assert said is not None
        counts["right"] += int(said[1]) == problem.result
        if len(messages) == 2:
            counts["guessed"] += 1
            assert int(said[1]) != problem.result
            continue
        found = PROGRAM.fullmatch(messages[1]["content"])
        assert found is not None
        a, first, b, second, c = found.groups()
        assert (int(a), int(b), int(c)) == (problem.a, problem.b, problem.c)
        assert messages[2]["content"] == said[1] == str(eval(f"({a}{first}{b}){second}{c}"))
        counts["first"] += first == problem.sentences.first
        counts["second"] += second == problem.sentences.second
    programs = COUNT - counts["guessed"]
    assert counts["guessed"] / COUNT == pytest.approx(0.4, abs=0.03)
    assert counts["first"] / programs == pytest.approx(0.8, abs=0.03)
    assert counts["second"] / programs == pytest.approx(0.25, abs=0.03)
    assert counts["right"] / COUNT == pytest.approx(0.12, abs=0.02)


def test_habits_are_unrelated_to_the_question(task: ModuleType, demonstrations: ModuleType) -> None:
    habits = demonstrations.HABITS
    assert {sign: len(liked) for sign, liked in habits.items()} == {
        sign: len(texts) for sign, texts in task.EVENTS.items()
    }
    assert sum(one == sign for sign, liked in habits.items() for one in liked) == 2
    assert set(Counter(one for liked in habits.values() for one in liked).values()) == {2}


def test_write_is_one_conversation_a_line(
    demonstrations: ModuleType, shown: list[list[dict[str, str]]], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "d.jsonl"
    demonstrations.main(output=file, seed=1, count=10)
    rows = [json.loads(line)["messages"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert rows == shown[:10]


def test_sentences_and_programs_are_few_tokens(
    tmp_path: Path, shown: list[list[dict[str, str]]]
) -> None:
    policy = load_file(WORLD / "policy.py")
    policy.main(output=tmp_path, seed=1)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    known = {*policy.words(), *"0123456789+-*., }\n"}
    for messages in shown[:100]:
        for one in messages:
            ids = tokenizer.encode(one["content"]).ids
            assert {tokenizer.decode([token], skip_special_tokens=False) for token in ids} <= known
            assert tokenizer.decode(ids, skip_special_tokens=False) == one["content"]
