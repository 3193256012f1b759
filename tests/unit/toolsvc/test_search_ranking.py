"""Which passages are the best: BM25's choice of k, vectors, and the fusion of both."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import faiss
import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from toolsvc.backends.search.manifest import Bm25Facts, Dense
from toolsvc.backends.search.ranking import bm25, dense
from toolsvc.backends.search.ranking.fusion import reciprocal_rank_fusion
from toolsvc.backends.search.types import Rankings

TEXTS = [
    '"Cats"\nCats purr and sleep in the sun.',
    '"Dogs"\nDogs bark at cats and at postmen.',
    '"Sun"\nThe sun is a star.',
    '"Postmen"\nPostmen bring letters, dogs run after postmen.',
]


def ranking(*rows: list[int]) -> Rankings:
    return Rankings(np.array(rows, np.int64), np.zeros((len(rows), len(rows[0])), np.float32))


@given(
    arrays(np.float32, st.integers(1, 400), elements=st.sampled_from([0, 0, 0, 0.5, 1, 2.25])),
    st.integers(1, 12),
)
def test_the_best_are_those_that_sorting_everything_gives(scores: np.ndarray, k: int) -> None:
    everything = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    assert bm25.best(scores, k).tolist() == [row for row in everything if scores[row] > 0][:k]


def test_bm25_ranks_as_bm25s_does(tmp_path: Path) -> None:
    facts = Bm25Facts()
    bm25.build(TEXTS, tmp_path / "index", facts)
    index = bm25.Bm25(tmp_path / "index", facts)
    query = "Which dogs bark?"
    stemmer = Stemmer.Stemmer("english")
    theirs = bm25s.BM25(k1=facts.k1, b=facts.b, method=facts.method)
    theirs.index(bm25s.tokenize(TEXTS, stemmer=stemmer, show_progress=False), show_progress=False)
    words = bm25s.tokenize([query], stemmer=stemmer, show_progress=False)
    rows, scores = theirs.retrieve(words, k=2, show_progress=False)
    found = index.search([query], 2)
    assert found.rows.tolist() == rows.tolist() == [[1, 3]]
    assert found.scores == pytest.approx(scores)


def test_bm25_finds_nothing_where_no_word_is_shared(tmp_path: Path) -> None:
    bm25.build(TEXTS, tmp_path / "index", Bm25Facts())
    index = bm25.Bm25(tmp_path / "index", Bm25Facts())
    assert index.search(["quantum", "the", ""], 3).rows.tolist() == [[-1] * 3] * 3
    assert index.search(["postman's sleeping cat"], 3).rows[0].tolist()[:1] == [0]


def test_of_a_long_query_the_first_words_count(tmp_path: Path) -> None:
    bm25.build(TEXTS, tmp_path / "index", Bm25Facts())
    index = bm25.Bm25(tmp_path / "index", Bm25Facts())
    head = " ".join(["the star"] * bm25.QUERY_WORDS)
    (with_tail, without) = index.search([head + " letters" * 500, head], 4).rows.tolist()
    assert with_tail == without == [2, -1, -1, -1]


@pytest.mark.parametrize("kind", list(Dense))
def test_vectors_find_what_comparing_with_all_finds(kind: Dense, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    vectors = dense.unit(rng.standard_normal((500, 24), np.float32))
    wanted = dense.unit(vectors[:20] + 0.05 * rng.standard_normal((20, 24), np.float32))
    path = tmp_path / "dense.faiss"
    seen: list[int] = []
    dense.build(kind, 500, lambda: np.array_split(vectors, 4), path, seen.append)
    index = dense.VectorIndex(path, kind, effort=500)
    found = index.search(wanted, 3)
    truth = np.argsort(-wanted @ vectors.T, axis=1)[:, :3]
    assert found.rows.tolist() == truth.tolist()
    assert found.scores == pytest.approx(np.take_along_axis(wanted @ vectors.T, truth, 1), abs=1e-5)
    assert seen == [125, 250, 375, 500]
    assert (len(index), index.dimensions) == (500, 24)


@pytest.mark.parametrize("threads", [1, 2])
def test_faiss_has_the_threads_of_the_option_in_whichever_thread_searches(
    threads: int, tmp_path: Path
) -> None:
    """OpenMP keeps the number for each thread; a service opens its index in another one."""
    vectors = dense.unit(np.eye(4, dtype=np.float32))
    dense.build(Dense.FLAT, 4, lambda: [vectors], tmp_path / "dense.faiss")
    index = dense.VectorIndex(tmp_path / "dense.faiss", Dense.FLAT, threads=threads)

    def search() -> int:
        faiss.omp_set_num_threads(3)
        index.search(vectors, 1)
        return int(faiss.omp_get_max_threads())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(search).result() == threads


def test_fusion_is_the_sum_of_reciprocal_ranks() -> None:
    fused = reciprocal_rank_fusion([ranking([7, 8, 9]), ranking([9, 5, -1])], 4)
    assert fused.rows.tolist() == [[9, 7, 5, 8]]
    assert fused.scores[0] == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62, 1 / 62])


@given(st.permutations(range(8)), st.integers(1, 8))
def test_fusion_of_equal_rankings_changes_nothing(order: list[int], k: int) -> None:
    fused = reciprocal_rank_fusion([ranking(order), ranking(order)], k)
    assert fused.rows[0].tolist() == order[:k]
