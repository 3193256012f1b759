"""The policy's tokenizer with its chat template: the only place where text meets token ids.

Owns the check that tokenizer and model fit, and the hash that trajectories carry: ids mean the
same only under the same tokenizer and template.

Control tokens are the tokenizer's added tokens that are special or stand in brackets, as `<think>`
and `[INST]` do. An added token that is a plain word is a word. Text of tools and tasks never
becomes a control token, unless the recipe says `policy.foreign_text = "as_is"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from engine.core.text.foreign import Guard
from engine.core.text.template import ChatTemplate
from engine.core.text.thoughts import thought_of
from engine.core.text.turn_end import template_end
from engine.errors import StartupError
from engine.types import ImageMark
from toolwright.model.model_folder import (
    ModelFolderError,
    chat_templates,
    read_json,
    special_tokens,
    tokenizer_hash,
)
from toolwright.model.weights import text_setting
from toolwright.recipe import ARCHITECTURES, VISION_ARCHITECTURES, ForeignText

_COPY = "copy tokenizer.json and tokenizer_config.json beside the weights"
_BEFORE, _AFTER = "toolwright-before-sentinel", "toolwright-after-sentinel"


class HuggingFaceCodec:
    """Codec of a local Hugging Face folder."""

    def __init__(
        self,
        folder: Path,
        *,
        foreign_text: ForeignText = "plain",
        template: Mapping[str, Any] | None = None,
    ) -> None:
        """template: variables of the chat template.

        Raises StartupError for a policy of an unsupported kind, and for a tokenizer, model and
        template that do not belong together.
        """
        config = read_config(folder)
        vocab_size = text_setting(config, "vocab_size")
        if not isinstance(vocab_size, int):
            raise StartupError(
                f"policy.model: {folder / 'config.json'} has no vocab_size: take the model's own "
                "file"
            )
        self.vocab_size = vocab_size
        self._tokenizer = _read_tokenizer(folder)
        self.variables = dict(template or {})
        """The recipe's policy.template, which the chat template reads."""
        try:
            special = special_tokens(folder)
            self._template = ChatTemplate(chat_templates(folder), special, self.variables)
            self.hash = tokenizer_hash(folder, self.variables)
        except ModelFolderError as error:
            raise StartupError(f"policy.model: {error}") from error
        self.thought = thought_of("\n".join(self._template.sources.values()))
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        if largest >= self.vocab_size:
            raise StartupError(
                f"policy.model: the tokenizer in {folder} has token id {largest} but the model's "
                f"vocab_size is {self.vocab_size}; take the tokenizer that belongs to the weights "
                "or resize the model's embeddings"
            )
        self.leading = self.decode(self._tokenizer.encode("").ids)
        """Text that a server with this tokenizer adds before a prompt."""
        self._plain = foreign_text == "plain"
        control = _control_tokens(self._tokenizer)
        self._control_ids = frozenset(control)
        self._guard = Guard(token.content for token in control.values())
        # Only special tokens can be switched to text.
        self._tokenizer.add_special_tokens([one for one in control.values() if not one.special])
        self.turn_ends = self._find_turn_ends(folder, config, special.get("eos_token", ""))
        """Texts that end an assistant's turn: the template's own, eos_token, and the tokens at
        which transformers and servers stop."""
        self.end_of_turn = self.turn_ends[0]
        """Text that the template writes after an assistant's message, or else eos_token."""
        self.image_mark: ImageMark | None = None
        if config["model_type"] in VISION_ARCHITECTURES:
            self.image_mark = self._find_image_mark(folder, config)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a foreign text: a spelled control token becomes text.

        For a policy that reads images, `image_mark.text` stays a mark. Callers escape the text with
        `engine.core.images.placeholders.plain` before they insert marks.
        """
        if not self._plain:
            return self.encode(text)
        if self.image_mark is None or self.image_mark.text not in text:
            return self._encode_spelled(text)
        first, *rest = text.split(self.image_mark.text)
        ids = self._encode_spelled(first)
        for piece in rest:
            ids += self.image_mark.token_ids
            ids += self._encode_spelled(piece)
        return ids

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
        if not self._plain:
            return self.encode(
                self.chat(messages, tools=tools, generation_prompt=generation_prompt)
            )
        rendered = self.chat(
            self._guard.guard_all(messages),
            tools=self._guard.guard_all(tools) if tools else None,
            generation_prompt=generation_prompt,
        )
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

    def _encode_spelled(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        try:
            ids = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
            if not self._control_ids.isdisjoint(ids):
                # The vocabulary itself spells a control token; single letters cannot.
                ids = [
                    token
                    for letter in text
                    for token in self._tokenizer.encode(letter, add_special_tokens=False).ids
                ]
        finally:
            self._tokenizer.encode_special_tokens = False
        return ids

    def _find_turn_ends(
        self, folder: Path, config: Mapping[str, Any], eos_token: str
    ) -> tuple[str, ...]:
        """At least one text, the template's own first. Raises StartupError."""

        def first_control(text: str) -> str:
            ids = self.encode(text)
            return next((self.decode([one]) for one in ids if one in self._control_ids), "")

        found = [template_end(self.chat, first_control), eos_token]
        found += [
            self.decode([one]) for one in sorted(_end_ids(folder, config) & self._control_ids)
        ]
        ends = tuple(dict.fromkeys(filter(None, found)))
        if not ends:
            raise StartupError(
                f"policy.model: {folder} has no token that ends a turn: let its chat template "
                "write "
                "a control token after an assistant's message, or set eos_token in "
                "tokenizer_config.json"
            )
        return ends

    def _find_image_mark(self, folder: Path, config: Mapping[str, Any]) -> ImageMark:
        """The template's text for an image, found by rendering one between two sentinels."""
        placeholder = int(config.get("image_token_id", -1))
        parts = [
            {"type": "text", "text": _BEFORE},
            {"type": "image"},
            {"type": "text", "text": _AFTER},
        ]
        try:
            rendered = self.chat([{"role": "user", "content": parts}])
        except ValueError as error:
            raise StartupError(f"policy.model: {folder}: {error}") from error
        text = rendered.partition(_BEFORE)[2].partition(_AFTER)[0]
        token_ids = self.encode(text)
        between = self.encode(_BEFORE + text + _AFTER)
        alone = [*self.encode(_BEFORE), *token_ids, *self.encode(_AFTER)]
        if token_ids.count(placeholder) != 1 or between != alone:
            raise StartupError(
                f"policy.model: the chat template in {folder} writes an image as {text!r}, which "
                f"is not one token {placeholder} (config.json's image_token_id) between tokens of "
                "its own; take tokenizer and template that belong to the weights"
            )
        return ImageMark(
            text=text,
            token_ids=tuple(token_ids),
            placeholder=placeholder,
            reserved=tuple(
                self.decode([token])
                for name in _MEDIA_TOKENS
                if isinstance(token := config.get(name), int)
            ),
        )


