"""Bodies of requests, and what is known of the servers that take them. Pure.

An unknown server gets only keys that the API itself names: OpenAI refuses others. SGLang and vLLM
identify themselves in their list of models, and can leave a stop's text in place. That is exact, so
the body requests it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from engine.core.sampler.openai.messages import ChatConversation
from toolwright.model_api.refused_keys import Body
from toolwright.types import SamplingParams

TEMPLATE = "chat_template_kwargs"
"""Key of the body for the recipe's `policy.template`."""
TEMPLATE_FIX = "leave policy.template out, or use a server that takes the key, as vLLM does"
MOST_STOPS = 4
"""Most stops that OpenAI's API takes; the engine finds every stop itself."""


class ServerKind(StrEnum):
    """Kind of server, as `owned_by` of its models says."""

    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMA_CPP = "llamacpp"
    OTHER = "other"

    @classmethod
    def of(cls, owned_by: str) -> ServerKind:
        return cls(owned_by) if owned_by in tuple(cls) else cls.OTHER

    @property
    def keeps_stops(self) -> bool:
        """Whether the server can return a stop's text."""
        return self in (ServerKind.SGLANG, ServerKind.VLLM)

    @property
    def continues(self) -> bool:
        """Whether the server continues an assistant's message that comes last."""
        return self is not ServerKind.OTHER


_KEEPING: dict[ServerKind, Body] = {
    ServerKind.SGLANG: {"no_stop_trim": True, "skip_special_tokens": False},
    ServerKind.VLLM: {
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
    },
}
_CONTINUING: dict[ServerKind, Body] = {
    ServerKind.SGLANG: {"continue_final_message": True},
    ServerKind.VLLM: {"continue_final_message": True, "add_generation_prompt": False},
}


def request_body(
    prompt: str | ChatConversation,
    *,
    model: str,
    sampling: SamplingParams,
    max_tokens: int,
    stop: Sequence[str],
    kind: ServerKind,
    template: Mapping[str, Any],
) -> Body:
    """Body of POST /v1/completions, or of POST /v1/chat/completions for a conversation.

    template: variables of the chat template; the key is sent only with some, since the API itself
    does not name it. A temperature and a top_p of 1 are the API's defaults, and whole model
    families refuse them. A self-hosted server has other defaults, from its generation_config.json.
    """
    body: Body = {"model": model}
    if isinstance(prompt, str):
        body["prompt"] = prompt
    else:
        body["messages"] = list(prompt.messages)
        if prompt.tools:
            body["tools"] = list(prompt.tools)
        if template:
            body[TEMPLATE] = dict(template)
        if prompt.continues:
            body |= _CONTINUING.get(kind, {})
    body |= {
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max_tokens,
        **_KEEPING.get(kind, {}),
    }
    if stop:
        body["stop"] = list(stop[:MOST_STOPS])
    says = kind is not ServerKind.OTHER
    chosen = {
        "temperature": sampling.temperature if says or sampling.temperature != 1 else None,
        "top_p": sampling.top_p if says or sampling.top_p != 1 else None,
        "seed": sampling.seed,
        # Keys that the API does not name are sent only if they change something.
        "top_k": sampling.top_k if (sampling.top_k or -1) > 0 else None,
        "min_p": sampling.min_p or None,
        "repetition_penalty": None
        if sampling.repetition_penalty == 1
        else sampling.repetition_penalty,
    }
    return body | {name: value for name, value in chosen.items() if value is not None}
