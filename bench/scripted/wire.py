"""The events of SGLang 0.5.23's native /generate wire, as bytes.

Owns the shape of every event of a reply. Pure: no I/O, no clock, no state. Invariant: a chunk's
totals are absolute in both stream shapes, only its lists are deltas in the incremental one. The
answers are those of a server without a tokenizer: there is no "text".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import orjson

from bench.scripted.types import FinishReason, GenerateRequest, Token, WeightSpan

DONE = b"data: [DONE]\n\n"


def finish_body(finish: FinishReason) -> dict[str, object]:
    """The JSON object of a finish reason."""
    match finish.kind:
        case "stop":
            return {"type": "stop", "matched": finish.matched}
        case "length":
            return {"type": "length", "length": finish.length}
        case _:
            return {
                "type": "abort",
                "message": finish.message,
                "status_code": None,
                "err_type": None,
            }


def triples(tokens: Iterable[Token]) -> list[tuple[float, int, None]]:
    """[log-prob, id, text] per token, as the wire has them."""
    return [(token.logprob, token.id, None) for token in tokens]


def _logprobs(request: GenerateRequest, tokens: Sequence[Token], total: int) -> dict[str, object]:
    """What meta_info holds of them."""
    meta: dict[str, object] = {
        "input_token_logprobs": [],
        "output_token_logprobs": triples(tokens),
        "output_token_logprobs_length": total,
    }
    if request.top_logprobs:
        meta["input_top_logprobs"] = []
        meta["output_top_logprobs"] = [
            [(logprob, i, None) for i, logprob in token.likeliest(request.top_logprobs)]
            for token in tokens
        ]
    return meta


def spans_body(spans: Iterable[WeightSpan]) -> list[dict[str, object]]:
    """The list under weight_versions."""
    return [{"version": s.version, "start": s.start, "end": s.end} for s in spans]


def chunk_body(
    *,
    request: GenerateRequest,
    tokens: Sequence[Token],
    total: int,
    weight_version: str,
    cached_tokens: int,
    num_retractions: int,
    sent_at: float | None,
) -> dict[str, object]:
    """One answer object: `tokens` are what this chunk shows, `total` counts the whole reply.

    `sent_at` (seconds since the epoch) stands in the first event of a stream only.
    """
    meta: dict[str, object] = {
        "id": request.rid,
        "finish_reason": None,
        "prompt_tokens": len(request.prompt),
        "weight_version": weight_version,
        "num_retractions": num_retractions,
    }
    if request.return_logprob:
        meta |= _logprobs(request, tokens, total)
    meta["reasoning_tokens"] = 0
    meta["completion_tokens"] = total
    meta["cached_tokens"] = cached_tokens
    meta["cached_tokens_details"] = {"device": cached_tokens, "host": 0} if cached_tokens else None
    meta["dp_rank"] = None
    if sent_at is not None:
        meta["response_sent_to_client_ts"] = sent_at
    body: dict[str, object] = {"output_ids": [token.id for token in tokens], "meta_info": meta}
    if request.return_prompt_token_ids:
        body["prompt_token_ids"] = list(request.prompt)
    return body


def finish(
    body: dict[str, object],
    *,
    reason: FinishReason,
    spans: Sequence[WeightSpan],
    weight_version: str,
    e2e_latency: float,
) -> dict[str, object]:
    """Turn a chunk into the final one, in place."""
    meta = cast("dict[str, object]", body["meta_info"])
    meta["finish_reason"] = finish_body(reason)
    meta["weight_versions"] = spans_body(
        spans or [WeightSpan(version=weight_version, start=0, end=0)]
    )
    meta["weight_version"] = spans[-1].version if spans else weight_version
    meta["e2e_latency"] = e2e_latency
    return body


def queue_abort_body(
    *,
    request: GenerateRequest,
    tokens: Sequence[Token],
    incremental: bool,
    weight_version: str,
    spans: Sequence[WeightSpan],
    e2e_latency: float,
) -> dict[str, object]:
    """The last event of a reply that was aborted while it waited in the queue.

    The real server builds it apart from all others: no prompt_tokens, all log-probs, and in the
    incremental shape the last id *again* (an id that the client has already). A client that adds
    it to what it holds has one token too many.
    """
    meta: dict[str, object] = {
        "id": request.rid,
        "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
        "weight_version": spans[-1].version if spans else weight_version,
        "e2e_latency": e2e_latency,
        "weight_versions": spans_body(
            spans or [WeightSpan(version=weight_version, start=0, end=0)]
        ),
        "completion_tokens": len(tokens),
    }
    if request.return_logprob:
        meta |= _logprobs(request, tokens, len(tokens))
    shown = tokens[-1:] if incremental and request.stream else tokens
    return {"text": "", "output_ids": [token.id for token in shown], "meta_info": meta}


def stream_error_body(message: str, *, kind: str = "invalid_request_error") -> dict[str, object]:
    """The event of a stream that failed; its HTTP status was 200."""
    return {"error": {"message": message, "type": kind, "code": 400, "retryable": False}}


def event(body: Mapping[str, object]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"