_BRACKETS = ("<>", "[]", "{}")


def _control_tokens(tokenizer: Tokenizer) -> dict[int, AddedToken]:
    return {
        number: token
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special or f"{token.content[:1]}{token.content[-1:]}" in _BRACKETS
    }


def _end_ids(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """Ids at which a server with this folder stops by default."""
    own = folder / "generation_config.json"
    found: set[int] = set()
    for source in (config, config.get("text_config"), _read_json(own) if own.is_file() else None):
        ids = source.get("eos_token_id") if isinstance(source, Mapping) else None
        for one in ids if isinstance(ids, list) else [ids]:
            if isinstance(one, int):
                found.add(one)
    return frozenset(found)


_MEDIA_TOKENS = ("image_token_id", "video_token_id", "audio_token_id")


def read_config(folder: Path) -> Mapping[str, Any]:
    """The model's config.json. Raises StartupError for an unsupported model."""
    config = _read_json(folder / "config.json")
    kind = config.get("model_type")
    known = ARCHITECTURES + VISION_ARCHITECTURES
    if kind not in known:
        raise StartupError(
            f"policy.model: {folder} is a {kind!r} model; supported are {', '.join(known)}"
        )
    return config


def _read_tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise StartupError(f"policy.model: no tokenizer in {folder}; {_COPY}")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more special
        raise StartupError(f"policy.model: {file} is not a tokenizer ({error}); {_COPY}") from error
    tokenizer.no_truncation()
    return tokenizer


def _read_json(file: Path) -> Mapping[str, Any]:
    if not file.exists():
        raise StartupError(
            f"policy.model: no {file}; give a local Hugging Face folder with config.json, "
            "weights and tokenizer"
        )
    try:
        return read_json(file)
    except ModelFolderError as error:
        raise StartupError(f"policy.model: {error}") from error
