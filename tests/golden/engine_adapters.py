"""Golden examples of what the engine computes; see adapters.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.core.branching.entropy import branch_decision, entropy
from engine.core.rewards.overlong import overlong
from engine.core.rollout.decide import response_room
from engine.core.rollout.view import fit_prefix
from engine.core.text.cut import stop_cut, truncate_observation
from engine.core.trajectory.events import Acted, Appended, Ended, Opened
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.record import Identity, record
from engine.offline.analyze.power_law import power_law
from engine.serving.admission.capacity import staleness_room
from engine.serving.admission.dynamic_sampling import dapo_filter
from toolwright.recipe import Limits
from toolwright.types import (
    Author,
    FinishKind,
    FinishReason,
    SamplingParams,
    StopReason,
    Task,
    WeightVersion,
    floats,
    ids,
)

STOP = FinishReason(kind=FinishKind.STOP)
VERSION = WeightVersion(lineage="golden", step=0)


def _staleness_capacity(max_concurrent: int, accepted: int, running: int, **formula: int) -> int:
    """Places are members' own; the other term is `staleness_room`."""
    return min(
        max_concurrent - running, staleness_room(accepted=accepted, running=running, **formula)
    )


def _opened(prompt: Sequence[int]) -> AttemptLog:
    log = AttemptLog("golden/0")
    log.append(Opened(sessions=(), prompt=ids(prompt), sampling=SamplingParams()))
    return log


def _act(log: AttemptLog, token_ids: Sequence[int]) -> None:
    count = len(token_ids)
    log.append(
        Acted(
            token_ids=ids(token_ids),
            logprobs=floats([0.0] * count),
            versions=((VERSION, count),) if count else (),
            finish=STOP,
            text="",
        )
    )


def _observe(log: AttemptLog, token_ids: Sequence[int], room: int) -> bool:
    kept = fit_prefix(list(token_ids), room, None, 1)
    log.append(Appended(token_ids=ids(kept), author=Author.TOOL))
    return len(kept) == len(token_ids)


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
    limits = Limits(response=max_response, model=10**9)
    log = _opened(prompt)
    stop = "done"
    for action, observation in turns:
        _act(log, action[: response_room(log.state, limits)])
        if observation is None:
            break
        body = truncate_observation(observation, limit=max_obs, marker=[], keep="head")
        if not _observe(log, body, response_room(log.state, limits)):
            stop = "max_response_length"
            break
    log.append(Ended(reason=StopReason.ANSWERED))
    identity = Identity(
        trajectory_id="golden", group_id="golden", index=0, attempt=0,
        task=Task(id="golden"), tokenizer_hash="",
    )  # fmt: skip
    (sequence,) = record(log.state, identity).sequences
    return {
        "ids": list(sequence.token_ids),
        "loss_mask": [int(mark) for mark in sequence.loss_mask],
        "action_spans": [[start, end] for _, start, end in sequence.action_spans],
        "stop": stop,
    }


def _retokenization(vocab: Mapping[str, int], action: str, obs: str) -> dict[str, Any]:
    """What a log keeps beside what one encoding of the joined text would give."""
    log = _opened([])
    _act(log, _longest_match(vocab, action))
    _observe(log, _longest_match(vocab, obs), 10**9)
    concat = log.state.token_ids.tolist()
    joint = _longest_match(vocab, action + obs)
    return {"concat": concat, "joint": joint, "same": concat == joint}


def _longest_match(vocab: Mapping[str, int], text: str) -> list[int]:
    ids = []
    while text:
        word = max((w for w in vocab if text.startswith(w)), key=len)
        ids.append(vocab[word])
        text = text[len(word) :]
    return ids


ENGINE_ADAPTERS: dict[str, Callable[..., Any]] = {
    "mtr.power_law": lambda frequencies: asdict(power_law(frequencies)),
    "common.arpo_branch": lambda **given: asdict(branch_decision(**given)),
    "common.arpo_entropy": entropy,
    "common.staleness_capacity": _staleness_capacity,
    "common.dapo_filter": lambda pairs: dapo_filter([(g, v) for g, v in pairs]),
    "common.overlong": overlong,
    "verltool.stop_cut": _stop_cut,
    "verltool.assemble": _assemble,
    "verltool.truncate_observation": truncate_observation,
    "verltool.retokenization": _retokenization,
}
