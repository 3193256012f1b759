"""The native /generate wire of SGLang 0.5.13 and newer: requests out, streamed chunks in.

Pure. Both shapes of the stream are read: deltas (`--incremental-streaming-output`) and the
cumulative default. Drift between what was received and what the server counted is an error,
never guessed away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from engine.types import Images
from toolwright.types import FinishKind, FinishReason, SamplingParams

DONE = b"[DONE]"
MAX_STOPS = 32
"""Stop texts that SGLang takes. The engine finds every stop itself; a server that knows it too
only writes less that nobody keeps."""


class WireError(Exception):
    """The server's answer is not what the wire promises, or is an error event."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one event added. token_ids, logprobs: [n]; weight_spans: (version, start, end).

    prompt_tokens: what the server counted before them, 0 where it does not say; prompt_ids: those
    tokens, where they were asked for.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    weight_version: str
    finish: FinishReason | None
    weight_spans: tuple[tuple[str, int, int], ...] = ()
    prompt_tokens: int = 0
    prompt_ids: Sequence[int] = ()


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
) -> dict[str, Any]:
    """Body of POST /generate: token ids in, token ids and log-probs out, streamed.

    `images` go with the ids, which have one placeholder for each: the server puts as many as the
    image takes and leaves the other ids as they are.
    """
    params: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "stop_token_ids": list(stop_token_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
        "stream_interval": stream_interval,
    }
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
        "input_ids": list(input_ids),
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "sampling_params": params,
    }
    if images is not None:
        body["image_data"] = list(images.data)
        if images.tell_prompt:
            # Every chunk then repeats them: asked for only where something is new in them.
            body["return_prompt_token_ids"] = True
    if routing_key:
        body["routing_key"] = routing_key
    if sampling.adapter:
        body["lora_path"] = sampling.adapter
    return body


class EventSplitter:
    """Bytes of a server-sent event stream to payloads; holds at most one partial event."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Payloads of the events that `data` completes, `[DONE]` included."""
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for event in whole:
            event = event.strip()
            if event.startswith(b"data:"):
                yield event[5:].strip()


class ChunkReader:
    """Events of one request to chunks; knows how many tokens came so far."""

    def __init__(self, *, incremental: bool) -> None:
        self._incremental = incremental
        self.received = 0

    def read(self, payload: bytes) -> Chunk:
        """WireError for an error event, drift, or log-probs that do not fit the tokens."""
        try:
            event: Mapping[str, Any] = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise WireError(f"event is not JSON: {payload[:80]!r}") from error
        if "error" in event:
            raise _error_event(event["error"])
        try:
            meta = event["meta_info"]
            token_ids = event["output_ids"]
            pairs = meta.get("output_token_logprobs") or []
            completion = meta["completion_tokens"]
            reason = meta["finish_reason"]
        except (KeyError, TypeError) as error:
            raise WireError(f"event lacks {error}: {payload[:200]!r}") from error
        if reason is not None and reason.get("type") == "abort" and completion == self.received:
            # A request aborted while a pause had sent it to the queue ends with its last token
            # and all its log-probs once more.
            token_ids, pairs = [], []
        elif not self._incremental:
            token_ids, pairs = token_ids[self.received :], pairs[self.received :]
        if len(pairs) != len(token_ids):
            raise WireError(f"{len(token_ids)} tokens came with {len(pairs)} log-probs")
        logprobs = [pair[0] for pair in pairs]
        if None in logprobs or [pair[1] for pair in pairs] != token_ids:
            raise WireError(f"the log-probs are not those of the tokens: {payload[:200]!r}")
        self.received += len(token_ids)
        if self.received != completion:
            raise WireError(
                f"received {self.received} tokens, the server counted {completion}; "
                "does /server_info tell the true stream shape?"
            )
        return Chunk(
            token_ids=token_ids,
            logprobs=logprobs,
            weight_version=meta.get("weight_version") or "",
            finish=_finish(reason) if reason is not None else None,
            weight_spans=tuple(
                (span["version"], span["start"], span["end"])
                for span in meta.get("weight_versions") or ()
            ),
            prompt_tokens=meta.get("prompt_tokens") or 0,
            prompt_ids=event.get("prompt_token_ids") or (),
        )


def _finish(reason: Mapping[str, Any]) -> FinishReason:
    kind = reason.get("type")
    if kind == "length":
        return FinishReason(kind=FinishKind.LENGTH)
    if kind == "abort":
        return FinishReason(kind=FinishKind.ABORT)
    matched = reason.get("matched")
    if isinstance(matched, str):
        return FinishReason(kind=FinishKind.STOP, matched_text=matched)
    if isinstance(matched, list):
        matched = matched[-1] if matched else None
    return FinishReason(kind=FinishKind.STOP, matched_token=matched)


def _error_event(error: Any) -> WireError:
    if isinstance(error, Mapping):
        return WireError(
            str(error.get("message", error)), retryable=bool(error.get("retryable", True))
        )
    return WireError(str(error))
