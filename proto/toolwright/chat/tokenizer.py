"""A policy folder's tokenizer with its chat template: text and messages to token ids, and back.

Control tokens are the tokenizer's added tokens that are special or stand in brackets, as `<think>`
and `[INST]` do. An added token that is a plain word is a word. Text of tools, tasks and clients
never becomes a control token, unless the recipe says `policy.foreign_text = "as_is"`.

An object serves one thread at a time: the tokenizer changes state while it reads a spelled control
token as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from toolwright.chat.foreign import Guard
from toolwright.chat.template import ChatTemplate
from toolwright.chat.turn_end import template_end
from toolwright.model.model_folder import (
    ModelFolderError,
    chat_templates,
    read_json,
    special_tokens,
    tokenizer_hash,
)
from toolwright.reading.thoughts import thought_of
from toolwright.recipe import ForeignText

_MANY = 2048
"""Ids that are decoded in some 2 ms."""
_COPY = "copy tokenizer.json and tokenizer_config.json beside the weights"


class ChatTokenizer:
    """Tokenizer and chat template of a local Hugging Face folder."""

    def __init__(
        self,
        folder: Path,
        *,
        foreign_text: ForeignText = "plain",
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """template: variables of the chat template. Raises ModelFolderError for a tokenizer or
        template that cannot be read, and for a folder without an end of turn."""
        self._tokenizer = _read_tokenizer(folder)
        self.variables = dict(template or {})
        """The recipe's policy.template, which the chat template reads."""
        special = special_tokens(folder)
        self._template = ChatTemplate(chat_templates(folder), special, self.variables)
        self.hash = tokenizer_hash(folder, self.variables)
        self.thought = thought_of("\n".join(self._template.sources.values()))
        """Tags of the template's thoughts; None without thoughts."""
        self.leading = self.decode(self._tokenizer.encode("").ids)
        """Text that a server with this tokenizer adds before a prompt."""
        self._plain = foreign_text == "plain"
        control = _control_tokens(self._tokenizer)
        self.control_ids = frozenset(control)
        """Ids that foreign text never becomes."""
        self._guard = Guard(token.content for token in control.values())
        # Only special tokens can be switched to text.
        self._tokenizer.add_special_tokens([one for one in control.values() if not one.special])
        self.turn_ends = self._find_turn_ends(folder, special.get("eos_token", ""))
        """Texts that end an assistant's turn: the template's own, eos_token, and the tokens at
        which transformers and servers stop."""
        self.end_of_turn = self.turn_ends[0]
        """Text that the template writes after an assistant's message, or else eos_token."""

    def encode(self, text: str) -> list[int]:
        """Ids of our own text: a spelled control token is a control token."""
        return self._ids(text)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a foreign text: a spelled control token becomes text."""
        return self._encode_spelled(text) if self._plain else self.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, control tokens included."""
        if len(token_ids) > _MANY:
            # Other threads run meanwhile, which `decode` does not allow.
            (text,) = self._tokenizer.decode_batch([list(token_ids)], skip_special_tokens=False)
            return str(text)
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    @property
    def size(self) -> int:
        """Number of ids; an id is smaller."""
        added = max(self._tokenizer.get_added_tokens_decoder(), default=-1) + 1
        return max(self._tokenizer.get_vocab_size(with_added_tokens=False), added)

    def token_id(self, token: str) -> int | None:
        """The id of a text that is one token; None for another text."""
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
        """Text of messages, rendered by the chat template. Raises ValueError if the template
        refuses them."""
        return self._template.render(messages, tools, generation_prompt=generation_prompt)

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Ids of messages, rendered by the chat template.

        The template's control tokens stay control tokens. Those that messages and tools spell
        become text, except in an `OwnText`. Raises ValueError as `chat` does.
        """
        return self.ids_of(
            self.guarded_chat(messages, tools=tools, generation_prompt=generation_prompt)
        )

    def guarded_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> str:
        """Text of messages, with sentinels in place of the control tokens that they spell; any part
        of it is encoded by `ids_of`. Raises ValueError as `chat` does."""
        if self._plain:
            messages = self._guard.guard_all(messages)
            tools = self._guard.guard_all(tools) if tools else None
        return self.chat(messages, tools=tools, generation_prompt=generation_prompt)

    def ids_of(self, rendered: str) -> list[int]:
        """Ids of a text of `guarded_chat`."""
        if not self._plain:
            return self.encode(rendered)
        ids: list[int] = []
        for foreign, piece in self._guard.pieces(rendered):
            ids += self._encode_spelled(piece) if foreign else self.encode(piece)
        return ids

    def template_names(self) -> frozenset[str]:
        """Variables of the chat template that only a recipe can set. Raises ValueError."""
        return self._template.names()

    def guarded(self, text: str) -> str:
        """Foreign text, safe to insert into an `OwnText`."""
        return self._guard.guard(text) if self._plain else text

    def _ids(self, text: str) -> list[int]:
        # Other threads run meanwhile, which `encode` does not allow; no offsets: 5 times as quick.
        (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return list(found.ids)

    def _encode_spelled(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        try:
            ids = self._ids(text)
            if not self.control_ids.isdisjoint(ids):
                # The vocabulary itself spells a control token; single letters cannot.
                ids = [token for letter in text for token in self._ids(letter)]
        finally:
            self._tokenizer.encode_special_tokens = False
        return ids

    def _find_turn_ends(self, folder: Path, eos_token: str) -> tuple[str, ...]:
        """At least one text, the template's own first. Raises ModelFolderError."""

        def first_control(text: str) -> str:
            ids = self.encode(text)
            return next((self.decode([one]) for one in ids if one in self.control_ids), "")

        found = [template_end(self.chat, first_control), eos_token]
        found += [self.decode([one]) for one in sorted(_end_ids(folder) & self.control_ids)]
        ends = tuple(dict.fromkeys(filter(None, found)))
        if not ends:
            raise ModelFolderError(
                f"{folder} has no token that ends a turn: let its chat template write "
                "a control token after an assistant's message, or set eos_token in "
                "tokenizer_config.json"
            )
        return ends


_BRACKETS = ("<>", "[]", "{}")


def _control_tokens(tokenizer: Tokenizer) -> dict[int, AddedToken]:
    return {
        number: token
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special or f"{token.content[:1]}{token.content[-1:]}" in _BRACKETS
    }


def _end_ids(folder: Path) -> frozenset[int]:
    """Ids at which a server with this folder stops by default."""
    config = read_json(folder / "config.json")
    own = folder / "generation_config.json"
    found: set[int] = set()
    for source in (config, config.get("text_config"), read_json(own) if own.is_file() else None):
        ids = source.get("eos_token_id") if isinstance(source, Mapping) else None
        for one in ids if isinstance(ids, list) else [ids]:
            if isinstance(one, int):
                found.add(one)
    return frozenset(found)


def _read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelFolderError(f"no tokenizer in {folder}; {_COPY}")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more special
        raise ModelFolderError(f"{file} is not a tokenizer ({error}); {_COPY}") from error
    tokenizer.no_truncation()
    return tokenizer
