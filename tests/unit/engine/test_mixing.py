"""Every batch has each task's groups, whatever becomes of single ones."""

from __future__ import annotations

import random

import pytest

from engine.serving.admission.mixing import Mixture

THREE = {"math": 4, "sql": 3, "visual": 1}


def test_positions_of_tasks_never_meet() -> None:
    mixture = Mixture(THREE)
    every = [mixture.position(name, own) for own in range(50) for name in THREE]
    assert every == list(range(150))
    assert [mixture.task_of(place) for place in (0, 1, 2, 5)] == [
        ("math", 0), ("sql", 0), ("visual", 0), ("visual", 1)
    ]  # fmt: skip


def test_one_task_has_its_source_s_positions_and_waits_for_nobody() -> None:
    mixture = Mixture({"": 2})
    assert [mixture.position("", own) for own in range(3)] == [0, 1, 2]
    assert [mixture.admit() for _ in range(5)] == [""] * 5
    assert all(mixture.reserve("") for _ in range(5))  # none of them is stored yet


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ahead", [1, 3])
def test_every_batch_is_exact_and_none_waits_for_ever(seed: int, ahead: int) -> None:
    """Groups end in any order, some come to nothing, the engine is killed now and then."""
    draw = random.Random(seed)
    stored: list[str] = []
    flying: list[str] = []
    batch = sum(THREE.values())
    mixture = Mixture(THREE)
    for _ in range(4000):
        if len(stored) >= 10 * batch:
            break
        bound = (len(stored) // batch + ahead) * batch
        if len(stored) + len(flying) < bound:
            flying.append(mixture.admit())
            continue
        draw.shuffle(flying)
        if draw.random() < 0.01:  # in flight goes on by its log, admitted anew
            positions = [mixture.position(name, own) for own, name in enumerate(stored)]
            mixture = Mixture(THREE)
            mixture.resume(positions)
            flying = []
        elif draw.random() < 0.2:
            mixture.give_back(flying.pop())
        else:
            name = next(one for one in flying if mixture.reserve(one))  # one of them always can
            flying.remove(name)
            if draw.random() < 0.2:
                mixture.release(name)
            else:
                mixture.store()
                stored.append(name)
    assert len(stored) == 10 * batch
    for start in range(0, len(stored), batch):
        whole = stored[start : start + batch]
        assert {name: whole.count(name) for name in THREE} == THREE
