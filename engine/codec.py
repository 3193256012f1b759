"""The policy's tokenizer and chat template: the only place where text meets token ids.

Owns the check that tokenizer and model fit, and the hash that trajectories carry: ids mean the
same only under the same tokenizer and template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import StartupError

ARCHITECTURES = ("qwen2", "qwen3")

_COPY = "copy tokenizer.json and tokenizer_config.json beside the weights"


class HuggingFaceCodec:
    """Codec of a local Hugging Face folder."""

    def __init__(self, folder: Path) -> None:
        """StartupError when the folder is no policy of a supported kind or does not fit."""
        config = read_config(folder)
        if not isinstance(config.get("vocab_size"), int):
            raise StartupError(f"policy.model: {folder / 'config.json'} names no vocab_size")
        self.vocab_size: int = config["vocab_size"]
        from transformers import AutoTokenizer  # heavy: only processes that need text pay for it

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise StartupError(
                f"policy.model: no tokenizer in {folder}: {error}; {_COPY}"
            ) from error
        self._backend: Any = self._tokenizer.backend_tokenizer
        self._backend.no_truncation()
        if self.decode(self.encode("a b")) != "a b":
            # Without files transformers makes an empty tokenizer of the model's kind.
            raise StartupError(f"policy.model: no tokenizer in {folder}; {_COPY}")
        largest = max(self._tokenizer.get_vocab().values())
        if largest >= self.vocab_size:
            raise StartupError(
                f"policy.model: the tokenizer in {folder} has token id {largest} but the model's "
                f"vocab_size is {self.vocab_size}; take the tokenizer that belongs to the weights "
                "or resize the model's embeddings"
            )
        if not self._tokenizer.eos_token:
            raise StartupError(f"policy.model: the tokenizer in {folder} names no eos_token")
        self.hash = self._hash()

    @property
    def end_of_turn(self) -> str:
        return str(self._tokenizer.eos_token)

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(token_ids), skip_special_tokens=False))

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
        from jinja2 import TemplateError  # comes with transformers' templates

        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=[dict(tool) for tool in tools] if tools else None,
                    tokenize=False,
                    add_generation_prompt=generation_prompt,
                )
            )
        except TemplateError as error:
            raise ValueError(f"the chat template does not take the messages: {error}") from error

    def _hash(self) -> str:
        digest = hashlib.sha256(self._backend.to_str().encode())
        digest.update(json.dumps(self._tokenizer.chat_template, sort_keys=True).encode())
        return digest.hexdigest()


def read_config(folder: Path) -> Mapping[str, Any]:
    """The model's config.json. StartupError for a folder that is no supported policy."""
    file = folder / "config.json"
    try:
        config: Mapping[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise StartupError(
            f"policy.model: no {file}; give a local Hugging Face folder with config.json, "
            "weights and tokenizer"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"policy.model: {file} is not JSON: {error}") from error
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise StartupError(
            f"policy.model: {folder} is a {kind!r} model; supported are {', '.join(ARCHITECTURES)}"
        )
    return config
