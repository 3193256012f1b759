"""Texts to vectors, and what an embedder is called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Unusable
from memory.search import sentences
from memory.search.embedding import embedder, hashing

TEXTS = st.lists(st.text(max_size=30), min_size=1, max_size=4)


@given(TEXTS)
def test_a_text_has_its_vector_whoever_else_is_asked(texts: list[str]) -> None:
    rows = hashing(texts)
    assert all(
        np.array_equal(hashing([text])[0], row) for text, row in zip(texts, rows, strict=True)
    )
    lengths = np.linalg.norm(rows, axis=1)
    assert all(abs(length - 1) < 1e-6 or length == 0 for length in lengths)


def test_a_folder_is_known_by_its_weights(tmp_path: Path) -> None:
    one, other = tmp_path / "model", tmp_path / "else" / "model"
    for folder, weights in ((one, b"1"), (other, b"1")):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(weights)
    assert embedder(str(one))[0] == embedder(str(other))[0]
    (other / "model.safetensors").write_bytes(b"2")
    assert embedder(str(one))[0] != embedder(str(other))[0]


def test_what_is_no_embedder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unusable, match="name hashing, minilm, or the folder"):
        embedder("bert")
    with pytest.raises(Unusable, match="it has no weights"):
        embedder(str(tmp_path))
    monkeypatch.setattr(sentences, "MINILM", "no_such_package")
    with pytest.raises(Unusable, match=r"toolwright\[minilm\]"):
        embedder("minilm")[1]()
