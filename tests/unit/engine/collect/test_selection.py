"""Which trajectories of one task stay."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.offline.collect.selection import (
    Candidate,
    Totals,
    mark_of,
    select,
)
from engine.offline.collect.selection import SelectionOutcome as Outcome
from toolwright.types import ids


def candidate(mark: str = "a", **fields: Any) -> Candidate:
    return Candidate(**{"errored": False, "masked": False, "mark": mark, **fields})


def test_each_reason_in_its_order() -> None:
    candidates = [
        candidate("a", errored=True, masked=True),
        candidate("a", reward_failed=True, masked=True),
        candidate("a", masked=True, refused_by=("right",)),
        candidate("a", refused_by=("right", "short")),
        candidate("a"),
        candidate("a"),
        candidate("old"),
        candidate("b"),
        candidate("c"),
    ]
    assert select(candidates, {"old"}, 2) == [
        Outcome.ERRORED, Outcome.REWARD_FAILED, Outcome.MASKED, Outcome.FILTERED, Outcome.KEPT,
        Outcome.DUPLICATE, Outcome.DUPLICATE, Outcome.KEPT, Outcome.OVER_CAP,
    ]  # fmt: skip


def test_without_a_cap_all_that_differ_stay() -> None:
    found = select([candidate(str(number)) for number in range(50)], set(), None)
    assert set(found) == {Outcome.KEPT}


@given(
    st.lists(
        st.builds(
            Candidate,
            errored=st.booleans(),
            masked=st.booleans(),
            refused_by=st.sampled_from([(), ("right",), ("right", "short")]),
            mark=st.sampled_from("abcd"),
        )
    ),
    st.sets(st.sampled_from("abcd")),
    st.none() | st.integers(1, 3),
)
def test_what_stays_is_new_distinct_wanted_and_within_the_cap(
    candidates: list[Candidate], seen: set[str], most: int | None
) -> None:
    verdicts = select(candidates, seen, most)
    kept = [c for c, v in zip(candidates, verdicts, strict=True) if v is Outcome.KEPT]
    assert all(not c.refused_by and not c.errored and not c.masked for c in kept)
    assert len({c.mark for c in kept}) == len(kept)
    assert not seen & {c.mark for c in kept}
    assert most is None or len(kept) <= most


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(
                    st.booleans(),
                    st.booleans(),
                    st.sets(st.sampled_from(["right", "short", "clean"])).map(
                        lambda found: tuple(sorted(found))
                    ),
                    st.sampled_from("abcd"),
                ),
                max_size=6,
            ),
            st.integers(1, 3),
        )
    )
)
def test_counts_add_up(tasks: list[Any]) -> None:
    totals, alone = Totals(), 0
    for members, most in tasks:
        candidates = [
            Candidate(errored=e, masked=m, refused_by=by, mark=mark) for e, m, by, mark in members
        ]
        verdicts = select(candidates, set(), most)
        refused = [
            c.refused_by for c, v in zip(candidates, verdicts, strict=True) if v is Outcome.FILTERED
        ]
        alone += sum(len(by) == 1 for by in refused)
        totals.enter(
            {
                "verdicts": [str(v) for v in verdicts],
                "refused": refused,
                "untold": {},
                "read": 2,
                "written": 1,
                "seconds": 1.0,
                "bad": "",
            }
        )
    counts = totals.outcomes
    others = ("kept", "errored", "masked", "duplicate", "over_the_cap")
    assert totals.rolled_out == sum(len(members) for members, _ in tasks)
    assert totals.rolled_out == totals.refused_first.total() + sum(counts[o] for o in others)
    assert totals.refused_alone.total() == alone
    assert all(totals.refused[n] >= totals.refused_first[n] for n in totals.refused_first)
    assert totals.read == 2 * totals.written == 2 * len(tasks)


def test_marks_tell_prompts_and_actions_apart() -> None:
    prompt = ids([1, 2])
    same = mark_of(prompt, ["a", "b"])
    assert mark_of(ids([1, 2]), ["a", "b"]) == same
    others = [
        mark_of(prompt, ["ab"]), mark_of(prompt, ["a", "b", ""]), mark_of(prompt, ["b", "a"]),
        mark_of(ids([1, 3]), ["a", "b"]), mark_of(prompt, []),
    ]  # fmt: skip
    assert len({same, *others}) == 6


def test_half_a_surrogate_pair_has_a_mark() -> None:
    assert mark_of(ids([1]), ["\ud800"])
