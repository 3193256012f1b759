"""Bodies of requests, and what is known of the servers that take them. Pure.

Only what the API itself names goes to a server that nobody here knows: OpenAI refuses other keys.
SGLang and vLLM tell in their list of models who they are, and can be asked to leave a stop's text
where it is; that is exact, so they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from engine.sampler.openai.messages import Conversation
from toolwright.types import SamplingParams

MOST_STOPS = 4
"""That OpenAI's API takes; the engine finds every stop itself."""

Body = dict[str, Any]


class Kind(StrEnum):
    """Whose server it is, as `owned_by` of its models says."""

    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMA_CPP = "llamacpp"
    OTHER = "other"

    @classmethod
    def of(cls, owned_by: str) -> Kind:
        return cls(owned_by) if owned_by in tuple(cls) else cls.OTHER

    @property
    def keeps_stops(self) -> bool:
        """A stop's text can be had."""
        return self in (Kind.SGLANG, Kind.VLLM)

    @property
    def continues(self) -> bool:
        """It goes on with an assistant's message that comes last."""
        return self is not Kind.OTHER


_KEEPING: dict[Kind, Body] = {
    Kind.SGLANG: {"no_stop_trim": True, "skip_special_tokens": False},
    Kind.VLLM: {
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
    },
}
_CONTINUING: dict[Kind, Body] = {
    Kind.SGLANG: {"continue_final_message": True},
    Kind.VLLM: {"continue_final_message": True, "add_generation_prompt": False},
}
REPLACED = {"max_tokens": "max_completion_tokens"}
"""Keys that some models take in chat under another name alone."""
SPARED = ("stream_options", "seed")
"""Keys that a server may refuse and that change nothing of what is measured; without a seed the
same request may bring another text."""


def completions_body(
    prompt: str,
    *,
    model: str,
    sampling: SamplingParams,
    max_tokens: int,
    stop: Sequence[str],
    kind: Kind,
) -> Body:
    """Of POST /v1/completions."""
    body: Body = {"model": model, "prompt": prompt}
    return body | _common(sampling, max_tokens, stop, kind)


def chat_body(
    asked: Conversation,
    *,
    model: str,
    sampling: SamplingParams,
    max_tokens: int,
    stop: Sequence[str],
    kind: Kind,
    template: Mapping[str, Any],
) -> Body:
    """Body of POST /v1/chat/completions. template: variables of the chat template; the key is sent
    only with some, since the API itself does not name it."""
    body: Body = {"model": model, "messages": list(asked.messages)}
    if asked.tools:
        body["tools"] = list(asked.tools)
    if template:
        body["chat_template_kwargs"] = dict(template)
    if asked.continues:
        body |= _CONTINUING.get(kind, {})
    return body | _common(sampling, max_tokens, stop, kind)


def _common(sampling: SamplingParams, max_tokens: int, stop: Sequence[str], kind: Kind) -> Body:
    body: Body = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max_tokens,
        **_KEEPING.get(kind, {}),
    }
    if stop:
        body["stop"] = list(stop[:MOST_STOPS])
    chosen = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        # Keys that the API does not name are sent only where they say something.
        "top_k": sampling.top_k if (sampling.top_k or -1) > 0 else None,
        "min_p": sampling.min_p or None,
        "repetition_penalty": None
        if sampling.repetition_penalty == 1
        else sampling.repetition_penalty,
    }
    return body | {name: value for name, value in chosen.items() if value is not None}


def without(body: Body, refused: Sequence[str]) -> Body:
    """The body for a server that has refused these of `REPLACED` and `SPARED`."""
    left = {key: value for key, value in body.items() if key not in refused}
    return left | {REPLACED[key]: body[key] for key in refused if key in REPLACED and key in body}


def refused_key(told: str, body: Body) -> str | None:
    """The key of `REPLACED` or `SPARED` that a refusal says the server does not take.

    A refusal of a number names keys too: vLLM's of a prompt that is too long names `max_tokens`
    and the other name. So a key is replaced only where it is said to be unsupported.
    """
    low = told.lower()
    for key, other in REPLACED.items():
        takes_other = "messages" in body and _names(told, other)
        if key in body and takes_other and _names(told, key) and _UNSUPPORTED.search(low):
            return key
    return next((key for key in SPARED if key in body and _names(told, key)), None)


_UNSUPPORTED = re.compile(r"unsupported|not supported|isn't supported")


def _names(told: str, key: str) -> bool:
    """`key` stands there as a word. One that is also English counts only in quotes: a model's name
    may have it."""
    word = re.escape(key)
    if "_" in key:
        return re.search(rf"(?<![\w-]){word}(?![\w-])", told) is not None
    return re.search(rf"(?P<quote>['\"`]){word}(?P=quote)", told) is not None
