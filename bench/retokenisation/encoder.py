"""Text to ids and back, without what a tokenizer would add around a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from bench.errors import BenchError


class Encoder(Protocol):
    """Interface of a tokenizer."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text, control tokens included."""

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """(ids, index in the text at which each begins)."""


class FolderEncoder:
    """The tokenizer of a policy's folder. Raises BenchError without one."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises nothing narrower
            raise BenchError(
                f"{folder} has no tokenizer that can be read: {error}; name the folder of the "
                "policy that wrote the trajectories"
            ) from error

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return list(found.ids), [begin for begin, _ in found.offsets]
