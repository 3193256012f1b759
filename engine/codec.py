"""The policy's tokenizer with its chat template: the only place where text meets token ids.

Owns the check that tokenizer and model fit, and the hash that trajectories carry: ids mean the
same only under the same tokenizer and template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.errors import StartupError
from engine.template import read_template, special_tokens
from toolwright.recipe import ARCHITECTURES

_COPY = "copy tokenizer.json and tokenizer_config.json beside the weights"


class HuggingFaceCodec:
    """Codec of a local Hugging Face folder."""

    def __init__(self, folder: Path) -> None:
        """StartupError when the folder is no policy of a supported kind or does not fit."""
        config = read_config(folder)
        if not isinstance(config.get("vocab_size"), int):
            raise StartupError(f"policy.model: {folder / 'config.json'} names no vocab_size")
        self.vocab_size: int = config["vocab_size"]
        self._tokenizer = _read_tokenizer(folder)
        tokenizer_config = _read_json(folder / "tokenizer_config.json")
        self._template = read_template(folder, tokenizer_config)
        self.end_of_turn = special_tokens(tokenizer_config).get("eos_token", "")
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        if largest >= self.vocab_size:
            raise StartupError(
                f"policy.model: the tokenizer in {folder} has token id {largest} but the model's "
                f"vocab_size is {self.vocab_size}; take the tokenizer that belongs to the weights "
                "or resize the model's embeddings"
            )
        if not self.end_of_turn:
            raise StartupError(f"policy.model: the tokenizer in {folder} names no eos_token")
        self.hash = self._hash()

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def token_id(self, token: str) -> int | None:
        # Not token_to_id: the vocabulary spells bytes as letters, "é" there is another token.
        ids = self.encode(token)
        return ids[0] if len(ids) == 1 and self.decode(ids) == token else None

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> str:
        return self._template.render(messages, tools, generation_prompt=generation_prompt)

    def _hash(self) -> str:
        digest = hashlib.sha256(self._tokenizer.to_str().encode())
        digest.update(json.dumps(self._template.sources, sort_keys=True).encode())
        return digest.hexdigest()


def read_config(folder: Path) -> Mapping[str, Any]:
    """The model's config.json. StartupError for a folder that is no supported policy."""
    config = _read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise StartupError(
            f"policy.model: {folder} is a {kind!r} model; supported are {', '.join(ARCHITECTURES)}"
        )
    return config


def _read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise StartupError(f"policy.model: no tokenizer in {folder}; {_COPY}")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise StartupError(f"policy.model: {file} is no tokenizer: {error}") from error
    tokenizer.no_truncation()
    return tokenizer


def _read_json(file: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise StartupError(
            f"policy.model: no {file}; give a local Hugging Face folder with config.json, "
            "weights and tokenizer"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"policy.model: {file} is not JSON: {error}") from error
    return found
