"""The synthetic encyclopedia: what is asked stands in the passages, and held-out names stay out."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from engine.core.tasks.rows import read_task
from tasks.worlds.encyclopedia import (
    Encyclopedia,
    Question,
    Shape,
    is_held_out,
    passages,
    questions,
)
from tasks.worlds.names import PIECES, draw_names, most
from tasks.worlds.relations import KINDS, RELATIONS, WORDINGS

SMALL = Shape(people=60, towns=30, companies=30, rivers=12)


@pytest.fixture(scope="module")
def book() -> Encyclopedia:
    return Encyclopedia(3, SMALL)


@pytest.fixture(scope="module")
def articles(book: Encyclopedia) -> dict[str, str]:
    """Text by title."""
    found = (passage["contents"].partition("\n") for passage in book.passages())
    return {title.strip('"'): text for title, _, text in found}


@pytest.fixture(scope="module")
def asked(book: Encyclopedia) -> list[Question]:
    return [*book.questions("train"), *book.questions("heldout")]


def says(text: str, subject: str, relation: str, value: str) -> bool:
    one = RELATIONS[relation]
    forms = [*one.sentences, one.since] if one.since else one.sentences
    wordings = (re.escape(form.format(x=subject, y=value, year="YEAR")) for form in forms)
    return any(re.search(wording.replace("YEAR", r"\d{4}"), text) for wording in wordings)


def test_the_seed_decides_and_nothing_else() -> None:
    first = list(passages(5, SMALL)), list(questions("train", 5, SMALL))
    random.seed(0)
    list(questions("heldout", 5, SMALL))
    assert (list(passages(5, SMALL)), list(questions("train", 5, SMALL))) == first
    assert list(passages(6, SMALL)) != first[0]


def test_questions_of_one_split_do_not_depend_on_what_was_asked_before(book: Encyclopedia) -> None:
    alone = list(Encyclopedia(3, SMALL).questions("heldout"))
    list(book.passages())
    assert list(book.questions("heldout")) == alone


def test_the_corpus_has_the_layout_that_indexes_are_built_from(articles: dict[str, str]) -> None:
    found = list(passages(3, SMALL))
    assert [one["id"] for one in found] == [str(number) for number in range(len(found))]
    for one in found:
        assert set(one) == {"id", "contents"}
        assert re.fullmatch(r'"[^"\n]+"\n[^\n]+', one["contents"])
    assert len(articles) == len(found), "titles differ"
    assert not any(re.search(r"[{}]", text) for text in articles.values())


def test_every_hop_stands_in_the_article_of_its_subject(
    asked: list[Question], articles: dict[str, str]
) -> None:
    for question in asked:
        if question.path[0].startswith("whose"):
            continue
        ways = zip(question.chain[:-1], question.path, question.chain[1:], strict=True)
        for subject, relation, value in ways:
            assert says(articles[subject], subject, relation, value), question
        assert question.answers[0] == question.chain[-1]


def test_all_right_answers_are_known(
    book: Encyclopedia, asked: list[Question], articles: dict[str, str]
) -> None:
    several = [one for one in asked if one.path[0].startswith("whose")]
    assert several
    for question in several:
        relation, value = question.path[0].removeprefix("whose "), question.chain[0]
        having = {
            name
            for name in book.entities[RELATIONS[relation].of]
            if book.fact(name, relation).value == value
        }
        assert having == set(question.chain[1:])
        assert having <= set(question.answers)
        assert all(says(articles[name], name, relation, value) for name in having)
    renamed = [one for one in asked if len(one.answers) == 2 and one not in several]
    for question in renamed:
        name, other = question.answers
        assert f"{name} is also called {other}." in articles[name]


def test_training_has_nothing_to_do_with_what_is_held_out(book: Encyclopedia) -> None:
    entities = {name for names in book.entities.values() for name in names}
    held_out = {name for name in entities if is_held_out(name)}
    assert 0.1 < len(held_out) / len(entities) < 0.3
    for question in book.questions("train"):
        assert held_out.isdisjoint(question.chain)
        for name in held_out:
            assert name not in question.text
    for question in book.questions("heldout"):
        assert question.chain[0] in held_out


def test_no_question_stands_twice_or_answers_itself(asked: list[Question]) -> None:
    assert len({one.text for one in asked}) > 0.95 * len(asked)
    assert not any(one.chain[0] in one.chain[1:] for one in asked)
    ids = Counter(one.id for one in asked)
    assert max(ids.values()) == 1


def test_a_row_tells_all_but_the_way_to_the_answer(asked: list[Question]) -> None:
    for question in asked[:500]:
        row = question.row()
        assert read_task(json.loads(json.dumps(row)), name="n", data_source="") is not None
        assert row["answer"] == list(question.answers)
        assert not set(question.chain) & {*map(str, row["metadata"].values())}


def test_hops_are_those_that_are_asked_for(book: Encyclopedia) -> None:
    for hops in (1, 2, 3):
        found = list(book.questions("train", (hops,)))
        assert found
        assert {one.hops for one in found} == {hops}
        wordings = {one.wording for one in found if not one.path[0].startswith("whose")}
        assert wordings == set(range(WORDINGS))
    assert all(len(one.chain) == one.hops + 1 for one in book.questions("train", (2, 3)))


def test_an_older_statement_is_marked_and_the_newer_one_is_right(
    book: Encyclopedia, asked: list[Question], articles: dict[str, str]
) -> None:
    changed = 0
    for name in (name for names in book.entities.values() for name in names):
        for relation in SMALL.told:
            if name not in book.entities[relation.of]:
                continue
            fact = book.fact(name, relation.name)
            if not fact.before:
                continue
            changed += 1
            assert fact.before != fact.value
            assert fact.then < fact.since
            older = articles[f"{name} (almanac of {fact.then})"]
            assert older == relation.before.format(x=name, y=fact.before, year=fact.then)
            newer = relation.since.format(x=name, y=fact.value, year=fact.since)
            assert newer in articles[name]
    assert changed > 5
    for question in asked:
        if question.changed and question.hops == 1 and not question.path[0].startswith("whose"):
            fact = book.fact(question.chain[0], question.path[0])
            assert fact.before not in question.answers
    assert any(one.changed for one in asked)


def test_names_have_namesakes_and_none_has_two_owners(book: Encyclopedia) -> None:
    names = [name for some in book.entities.values() for name in some]
    names += book.other_names.values()
    assert len(set(names)) == len(names)
    people = book.entities["person"]
    alike = sum(bool({*a.split()} & {*b.split()}) for a, b in combinations(people, 2))
    assert alike > len(people)


def test_pieces_are_told_apart() -> None:
    for first, second in PIECES.values():
        names = [one + other for one in first for other in second]
        assert len(set(names)) == len(names)
    every = [
        {one + other for one in first for other in second} for first, second in PIECES.values()
    ]
    assert all(a.isdisjoint(b) for a, b in combinations(every, 2))


def test_notes_say_all_and_nothing_more() -> None:
    shape = Shape(
        people=20, towns=10, companies=10, rivers=6, relations=("birthplace", "river"), notes=True
    )
    book = Encyclopedia(1, shape)
    found = {one["contents"].splitlines()[1] for one in book.passages()}
    town, person = book.entities["town"][0], book.entities["person"][0]
    assert f"{town}: on the {book.fact(town, 'river').value}." in found
    assert f"{person}: born in {book.fact(person, 'birthplace').value}." in found
    assert len(found) == 30, "nothing is told of rivers and companies"
    assert not book.other_names
    assert not any(one.changed or len(one.answers) > 1 for one in book.questions("train"))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"relations": ("birthplace", "hobby")}, "hobby"),
        ({"wordings": 0}, "wordings"),
        ({"wordings": 99}, "wordings"),
        ({"towns": 1}, "town"),
        ({"rivers": -3}, "river"),
    ],
)
def test_a_shape_that_cannot_be_is_named(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Shape(**settings)


def test_more_entities_than_names_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 240"):
        Encyclopedia(1, Shape(towns=241))
    draw = random.Random(1)
    assert len(draw_names("town", most("town"), draw)) == 240


def test_wrong_splits_and_hops_are_named(book: Encyclopedia) -> None:
    with pytest.raises(ValueError, match="'test'"):
        list(book.questions("test"))  # type: ignore[arg-type]
    for hops in ((), (0,), (1, 4)):
        with pytest.raises(ValueError, match="hops"):
            list(book.questions("train", hops))


def test_relations_lead_where_they_say() -> None:
    for relation in RELATIONS.values():
        assert relation.of in KINDS
        assert len(relation.sentences) == len(relation.questions) == WORDINGS
        assert bool(relation.to) != bool(relation.values)
        assert bool(relation.to) == bool(relation.phrases)
        assert bool(relation.before) == bool(relation.since)
        for text in (*relation.sentences, relation.note):
            assert "{y}" in text
        for text in (*relation.questions, *relation.phrases):
            assert text.count("{x}") == 1
            assert "{y}" not in text
