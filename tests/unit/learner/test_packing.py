"""Rows into micro-batches: nothing lost, nothing doubled, nothing over the budget, little left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from learner.training.packing import fill, plan, share

LENGTHS = st.lists(st.integers(1, 40), max_size=40)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 100))
def test_every_row_is_in_one_micro_batch_of_one_rank(
    lengths: list[int], ranks: int, budget: int
) -> None:
    plans = plan(lengths, ranks, budget)
    assert sorted(i for parts in plans for part in parts for i in part) == list(range(len(lengths)))
    assert len(plans) == ranks
    assert len({len(parts) for parts in plans}) == 1, "all ranks meet in every micro-batch"
    assert plans[0], "a rank without rows takes part"
    for parts in plans:
        sizes = [sum(lengths[i] for i in part) for part in parts]
        assert all(
            size <= budget or len(part) == 1 for size, part in zip(sizes, parts, strict=True)
        )
        assert sizes == sorted(sizes, reverse=True), "what does not fit shows at the start"


@given(LENGTHS, st.integers(1, 5))
def test_ranks_differ_by_one_row_at_most(lengths: list[int], ranks: int) -> None:
    tokens = [sum(lengths[i] for i in mine) for mine in share(lengths, ranks)]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)


@given(LENGTHS, st.integers(40, 100))
def test_micro_batches_are_filled(lengths: list[int], budget: int) -> None:
    """No two of them would fit into one."""
    sizes = sorted(
        sum(lengths[i] for i in part) for part in fill(lengths, range(len(lengths)), budget)
    )
    assert len(sizes) < 2 or sizes[0] + sizes[1] > budget
