"""The scripted sampler's script: it says what the plan of a trajectory says."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from bench.engine.plan import STOP_ID
from bench.scripted.script import default_logprob
from bench.scripted.types import ScriptRequest, Token
from tests.chaos.workload import Plan, Workload


@lru_cache(maxsize=2048)
def _plan(trajectory: str) -> Plan:
    return Workload.here().plan(trajectory)


def reply(request: ScriptRequest) -> Iterable[Token]:
    """The sampler's script. ValueError for ids that no trajectory has."""
    plan = _plan(request.conversation.rpartition("/")[0])
    ids = request.input_ids
    turn = ids.count(STOP_ID)
    begins = plan.length_before(turn)
    action = plan.action(turn, ids[:begins])
    said = len(ids) - begins
    if said < 0 or list(ids[begins:]) != action[:said]:
        raise ValueError(f"the ids of {request.conversation}, turn {turn}, are not planned")
    return [Token(i, default_logprob(i, place)) for place, i in enumerate(action)][said:]
