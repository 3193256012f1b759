"""The demonstration's world: true sums, held-out countries, its faults, its index."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer

from tasks.worlds import atlas
from tasks.worlds.encyclopedia import is_held_out
from tests.unit.deepsearch.conftest import FOLDER
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.index import SearchIndex, Sources
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.backends.search.types import Query
from toolwright.imports import load_file

WORLD = FOLDER / "world"
COUNT = 640


@pytest.fixture(scope="module")
def lands() -> Any:
    return load_file(WORLD / "lands.py").lands()


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(WORLD / "task.py")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(WORLD / "demonstrations.py")


@pytest.fixture(scope="module")
def shown(demonstrations: ModuleType) -> list[list[dict[str, str]]]:
    return list(islice(demonstrations.conversations(1), COUNT))


def sources(task: ModuleType) -> tuple[Any, ...]:
    return task.training, task.pairs, task.densities, task.borders


def named(text: str, lands: Any) -> list[str]:
    """The countries of a text, in its order; of two names in one place the longer."""
    longest = sorted(lands, key=len, reverse=True)
    return re.findall("|".join(map(re.escape, longest)), text)


def test_figures_are_those_of_the_atlas_in_thousands(lands: Any) -> None:
    known = {country.name: country for country in atlas.countries().values()}
    assert len(lands) > 140
    for name, land in lands.items():
        assert abs(1000 * land.area - known[name].area) <= 500
        assert abs(1000 * land.people - known[name].people) <= 500
        assert land.area >= 10 and land.people >= 1000
        assert name not in land.neighbours and set(land.neighbours) <= set(lands)


def reckoned(text: str, names: list[str], lands: Any) -> int:
    """By the words of the question, apart from the world's own way."""
    first, *rest = (lands[name] for name in names)
    every = [first, *(lands[name] for name in first.neighbours)]
    ahead = {
        "ahead of": lambda one: one.people,
        "more people live": lambda one: one.people,
        "of {a} than of": lambda one: one.people // one.area,
    }
    if "neighbours" in text:
        return sum(one.people if "people" in text else one.area for one in every)
    if not rest:
        return first.people // first.area
    if "together" in text or "one country" in text:
        return first.area + rest[0].area
    if "fit into" in text:
        return rest[0].area // first.area
    if "hold that of" in text:
        return first.area // rest[0].area
    counted = next((how for words, how in ahead.items() if words in text), None)
    counted = counted or ahead["of {a} than of"]
    return counted(first) - counted(rest[0])


def test_answers_are_what_the_questions_ask_for(task: ModuleType, lands: Any) -> None:
    wordings = set()
    for source in sources(task):
        for one in islice(source(5), 160):
            text = one.messages[0]["content"]
            names = named(text, lands)
            assert one.answers == (str(reckoned(text, names, lands)),), text
            assert int(one.answers[0]) > 0
            for name in names:
                text = text.replace(name, "")
            wordings.add(text)
    assert len(wordings) == sum(len(kind.wordings) for kind in task.KINDS)


def test_a_program_prints_what_is_computed(task: ModuleType, demonstrations: ModuleType) -> None:
    """Python itself says so, of questions of every sort and every operation."""
    import random

    draw = random.Random(3)
    invented = load_file(WORLD / "lands.py").invented(draw)
    for sort, signs in demonstrations.SIGNS.items():
        for _ in range(60):
            asked = demonstrations.draw_question(sort, invented, draw)
            for sign in signs:
                program = task.written(asked.terms, sign)
                assert eval(program) == task.result(asked.terms, sign), program
            assert asked.kind.sign in signs


def test_questions_depend_on_the_seed_alone_and_never_end(task: ModuleType) -> None:
    first = list(islice(task.training(3), 400))
    assert list(islice(task.training(3), 400)) == first
    assert list(islice(task.training(4), 400)) != first
    sorts = [one.data_source for one in first[:4]]
    assert sorts == ["pairs", "densities", "pairs", "borders"]
    assert len(list(islice(task.borders(1), 100))) == 100


def test_training_has_nothing_of_a_held_out_country(task: ModuleType, lands: Any) -> None:
    for one in islice(task.training(1), 1200):
        for name in named(one.messages[0]["content"], lands):
            assert not is_held_out(name)
            if one.data_source == "borders":
                assert not any(map(is_held_out, lands[name].neighbours))


