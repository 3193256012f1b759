"""The policy's codec: `toolwright.chat.tokenizer`, with the checks that the model needs.

Owns the check that tokenizer and model fit, and how the template writes an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import StartupError
from engine.types import ImageMark
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.model.model_folder import ModelFolderError, read_json
from toolwright.model.weights import text_setting
from toolwright.recipe import ARCHITECTURES, VISION_ARCHITECTURES, ForeignText

_BEFORE, _AFTER = "toolwright-before-sentinel", "toolwright-after-sentinel"


class HuggingFaceCodec(ChatTokenizer):
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
        self.image_mark: ImageMark | None = None
        try:
            super().__init__(folder, foreign_text=foreign_text, template=template)
        except ModelFolderError as error:
            raise StartupError(f"policy.model: {error}") from error
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        if largest >= self.vocab_size:
            raise StartupError(
                f"policy.model: the tokenizer in {folder} has token id {largest} but the model's "
                f"vocab_size is {self.vocab_size}; take the tokenizer that belongs to the weights "
                "or resize the model's embeddings"
            )
        if config["model_type"] in VISION_ARCHITECTURES:
            self.image_mark = self._find_image_mark(folder, config)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a foreign text: a spelled control token becomes text.

        For a policy that reads images, `image_mark.text` stays a mark. Callers escape the text with
        `engine.core.images.placeholders.plain` before they insert marks.
        """
        if not self._plain or self.image_mark is None or self.image_mark.text not in text:
            return super().encode_plain(text)
        first, *rest = text.split(self.image_mark.text)
        ids = self._encode_spelled(first)
        for piece in rest:
            ids += self.image_mark.token_ids
            ids += self._encode_spelled(piece)
        return ids

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
