"""The benchmark's data are what its page says, and the same from the same seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.search import data


def test_text_comes_from_the_seed_alone() -> None:
    first = list(data.passages(50, 1))
    assert first == list(data.passages(50, 1))
    assert first != list(data.passages(50, 2))


def test_passages_have_about_sixty_words_in_the_layout_of_the_corpus(tmp_path: Path) -> None:
    texts = data.write_corpus(tmp_path / "c.jsonl", 300, 0)
    lengths = [len(text.split()) for text in texts]
    assert sum(lengths) / 300 == pytest.approx(data.WORDS, rel=0.05)
    last = json.loads((tmp_path / "c.jsonl").read_text(encoding="utf-8").splitlines()[299])
    title, text = last["contents"].split("\n")
    assert (last["id"], text) == ("299", texts[299])
    assert title.startswith('"')
    assert title.endswith(' 299"')


def test_words_are_different_and_follow_the_law() -> None:
    words = data.vocabulary()
    assert len(set(words)) == len(words) == data.VOCABULARY
    text = " ".join(text for _, text in data.passages(400, 0)).split()
    ranks = {word: rank for rank, word in enumerate(words, start=1)}
    seen = np.array([ranks[word] for word in text])
    law = 1 / (np.arange(1, data.VOCABULARY + 1) + data.MANDELBROT)
    for most in (10, 100, 1000):
        assert np.mean(seen <= most) == pytest.approx(law[:most].sum() / law.sum(), abs=0.02)


def test_queries_are_words_of_one_passage_in_their_order() -> None:
    texts = ["a b c d e f g h i j", "k l m n o p q r s t"]
    for query in data.queries(texts, 20, 0):
        words = query.split()
        assert len(words) == data.QUERY_WORDS
        assert words == sorted(words)
        assert any(set(words) <= set(text.split()) for text in texts)


def test_clustered_vectors_have_near_neighbours_and_isotropic_ones_have_not() -> None:
    def nearest_cosine(draw: data.Draw, dimensions: int) -> float:
        wanted, vectors = draw(50), draw(2000)
        assert vectors.shape == (2000, dimensions)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(2000), abs=1e-5)
        return float((wanted @ vectors.T).max(axis=1).mean())

    assert (data.clustered(0)(99) == data.clustered(0)(99)).all()
    for dimensions in (data.DIMENSIONS, 768):
        near = nearest_cosine(data.clustered(0, dimensions), dimensions)
        assert near == pytest.approx(0.8, abs=0.15)
        assert nearest_cosine(data.isotropic(0, dimensions), dimensions) < 0.3


def test_vectors_are_written_in_pieces_with_what_is_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last piece is shorter than k."""
    monkeypatch.setattr(data, "PIECE", 33)
    draw = data.isotropic(3, 64)
    wanted = draw(5)
    found = data.write_vectors(tmp_path / "v.npy", draw, 100, wanted, 3)
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (100, 64) and vectors.dtype == np.float32
    assert len(np.unique(vectors[:, 0])) == 100
    truth = np.argsort(-wanted @ vectors.T, axis=1)[:, :3]
    assert np.sort(found).tolist() == np.sort(truth).tolist()
