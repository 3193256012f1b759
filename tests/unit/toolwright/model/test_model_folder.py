"""Hashes of a policy folder: the same for what does the same, another for what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.weights import write_weights
from toolwright.model.model_folder import ModelFolderError, ids_hash, shape_hash, tokenizer_hash

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "added_tokens": [{"id": 3, "content": "<end>", "special": True}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
}


def folder(path: Path, tokenizer: dict[str, Any] = TOKENIZER, template: str = "t") -> Path:
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (path / "chat_template.jinja").write_text(template, encoding="utf-8")
    return path


def test_how_a_tokenizer_is_written_does_not_matter(tmp_path: Path) -> None:
    """Another version of the library changes order, blanks, merges as text, flags, padding."""
    first = tokenizer_hash(folder(tmp_path / "a"))
    model = {**TOKENIZER["model"], "merges": ["a b"], "ignore_merges": False, "dropout": None}
    other = {"model": model, **{k: v for k, v in TOKENIZER.items() if k != "model"}}
    again = folder(tmp_path / "b")
    written = {**other, "truncation": {"max_length": 9}, "padding": {"pad_id": 0}}
    (again / "tokenizer.json").write_text(json.dumps(written, indent=4), encoding="utf-8")
    assert tokenizer_hash(again) == first
    (again / "chat_template.jinja").unlink()
    (again / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "t"}), encoding="utf-8"
    )
    assert tokenizer_hash(again) == first


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another id": lambda t: t["model"]["vocab"].update(a=1, b=0),
    "another merge": lambda t: t["model"].update(merges=[]),
    "a flag": lambda t: t["model"].update(ignore_merges=True),
    "an added token": lambda t: t["added_tokens"].append({"id": 4, "content": "<x>"}),
    "a special token made plain": lambda t: t["added_tokens"][0].update(special=False),
    "a normalizer": lambda t: t.update(normalizer={"type": "NFC"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_ids_changes_the_hash(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    changed = json.loads(json.dumps(TOKENIZER))
    change(changed)
    first = tokenizer_hash(folder(tmp_path / "a"))
    assert tokenizer_hash(folder(tmp_path / "b", changed)) != first
    assert tokenizer_hash(folder(tmp_path / "c", template="u")) != first


@pytest.mark.parametrize(("name", "change"), CHANGES.items(), ids=CHANGES)
def test_ids_have_a_hash_of_their_own(
    tmp_path: Path, name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """How a text becomes ids does not count, and neither does a template."""
    changed = json.loads(json.dumps(TOKENIZER))
    change(changed)
    first = ids_hash(folder(tmp_path / "a"))
    same = ids_hash(folder(tmp_path / "b", changed, template="u")) == first
    assert same == (name not in ("another id", "an added token"))


@pytest.mark.parametrize("content", [None, "", "[1]", "{"])
def test_a_tokenizer_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json cannot be read"):
        tokenizer_hash(tmp_path)


def test_a_shape_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    weights = write_weights(tmp_path / "w")
    assert shape_hash(weights) == shape_hash(write_weights(tmp_path / "v"))
    (weights / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelFolderError, match=r"model\.safetensors cannot be read"):
        shape_hash(weights)
