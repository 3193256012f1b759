"""A codec for unit tests: a toy vocabulary over UTF-8 bytes, longest match first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolwright.reading.action_ends import Tags

END = "<|im_end|>"


class ToyCodec:
    """Ids below 256 are bytes; `words` are further tokens, in any order, some of them longer.

    Messages are rendered like Qwen's, `role` and `content` only.
    """

    end_of_turn = END
    turn_ends = (END,)
    image_mark = None
    thought: Tags | None = None
    vocab_size = 512
    hash = "toy"

    def __init__(self, *words: str) -> None:
        pieces = [bytes([i]) for i in range(256)]
        pieces += [word.encode() for word in dict.fromkeys((END, *words))]
        self._pieces = pieces
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._longest = max(map(len, pieces))

    def encode(self, text: str) -> list[int]:
        rest, ids = text.encode(), []
        while rest:
            size = next(
                n for n in range(min(self._longest, len(rest)), 0, -1) if rest[:n] in self._ids
            )
            ids.append(self._ids[rest[:size]])
            rest = rest[size:]
        return ids

    def encode_plain(self, text: str) -> list[int]:
        return list(text.encode())

    def guarded(self, text: str) -> str:
        return text

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        return self.encode(self.chat(messages, tools=tools, generation_prompt=generation_prompt))

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._pieces[i] for i in token_ids).decode(errors="replace")

    def token_id(self, token: str) -> int | None:
        return self._ids.get(token.encode())

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> str:
        text = "".join(f"[{tool['function']['name']}]" for tool in tools or ())
        text += "".join(f"<|im_start|>{m['role']}\n{m['content']}{END}\n" for m in messages)
        return text + ("<|im_start|>assistant\n" if generation_prompt else "")
