"""Rewards and ends of trajectories: JSON bodies to requests of the engine. Pure.

A reward belongs to the whole trajectory, or to the response that `response_id` names. The second
kind is a part with the turn of its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ingress.dialects.reading import number_at, objects, text_at, whole_at
from ingress.errors import ApiError, wrong
from ingress.response_ids import node_of
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.limits import MOST_CHOICES, MOST_PARTS
from toolwright.ingress.v1 import ingress_pb2 as pb

MOST_BYTES = 1 << 20
"""Bytes of a body."""
_LARGEST = 1e308
_OUTCOMES: Mapping[str, pb.Outcome.ValueType] = {
    "done": pb.OUTCOME_DONE,
    "failed": pb.OUTCOME_FAILED,
    "timed_out": pb.OUTCOME_TIMED_OUT,
    "infrastructure": pb.OUTCOME_INFRASTRUCTURE,
}
AGENT_OUTCOMES = ("done", "failed")
"""Outcomes that an agent itself may give: the others could spare it a bad reward."""


def read_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object of a body; empty for no body. Raises ApiError."""
    if len(body) > MOST_BYTES:
        raise ApiError(f"the body has {len(body)} bytes; {MOST_BYTES} are the most", status=413)
    try:
        found = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError("the body must be a JSON object")
    return found


def report_of(body: Mapping[str, Any], key: str) -> pb.ReportRequest:
    """The report of {"reward", "parts", "response_id", "choice"}. Raises ApiError.

    reward: a number. parts: objects with "name", "value" and perhaps "turn". response_id: id of the
    response whose turn the reward and the parts without a turn belong to. choice: number of the
    completion among the response's, from 0.
    """
    reward = number_at(body, "reward", -_LARGEST, _LARGEST)
    parts = [*_parts(objects(body, "parts", MOST_PARTS))]
    if reward is None and not parts:
        raise wrong("reward", 'a number is needed, or "parts"')
    response = text_at(body, "response_id")
    if not response:
        return pb.ReportRequest(key=key, reward=reward, parts=parts)
    node = node_of(response)
    if node is None:
        raise wrong("response_id", "no response has this id")
    if reward is not None:
        parts.append(trajectory_pb2.RewardPart(name="reward", value=reward))
    node += whole_at(body, "choice", 0, MOST_CHOICES - 1) or 0
    return pb.ReportRequest(key=key, parts=parts, node=node)


def _parts(given: list[Mapping[str, Any]]) -> Iterator[trajectory_pb2.RewardPart]:
    for at, one in enumerate(given):
        value = number_at(one, "value", -_LARGEST, _LARGEST)
        name = text_at(one, "name", f"parts[{at}].")
        if value is None or not name:
            raise wrong(f"parts[{at}]", "it needs a name and a value")
        yield trajectory_pb2.RewardPart(name=name, value=value, turn=whole_at(one, "turn", 0))


def end_of(body: Mapping[str, Any], key: str, *, by_agent: bool) -> pb.EndedRequest:
    """The end of {"outcome", "error", "answer"}; "done" without an outcome. by_agent: the key is
    that of the agent. Raises ApiError."""
    outcome = text_at(body, "outcome") or "done"
    allowed = AGENT_OUTCOMES if by_agent else tuple(_OUTCOMES)
    if outcome not in allowed:
        raise wrong("outcome", f"with this key it must be one of {', '.join(allowed)}")
    answer = body.get("answer")
    return pb.EndedRequest(
        key=key,
        outcome=_OUTCOMES[outcome],
        error=text_at(body, "error"),
        answer=None if answer is None else text_at(body, "answer"),
    )
