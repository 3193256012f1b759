"""Rotary positions of rows with images."""

from __future__ import annotations

from learner.vision.placed import Image, PlacedImage, positions


def shown(start: int, rows: int, columns: int) -> PlacedImage:
    return PlacedImage(image=Image(sha256="", data=b"", grid=(rows, columns)), start=start)


def test_text_counts_on_in_all_three() -> None:
    assert positions(4, []).tolist() == [[0, 1, 2, 3]] * 3


def test_an_image_has_one_time_and_the_text_goes_on_after_its_longer_side() -> None:
    time, height, width = positions(11, [shown(2, 2, 3)]).tolist()
    assert time == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7]
    assert height == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7]
    assert width == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7]


def test_images_side_by_side_and_at_either_end() -> None:
    time, height, width = positions(9, [shown(0, 2, 1), shown(2, 1, 4), shown(7, 1, 2)]).tolist()
    assert time == [0, 0, 2, 2, 2, 2, 6, 7, 7]
    assert height == [0, 1, 2, 2, 2, 2, 6, 7, 7]
    assert width == [0, 0, 2, 3, 4, 5, 6, 7, 8]