@pytest.mark.parametrize(("name", "n"), [("pairs", 128), ("densities", 128), ("borders", 32)])
def test_held_out_questions_differ_and_are_about_held_out_countries(
    task: ModuleType, lands: Any, name: str, n: int
) -> None:
    asked = list(islice(getattr(task, name)(11), n))
    assert len({one.messages[0]["content"] for one in asked}) == n
    assert {one.data_source for one in asked} == {name}
    for one in asked:
        assert all(map(is_held_out, named(one.messages[0]["content"], lands)))


def test_no_tool_is_told_an_answer(task: ModuleType) -> None:
    for source in sources(task):
        assert all(one.metadata.keys() == {"sort"} for one in islice(source(1), 16))


def test_the_index_finds_what_is_looked_up(task: ModuleType, lands: Any, tmp_path: Path) -> None:
    """Each figure first, and the neighbours of every country whose neighbours are asked for."""
    corpus, index = tmp_path / "new/corpus.jsonl", tmp_path / "index"
    task.main(output=corpus)
    build(Order(corpus=corpus, folder=index, kind=IndexKind.BM25))
    facts = ("area", "people", "neighbours")
    looks = [
        (land, fact)
        for land in lands.values()
        for fact in facts
        if fact != "neighbours" or len(land.neighbours) <= task.MOST_NEIGHBOURS
    ]
    searching = SearchIndex(Sources(folder=index))
    queries = [Query(text=f"{fact} of {land.name}") for land, fact in looks]
    found = searching.search(queries, 2).hits
    for (land, fact), (first, *_) in zip(looks, found, strict=True):
        title, text = land.told(fact)
        assert first.passage.title.strip('"') == title
        assert first.passage.text == text


def test_the_demonstrator_has_the_faults_that_reward_is_to_fix(
    task: ModuleType, lands: Any, shown: list[list[dict[str, str]]]
) -> None:
    programs = right = looked_half = pairs = 0
    signs = {kind.wordings[n]: kind.sign for kind in task.KINDS for n in range(len(kind.wordings))}
    patterns = {
        re.escape(k).replace(r"\{a\}", ".+").replace(r"\{b\}", ".+"): signs[k] for k in signs
    }
    for number, messages in enumerate(shown):
        assert messages[-1]["content"].startswith("<answer>\\boxed{")
        program = [one["content"] for one in messages if one["content"].startswith("<python>")]
        programs += len(program)
        if number % 2:
            continue
        pairs += 1
        searches = sum(one["content"].startswith("<search>") for one in messages)
        looked_half += searches == 1
        sign = next(s for p, s in patterns.items() if re.fullmatch(p, messages[0]["content"]))
        right += searches == 2 and any(sign in one for one in program)
    assert 0.68 < programs / COUNT < 0.82
    assert 0.18 < looked_half / pairs < 0.32
    assert 0.12 < right / pairs < 0.26


def test_programs_and_answers_are_of_what_was_found(shown: list[list[dict[str, str]]]) -> None:
    for messages in shown:
        found = "\n".join(one["content"] for one in messages if one["role"] == "tool")
        for one in messages:
            if one["content"].startswith("<python>"):
                figures = re.findall(r"\d+", one["content"])
                assert all(re.search(rf"\b{figure}\b", found) for figure in figures)


def test_no_demonstration_tells_a_true_passage(
    lands: Any, shown: list[list[dict[str, str]]]
) -> None:
    true = {land.told(fact)[1] for land in lands.values() for fact in ("area", "people")}
    told = [
        line.partition(") ")[2]
        for messages in shown
        for one in messages
        if one["role"] == "tool"
        for line in one["content"].splitlines()
    ]
    assert sum(line in true for line in told) < 0.01 * len(told)


def test_write_is_one_conversation_a_line(demonstrations: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "d.jsonl"
    demonstrations.main(output=path, seed=1, count=10)
    rows = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == list(islice(demonstrations.conversations(1), 10))


def test_names_and_fixed_words_are_tokens(
    tmp_path: Path, shown: list[list[dict[str, str]]]
) -> None:
    policy = load_file(WORLD / "policy.py")
    policy.main(output=tmp_path, seed=1)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    known = {*policy.words(), *policy.TAGS, *"0123456789.?+-)}\n"}
    for messages in shown[:120]:
        for one in messages:
            ids = tokenizer.encode(one["content"]).ids
            assert {tokenizer.decode([token], skip_special_tokens=False) for token in ids} <= known
