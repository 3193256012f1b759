"""Runs of tensors within a bound, drawn no faster than they are taken."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from learner.saving.buckets import Named, buckets


def tensors(*sizes: int) -> Iterator[Named]:
    """Of so many bytes each."""
    for number, size in enumerate(sizes):
        yield f"t{number}", torch.zeros(size, dtype=torch.uint8)


def names(found: Iterator[list[Named]]) -> list[list[str]]:
    return [[name for name, _ in bucket] for bucket in found]


def test_a_bucket_is_full_to_the_last_byte() -> None:
    """A tensor beyond the bound travels alone."""
    assert names(buckets(tensors(4, 6, 1, 9), 10)) == [["t0", "t1"], ["t2", "t3"]]
    assert names(buckets(tensors(3, 50, 3, 3), 10)) == [["t0"], ["t1"], ["t2", "t3"]]


def test_an_empty_tensor_takes_no_room_and_is_not_lost() -> None:
    assert names(buckets(tensors(10, 0, 1), 10)) == [["t0", "t1"], ["t2"]]
    assert names(buckets(tensors(), 10)) == []


def test_a_name_that_comes_again_is_passed_over() -> None:
    """The last stage exports its copy of a tied embedding under the embedding's name."""
    again = ("t0", torch.ones(4, dtype=torch.uint8))
    found = [pair for bucket in buckets([*tensors(4, 4), again], 4) for pair in bucket]
    assert [name for name, _ in found] == ["t0", "t1"]
    assert not found[0][1].any()


def test_no_more_than_a_bucket_and_a_tensor_is_drawn_ahead() -> None:
    drawn = 0

    def counted() -> Iterator[Named]:
        nonlocal drawn
        for pair in tensors(*[5] * 8):
            drawn += 1
            yield pair

    for taken, _bucket in enumerate(buckets(counted(), 10), start=1):
        assert drawn <= 2 * taken + 1
    assert drawn == 8
