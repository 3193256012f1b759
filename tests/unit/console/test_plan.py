"""What is made before a run, in which order, and what is said where nobody can make it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.asked.plan import Maker, Need, plan, unread
from console.errors import NothingStarted

POLICY, BASE, ROWS, DATA = map(Path, ("/warm", "/untrained", "/rows.jsonl", "/rows.trajectories"))


def need(path: Path, key: str = "key") -> Need:
    return Need(key=key, path=path)


def prepare(makes: Path, *reads: Path) -> Maker:
    return Maker(kind="prepare", name=makes.name, makes=makes, needs=tuple(map(need, reads)))


RENDER = Maker(
    kind="render", name="render", makes=DATA,
    needs=(need(ROWS, "render.conversations"), need(BASE, "render.model")),
)  # fmt: skip
SFT = Maker(
    kind="sft", name="sft", makes=POLICY, needs=(need(DATA, "sft.data"), need(BASE, "sft.model"))
)
ALL = (prepare(BASE), prepare(ROWS), RENDER, SFT)
GOAL = need(POLICY, "policy.model")


def planned(makers: Iterable[Maker], *there: Path, goals: Iterable[Need] = (GOAL,)) -> list[Path]:
    return [maker.makes for maker in plan(goals, tuple(makers), lambda path: path in there)]


def test_prepared_things_come_first_in_the_recipes_order() -> None:
    late = prepare(Path("/database"))
    goals = (GOAL, *unread((*ALL, late), [GOAL]))
    assert planned((*ALL, late), goals=goals) == [BASE, ROWS, late.makes, DATA, POLICY]


def test_what_is_made_when_it_is_read_waits_for_a_key() -> None:
    rows = replace(prepare(Path("/rows")), when_read=True)
    assert not unread((*ALL, rows), [GOAL])
    assert planned((*ALL, rows), goals=[need(rows.makes)]) == [rows.makes]


@pytest.mark.parametrize(
    ("makers", "key", "path", "says"),
    [
        ((), "policy.model", POLICY, r"policy.model = /warm is missing.*console.prepare"),
        ((RENDER,), "render.x", ROWS, r"put it there"),
        ((SFT,), "policy.model", Path("/hot"), r"what \[sft\] makes, /warm"),
        ((SFT,), "policy.model", Path("/x/warm"), r"correct the path: \[sft\] makes /warm"),
        ((SFT, prepare(BASE)), "policy.model", POLICY, r"sft.data = .*\[render\] output"),
        ((SFT, RENDER), "policy.model", POLICY, r"render.conversations = /rows.jsonl is missing"),
        ((prepare(BASE), prepare(BASE)), "policy.model", BASE, r"both make /untrained"),
    ],
)
def test_what_nobody_makes_is_one_sentence(
    makers: tuple[Maker, ...], key: str, path: Path, says: str
) -> None:
    with pytest.raises(NothingStarted, match=says) as caught:
        planned(makers, goals=[need(path, key)])
    assert "\n" not in str(caught.value)
    assert caught.value.status == 2


def test_imitation_that_begins_with_what_it_makes_is_a_circle() -> None:
    sft = Maker(kind="sft", name="sft", makes=POLICY, needs=(need(POLICY, "sft.model"),))
    with pytest.raises(NothingStarted, match=r"sft.model = /warm is missing, and \[sft\] would"):
        planned([sft])
    assert planned([sft], POLICY) == []


def test_a_circle_of_several_names_all_of_them() -> None:
    one, two = prepare(Path("/1"), Path("/2")), prepare(Path("/2"), Path("/1"))
    with pytest.raises(NothingStarted, match=r"'1' and \[\[console.prepare\]\] '2'"):
        planned([one, two], goals=[need(Path("/1"))])


PATHS = [Path(f"/{letter}") for letter in "abcdef"]


@given(
    edges=st.sets(st.sampled_from(list(itertools.combinations(PATHS, 2)))),
    there=st.sets(st.sampled_from(PATHS)),
    wanted=st.sets(st.sampled_from(PATHS), min_size=1),
    order=st.permutations(PATHS),
)
def test_any_plan_makes_what_is_missing_once_and_after_what_it_reads(
    edges: set[tuple[Path, Path]], there: set[Path], wanted: set[Path], order: list[Path]
) -> None:
    reads = {path: [right for left, right in edges if left == path] for path in PATHS}
    makers = [prepare(path, *reads[path]) for path in order]
    found = planned(makers, *there, goals=map(need, sorted(wanted)))
    assert len(set(found)) == len(found)
    assert not there & set(found)
    assert wanted <= there | set(found)
    for number, path in enumerate(found):
        assert set(reads[path]) <= there | set(found[:number])
