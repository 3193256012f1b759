"""Bodies of requests, and what is known of the servers that take them. Pure.

Only what the API itself names goes to a server that nobody here knows: OpenAI refuses other keys.
SGLang and vLLM tell in their list of models who they are, and can be asked to leave a stop's text
where it is; that is exact, so they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from engine.core.sampler.openai.messages import Conversation
from toolwright.model_api.refused_keys import Body
from toolwright.types import SamplingParams

TEMPLATE = "chat_template_kwargs"
"""Key of a body that has the recipe's `policy.template`."""
TEMPLATE_FIX = "leave policy.template out, or use a server that takes the key, as vLLM does"
MOST_STOPS = 4
"""That OpenAI's API takes; the engine finds every stop itself."""


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
        body[TEMPLATE] = dict(template)
    if asked.continues:
        body |= _CONTINUING.get(kind, {})
    return body | _common(sampling, max_tokens, stop, kind)


def _common(sampling: SamplingParams, max_tokens: int, stop: Sequence[str], kind: Kind) -> Body:
    """A temperature and a top_p of 1 are the API's defaults, and whole model families refuse them.
    A server of one's own has other defaults, by its model's generation_config.json."""
    body: Body = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max_tokens,
        **_KEEPING.get(kind, {}),
    }
    if stop:
        body["stop"] = list(stop[:MOST_STOPS])
    says = kind is not Kind.OTHER
    chosen = {
        "temperature": sampling.temperature if says or sampling.temperature != 1 else None,
        "top_p": sampling.top_p if says or sampling.top_p != 1 else None,
        "seed": sampling.seed,
        # Keys that the API does not name are sent only where they say something.
        "top_k": sampling.top_k if (sampling.top_k or -1) > 0 else None,
        "min_p": sampling.min_p or None,
        "repetition_penalty": None
        if sampling.repetition_penalty == 1
        else sampling.repetition_penalty,
    }
    return body | {name: value for name, value in chosen.items() if value is not None}
