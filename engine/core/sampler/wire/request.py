"""The body of POST /generate as SGLang 0.5.13 and newer take it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from engine.types import Images
from toolwright.types import SamplingParams

MAX_STOPS = 32
"""Most stop texts that SGLang takes. The engine finds every stop itself; a server that knows the
stop merely writes fewer superfluous tokens."""

NO_ADAPTER = "LoRA adapter"
"""Part of SGLang's refusals of a request that names an adapter which the server does not have."""


def generate_request(
    *,
    rid: str,
    input_ids: Sequence[int],
    sampling: SamplingParams,
    max_new_tokens: int,
    stop_token_ids: Sequence[int],
    stop: Sequence[str] = (),
    stream_interval: int = 1,
    routing_key: str = "",
    images: Images | None = None,
    top_logprobs: int = 0,
    adapter: str = "",
    grammar: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """The body: token ids in, token ids and log-probs out, streamed. `encode` turns it into bytes.

    images: go with the ids, which have one placeholder for each. The server expands each
    placeholder and leaves the other ids unchanged. top_logprobs: number of log-probs of the
    likeliest tokens for each token. adapter: name of the run's adapter, unless `sampling` names
    another. grammar: (name of the sampling parameter, its value).
    """
    params: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "stop_token_ids": list(stop_token_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "stream_interval": stream_interval,
    }
    if grammar is not None:
        params[grammar[0]] = grammar[1]
    if stop:
        params["stop"] = list(stop[:MAX_STOPS])
    chosen = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "sampling_seed": sampling.seed,
    }
    params |= {name: value for name, value in chosen.items() if value is not None}
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": numbers(input_ids) if isinstance(input_ids, array) else list(input_ids),
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "sampling_params": params,
    }
    if images is not None:
        body["image_data"] = list(images.data)
        if images.return_prompt_ids:
            # Every chunk then repeats them, so they are requested only if they hold something new.
            body["return_prompt_token_ids"] = True
    if top_logprobs:
        body["top_logprobs_num"] = top_logprobs
    if routing_key:
        body["routing_key"] = routing_key
    if named := sampling.adapter or adapter:
        body["lora_path"] = named
    return body


def encode(body: object) -> bytes:
    """JSON of a body, its numpy arrays included."""
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def numbers(token_ids: array[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """A view of the ids. Its JSON and its largest id cost a fifth of those of Python numbers.

    The array must not grow while the view lives.
    """
    return np.asarray(token_ids, dtype=np.int32)
