"""What a row of an evaluation keeps of its trajectory's texts."""

from __future__ import annotations

import pytest

from engine.serving.evaluation.results import cut_texts

pytestmark = pytest.mark.quick


def segments(*lengths: int) -> list[dict[str, str]]:
    return [{"author": f"a{n}", "text": str(n) * length} for n, length in enumerate(lengths)]


def joined(found: list[dict[str, str]]) -> str:
    return "".join(one["text"] for one in found)


@pytest.mark.parametrize("lengths", [(), (0,), (4, 6), (10,), (1, 0, 9)])
def test_what_fits_stays(lengths: tuple[int, ...]) -> None:
    assert cut_texts(segments(*lengths), 10) == segments(*lengths)


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((11,), "00000[1 characters left out]00000"),
        ((5, 6), "00000[1 characters left out]11111"),
        ((3, 100, 3), "00011[96 characters left out]11222"),
        ((1, 1, 50, 50), "01222[92 characters left out]33333"),
        ((4, 20, 20, 4), "00001[38 characters left out]23333"),
    ],
)
def test_beginning_and_end_stay_of_what_does_not(lengths: tuple[int, ...], text: str) -> None:
    found = cut_texts(segments(*lengths), 10)
    assert joined(found) == text
    names = [one["author"] for one in found]
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("a0", f"a{len(lengths) - 1}")
