"""Admission and staleness as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.admission.capacity import staleness, staleness_room
from toolwright.types import WeightVersion


def v(lineage: str, step: int) -> WeightVersion:
    return WeightVersion(lineage=lineage, step=step)


COUNTS = st.integers(0, 1000)


@given(eta=st.integers(0, 5), version=COUNTS, batch=st.integers(1, 64), accepted=COUNTS)
def test_what_is_admitted_is_never_older_than_eta(
    eta: int, version: int, batch: int, accepted: int
) -> None:
    """A trajectory admitted as number n trains at step n // batch at the latest."""
    room = staleness_room(eta=eta, version=version, batch=batch, accepted=accepted, running=0)
    last = accepted + room - 1
    assert last // batch - version == eta


def test_strangers_have_no_staleness() -> None:
    with pytest.raises(ValueError, match=r"x\.1 and a\.1 have no common ancestor"):
        staleness(v("a", 1), v("x", 1), {"b": v("a", 0)})


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, WeightVersion], list[WeightVersion]]:
    """A tree of lineages, and versions anywhere in it."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    forks: dict[str, WeightVersion] = {}
    for i, name in enumerate(names[1:], 1):
        parent = names[draw(st.integers(0, i - 1))]
        base = forks[parent].step if parent in forks else 0
        forks[name] = v(parent, base + draw(st.integers(0, 4)))
    versions = []
    for _ in range(3):
        name = draw(st.sampled_from(names))
        base = forks[name].step if name in forks else 0
        versions.append(v(name, base + draw(st.integers(0, 6))))
    return forks, versions


def path_to_root(version: WeightVersion, forks: dict[str, WeightVersion]) -> list[tuple[str, int]]:
    """Every optimizer step on the way, newest first; a fork's first step is its parent's."""
    path = []
    while version.lineage in forks:
        parent = forks[version.lineage]
        path += [(version.lineage, s) for s in range(version.step, parent.step, -1)]
        version = parent
    return path + [(version.lineage, s) for s in range(version.step, 0, -1)]


@given(histories())
def test_staleness_is_the_distance_in_the_tree_of_steps(
    history: tuple[dict[str, WeightVersion], list[WeightVersion]],
) -> None:
    forks, (a, b, c) = history

    def between(one: WeightVersion, other: WeightVersion) -> int:
        return staleness(one, other, forks)

    steps_a, steps_b = set(path_to_root(a, forks)), set(path_to_root(b, forks))
    assert between(a, b) == len(steps_a ^ steps_b)
    assert between(a, a) == 0
    assert between(a, b) == between(b, a)
    assert between(a, c) <= between(a, b) + between(b, c)
