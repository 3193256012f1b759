"""Parts of the events of SGLang 0.5.23's native /generate wire, and their bytes.

Pure: no I/O, no clock, no state. The answers are those of a server without a tokenizer: they have
no "text".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from bench.scripted.types import FinishReason, GenerateRequest, Token

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


def logprobs_body(
    tokens: Sequence[Token], total: int, request: GenerateRequest
) -> dict[str, object]:
    """The part of meta_info with the log-probs of tokens; empty unless the request wants them."""
    if not request.return_logprob:
        return {}
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


def stream_error_body(message: str, *, kind: str = "invalid_request_error") -> dict[str, object]:
    """The event of a stream that failed; its HTTP status was 200."""
    return {"error": {"message": message, "type": kind, "code": 400, "retryable": False}}


def event(body: Mapping[str, object]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"
