"""The paper's own embedder, with its real weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory.errors import Unusable
from memory.memory import Memory
from memory.search.embedding import Embedder, embedder
from memory.store.volatile import VolatileLog
from tests.support.tool_memory import registering, tool

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    name, make = embedder("minilm")
    assert name == "minilm"
    return make()


def test_vectors_are_the_same_alone_and_with_others(minilm: Embedder) -> None:
    texts = ["solve a quadratic equation", "", "\ud800 \0 x", "area " * 300_000]
    rows = minilm(texts)
    assert rows.shape == (4, 384) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    again = embedder("minilm")[1]()
    for place in (3, 0, 2, 1):
        assert again([texts[place]])[0].tobytes() == rows[place].tobytes()


def test_synonyms_are_one_tool_and_found_by_other_words(minilm: Embedder) -> None:
    memory = Memory(VolatileLog(), minilm)
    memory.merge_group(
        registering(
            "a",
            tool("roots", "Finds the roots of a quadratic equation."),
            tool("words", "Counts the words of a text."),
        )
    )
    merged = memory.merge_group(registering("b", tool("n_words", "Counts the words in a text.")))
    assert merged.registered == {"n_words": "words"}
    (best, *_) = memory.retrieve(["solve x squared minus four equals zero"])
    assert best.node.name == "roots"


def test_weights_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(Unusable, match="cannot be loaded as an embedder"):
        embedder(str(tmp_path))[1]()
