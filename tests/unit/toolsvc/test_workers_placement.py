"""Rendezvous hashing: who gets a session, what moves when workers come and go, and where a session
may be that was opened under an older view."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.workers.placement import Member, View, score, share

SLOTS = st.sets(st.integers(0, 31), min_size=1, max_size=8)
NAMES = st.text(max_size=40)


def member(slot: int, joined: int = 1) -> Member:
    return Member(slot=slot, joined=joined, endpoint=f"h:{slot}", link=f"unix:{slot}.{joined}")


def view(slots: set[int], epoch: int = 1) -> View:
    return View(epoch=epoch, members=tuple(map(member, slots)))


@given(NAMES, SLOTS)
def test_the_order_of_members_does_not_matter(name: str, slots: set[int]) -> None:
    forward = View(epoch=1, members=tuple(map(member, sorted(slots))))
    backward = View(epoch=1, members=forward.members[::-1])
    assert forward.target(name) == backward.target(name)


@given(NAMES, SLOTS, st.integers(0, 31))
def test_a_worker_that_joins_takes_sessions_only_to_itself(
    name: str, slots: set[int], new: int
) -> None:
    before, after = view(slots).target(name), view(slots | {new}).target(name)
    assert after.slot in (before.slot, new)


@given(NAMES, SLOTS, st.data())
def test_a_worker_that_leaves_moves_only_its_own(
    name: str, slots: set[int], data: st.DataObject
) -> None:
    if len(slots) == 1:
        return
    gone = data.draw(st.sampled_from(sorted(slots)))
    before = view(slots).target(name)
    if before.slot != gone:
        assert view(slots - {gone}).target(name) == before


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_shares_are_even(workers: int) -> None:
    everyone = view(set(range(workers)))
    counts = Counter(everyone.target(f"trajectory-{n}/0").slot for n in range(4096))
    assert len(counts) == workers
    assert max(counts.values()) <= share(4096, workers)


def test_scores_are_the_same_in_every_process() -> None:
    """Computed once and written down: processes of two releases may serve side by side."""
    assert score("g0000000-1/b1r0a0", 0).hex() == "ebade3c8a557fe87"
    assert score("g0000000-1/b1r0a0", 1).hex() == "840e972b2faf6d9d"


@given(st.integers(1, 5000), st.integers(1, 16))
def test_shares_hold_the_total(total: int, workers: int) -> None:
    assert total <= workers * share(total, workers)
    assert share(total, workers) <= total
    assert share(total, 1) == total


CHANGES = st.lists(
    st.tuples(st.sampled_from(["die", "start", "open"]), st.integers(0, 3)), max_size=40
)


@given(CHANGES)
def test_a_session_is_at_its_target_or_at_one_of_the_elders(changes: list[tuple[str, int]]) -> None:
    """Whatever dies and is replaced, in whatever order: target and elders are enough to find it."""
    epoch = 1
    living = {slot: member(slot, 1) for slot in range(4)}
    at: dict[str, Member] = {}
    for number, (what, slot) in enumerate(changes):
        if what == "die" and slot in living:
            gone = living.pop(slot)
            epoch += 1
            at = {name: where for name, where in at.items() if where != gone}
        elif what == "start" and slot not in living:
            epoch += 1
            living[slot] = member(slot, epoch)
        elif what == "open" and living:
            now = View(epoch=epoch, members=tuple(living.values()))
            at[f"session-{number}"] = now.target(f"session-{number}")
        if not living:
            continue
        now = View(epoch=epoch, members=tuple(living.values()))
        for name, where in at.items():
            assert where in (now.target(name), *now.elders(name))


def test_nobody_is_asked_where_nothing_changed() -> None:
    everyone = view({0, 1, 2})
    assert not any(everyone.elders(f"s{n}") for n in range(100))
