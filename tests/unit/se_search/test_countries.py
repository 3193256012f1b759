"""Countries for a pretrained model: held-out ones stay so, demonstrations show what is true."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from tasks.worlds import atlas
from toolwright.imports import load_file

FOLDER = Path(__file__).resolve().parents[3] / "recipes/se_search/countries"
COUNT = 300


@pytest.fixture(scope="module")
def questions() -> ModuleType:
    return load_file(FOLDER / "questions.py")


@pytest.fixture(scope="module")
def conversations() -> ModuleType:
    return load_file(FOLDER / "conversations.py")


@pytest.fixture(scope="module")
def shown(conversations: ModuleType) -> list[list[dict[str, str]]]:
    return list(islice(conversations.conversations(1), COUNT))


def test_easy_and_hard_take_turns_without_end(questions: ModuleType) -> None:
    first = list(islice(questions.training(3), 2000))
    assert [one.data_source for one in first[:4]] == ["easy", "hard", "easy", "hard"]
    assert len({one.id for one in first}) == 2000
    assert list(islice(questions.training(3), 2000)) == first
    assert list(islice(questions.training(4), 2000)) != first


def test_a_held_out_question_is_never_trained_on(questions: ModuleType) -> None:
    trained = {one.prompt for one in islice(questions.training(1), 4000)}
    for stream in (questions.easy, questions.hard):
        assert not trained & {one.prompt for one in islice(stream(1), 400)}


def test_what_is_noted_and_answered_was_found(shown: list[list[dict[str, str]]]) -> None:
    for messages in shown:
        found = ""
        for message in messages[1:]:
            if message["role"] == "tool":
                found += message["content"]
                continue
            for note in re.findall("<memory>(.*)</memory>", message["content"]):
                names = re.split(
                    " is the capital of | is the | is | borders | and |the currency of ", note
                )
                assert all(name in found for name in names), (note, found)


def test_no_fact_about_a_held_out_country_is_demonstrated(
    shown: list[list[dict[str, str]]], conversations: ModuleType
) -> None:
    held_out = {conversations.about(record) for record in atlas.questions("heldout", 1)}
    written = "\n".join(
        message["content"]
        for messages in shown
        for message in messages
        if message["role"] == "assistant"
    )
    assert len(held_out) > 40
    for code in held_out:
        country = atlas.countries()[code]
        for what in ("capital", "currency", "code"):
            assert conversations.search(what, country).note not in written


def test_the_demonstrator_has_the_faults_that_reward_is_to_fix(
    shown: list[list[dict[str, str]]],
) -> None:
    golds = {one.question: one.answer for one in atlas.questions("train", 1)}
    right = needless = 0
    for messages in shown:
        searches = sum(message["role"] == "tool" for message in messages)
        needed = len(
            re.findall("capital of the|country that borders|country whose", messages[0]["content"])
        )
        answer = re.findall("<answer>(.*)</answer>$", messages[-1]["content"])
        right += answer[0] in golds[messages[0]["content"]]
        needless += searches > 1 + bool(needed)
    assert 0.5 * COUNT < right < 0.7 * COUNT
    assert 0.35 * COUNT < needless < 0.65 * COUNT


def test_every_relation_of_the_atlas_can_be_demonstrated(conversations: ModuleType) -> None:
    for record in atlas.questions("train", 1):
        assert len(conversations.looks(record)) == record.extra["hops"]


def test_one_line_a_conversation(conversations: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "demonstrations.jsonl"
    conversations.main(output=path, seed=1, count=7)
    rows = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == list(islice(conversations.conversations(1), 7))
