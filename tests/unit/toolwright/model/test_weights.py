"""Embedding and head fit config.json, or the tensor is named before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from toolwright.model.model_folder import ModelFolderError
from toolwright.model.weights import check_weights, read_tensors

pytestmark = pytest.mark.quick

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def numbers(rows: int, first: float = 0.0, dtype: Any = np.float32) -> Any:
    made = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    made[0, 0] = first
    return made.astype(dtype)


def folder(path: Path, *shards: dict[str, Any], **config: Any) -> Path:
    path.mkdir()
    for number, tensors in enumerate(shards):
        save_file(tensors, path / f"model-{number}.safetensors")
    (path / "config.json").write_text(json.dumps({"vocab_size": 8, **config}), encoding="utf-8")
    return path


TIED = {"tie_word_embeddings": True}
FIT: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "the same head": ([{EMBEDDING: numbers(8)}, {HEAD: numbers(8)}], TIED),
    "another head, not tied": ([{EMBEDDING: numbers(8), HEAD: numbers(8, 1.0)}], {}),
    "nested": (
        [{"model.language_model.embed_tokens.weight": numbers(8)}],
        {"vocab_size": None, "text_config": {"vocab_size": 8}},
    ),
    "other tensors": ([{"w": numbers(3)}], TIED),
}
OTHER_HEAD = {EMBEDDING: numbers(8), HEAD: numbers(8, 1.0)}
UNFIT: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "another head": (
        [OTHER_HEAD],
        TIED,
        r"lm_head\.weight differs.*tie_word_embeddings = false",
    ),
    "another head in another file": (
        [{EMBEDDING: numbers(8)}, {HEAD: numbers(8, 1.0)}],
        TIED,
        "lm_head",
    ),
    "a head of another type": (
        [{EMBEDDING: numbers(8), HEAD: numbers(8, dtype=np.float16)}],
        TIED,
        "lm_head",
    ),
    "tied in text_config": ([OTHER_HEAD], {"text_config": TIED}, "lm_head"),
    "more rows": ([{EMBEDDING: numbers(11)}], TIED, "has 11 rows, vocab_size is 8"),
    "fewer rows": ([{EMBEDDING: numbers(5)}], {}, "has 5 rows, vocab_size is 8"),
    "rows of the head": ([{EMBEDDING: numbers(8), HEAD: numbers(9)}], {}, "lm_head.* has 9 rows"),
}


@pytest.mark.parametrize("case", FIT)
def test_weights_that_fit(tmp_path: Path, case: str) -> None:
    shards, config = FIT[case]
    check_weights(folder(tmp_path / "p", *shards, **config))


@pytest.mark.parametrize("case", UNFIT)
def test_weights_that_do_not_fit_are_named(tmp_path: Path, case: str) -> None:
    shards, config, says = UNFIT[case]
    made = folder(tmp_path / "p", *shards, **config)
    with pytest.raises(ModelFolderError, match=says) as caught:
        check_weights(made)
    assert str(made) in str(caught.value)


def test_a_tensor_s_place_in_its_file(tmp_path: Path) -> None:
    made = folder(tmp_path / "p", {EMBEDDING: numbers(8), "w": numbers(2)})
    file = made / "model-0.safetensors"
    found = read_tensors(file)[EMBEDDING]
    data = file.read_bytes()[found.start : found.end]
    assert (found.dtype, found.shape, data) == ("F32", (8, 4), numbers(8).tobytes())
