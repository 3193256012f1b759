"""Golden examples of what the engine computes; see adapters.py."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.lanes.capacity import staleness_capacity
from engine.rollout.transcript import Transcript
from engine.text.cut import stop_cut, truncate_observation
from engine.types import Generated
from toolwright.types import FinishKind, FinishReason, WeightVersion

STOP = FinishReason(kind=FinishKind.STOP)
VERSION = WeightVersion(lineage="golden", step=0)


def _generated(token_ids: Sequence[int]) -> Generated:
    count = len(token_ids)
    return Generated(
        token_ids=array("i", token_ids),
        logprobs=array("f", [0.0] * count),
        versions=((VERSION, count),) if count else (),
        finish=STOP,
    )


def _stop_cut(text: str, stops: Sequence[str]) -> dict[str, Any]:
    kept, stop, rest = stop_cut(text, stops)
    return {"text": kept, "stop": stop, "rest": rest}


def _assemble(
    prompt: list[int],
    turns: Sequence[tuple[list[int], list[int] | None]],
    max_response: int,
    max_obs: int,
) -> dict[str, Any]:
    """A turn is [action, observation]; the last one has no observation."""
    transcript = Transcript(prompt, response=max_response, model=10**9)
    stop = "done"
    for turn, (action, observation) in enumerate(turns):
        room = transcript.response_room
        transcript.append_action(_generated(action[:room]), turn=turn)
        if observation is None:
            break
        body = truncate_observation(observation, limit=max_obs, marker=[], keep="head")
        if not transcript.append_observation(body, turn=turn):
            stop = "max_response_length"
            break
    sequence = transcript.sequence("golden")
    return {
        "ids": list(sequence.token_ids),
        "loss_mask": [int(mark) for mark in sequence.loss_mask],
        "action_spans": [[start, end] for _, start, end in sequence.action_spans],
        "stop": stop,
    }


def _retokenization(vocab: Mapping[str, int], action: str, obs: str) -> dict[str, Any]:
    """What the transcript keeps beside what one encoding of the joined text would give."""
    transcript = Transcript([], response=10**9, model=10**9)
    transcript.append_action(_generated(_longest_match(vocab, action)), turn=0)
    transcript.append_observation(_longest_match(vocab, obs), turn=0)
    joint = _longest_match(vocab, action + obs)
    return {
        "concat": transcript.token_ids,
        "joint": joint,
        "same": transcript.token_ids == joint,
    }


def _longest_match(vocab: Mapping[str, int], text: str) -> list[int]:
    ids = []
    while text:
        word = max((w for w in vocab if text.startswith(w)), key=len)
        ids.append(vocab[word])
        text = text[len(word) :]
    return ids


ENGINE_ADAPTERS: dict[str, Callable[..., Any]] = {
    "common.staleness_capacity": staleness_capacity,
    "verltool.stop_cut": _stop_cut,
    "verltool.assemble": _assemble,
    "verltool.truncate_observation": truncate_observation,
    "verltool.retokenization": _retokenization,
}
