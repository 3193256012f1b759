"""The atlas: its questions are answered by its passages, and its splits are apart."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tasks.judging.words import normalise
from tasks.worlds import SPLITS, WORLDS
from tasks.worlds.atlas import countries, passages, questions

BY_TITLE = {
    title.strip('"'): text
    for title, _, text in (passage["contents"].partition("\n") for passage in passages(0))
}


def test_it_is_the_same_for_a_seed() -> None:
    assert "atlas" in WORLDS
    assert list(passages(3)) == list(passages(3))
    assert list(passages(3)) != list(passages(4))
    for split in SPLITS:
        assert list(questions(split, 3)) == list(questions(split, 3))
        assert list(questions(split, 3)) != list(questions(split, 4))
    with pytest.raises(ValueError, match="heldout"):
        next(questions("test", 0))


def test_passages_are_as_search_r1_has_them() -> None:
    found = list(passages(0))
    assert [passage["id"] for passage in found] == [f"{n}" for n in range(len(found))]
    assert all(re.match(r'"[^"\n]+"\n\S', passage["contents"]) for passage in found)
    assert len(found) > 900


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_stands_in_a_passage_of_its_country(split: str) -> None:
    told = {name: f" {normalise(' '.join(texts))} " for name, texts in by_country().items()}
    names = {code: country.name for code, country in countries().items()}
    found = list(questions(split, 0))
    assert len({record.id for record in found}) == len(found) > 300
    assert {record.extra["hops"] for record in found} == {1, 2}
    for record in found:
        code = record.id.removeprefix(f"atlas-{record.extra['relation']}-")[:2]
        for answer in record.answer:
            assert f" {normalise(answer)} " in told[names[code]], record
        assert record.task == "qa"
        assert record.split == split


def test_an_answer_of_two_hops_is_found_by_reading_two_passages() -> None:
    pattern = re.compile(r"What is the capital of the country that borders both (.+)\?")
    borders = {
        title: found[1]
        for title, text in BY_TITLE.items()
        if (found := re.search(r"It borders (.*)\.$", text))
    }
    capital_of = {
        found[1]: title
        for title, text in BY_TITLE.items()
        if (found := re.search(r"It is the capital of (.*)\.$", text))
    }
    seen = 0
    for record in questions("heldout", 0):
        asked = pattern.fullmatch(record.question)
        if asked is None:
            continue
        words = asked[1].split(" and ")
        halves = [(" and ".join(words[:n]), " and ".join(words[n:])) for n in range(1, len(words))]
        (pair,) = [pair for pair in halves if set(pair) <= set(borders)]
        found = [
            capital_of[name]
            for name, listed in borders.items()
            if all(
                re.search(rf"(^|, | and ){re.escape(near)}(, | and |$)", listed) for near in pair
            )
        ]
        assert found == [record.answer[0]], record
        seen += 1
    assert seen > 20


def test_no_passage_alone_answers_a_question_of_two_hops() -> None:
    texts = [normalise(passage["contents"]) for passage in passages(0)]
    for record in questions("heldout", 0):
        if record.extra["hops"] == 1 or not record.extra["relation"].startswith("border"):
            continue
        between = re.search(r"borders both (.+)\?", record.question)
        assert between
        words = set(normalise(between[1]).split()) - {"and"}
        answers = [f" {normalise(answer)} " for answer in record.answer]
        for text in texts:
            if words <= set(text.split()):
                assert not any(answer in f" {text} " for answer in answers), (record, text)


def test_no_country_is_asked_for_in_both_splits() -> None:
    own = defaultdict(set)
    for split in SPLITS:
        for record in questions(split, 0):
            if not record.extra["relation"].startswith("border"):
                own[split].add(record.id[-2:])
            else:
                relation = record.extra["relation"]
                own[split].add(record.id.removeprefix(f"atlas-{relation}-")[:2])
    assert own["train"].isdisjoint(own["heldout"])
    assert 0.15 < len(own["heldout"]) / len(own["train"] | own["heldout"]) < 0.25


def by_country() -> dict[str, list[str]]:
    """The passages that are about each country, its capital's too."""
    found = defaultdict(list)
    for passage in passages(0):
        title, _, text = passage["contents"].partition("\n")
        capital = re.search(r"It is the capital of (.*)\.$", text)
        about = capital[1] if capital else title.strip('"').rpartition(": ")[2]
        found[about].append(text)
    return found
