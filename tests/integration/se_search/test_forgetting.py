"""A search agent whose context forgets documents, from the real tool to a step of the learner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.scripted import ScriptRequest
from learner.config.objective import Advantage, Credit, Kl, Loss
from learner.config.weights import Optimizer
from learner.credit.assign import assigned
from learner.metrics import sequence_stats
from learner.model.policy import load_policy
from learner.training.batch import rows_of
from learner.training.minibatch import MiniBatch, counts_of
from learner.training.objective import PolicyObjective
from learner.training.update import improve
from tests.integration.engine.conftest import MakeWorld
from tests.integration.learner.models import write_model
from tests.integration.se_search.test_searching import FIRST, LAST, SECOND, index, rolled_out
from toolwright.types import Group, StopReason

pytestmark = pytest.mark.slow

__all__ = ["index"]

WAYS = [
    [FIRST, SECOND, LAST],
    ["<search>instruments with strings</search>", SECOND, "<answer>Rome</answer>"],
]
OPTIONS = {"t_max": 2, "prompt": "Question: {question}", "forget_above": 300}


async def test_documents_are_forgotten_and_each_completion_is_trained_once(
    world: MakeWorld, index: Path, one_rank: None, tmp_path: Path
) -> None:
    here = await world()
    said: dict[str, list[str]] = {}
    left = iter(WAYS)

    def script(request: ScriptRequest) -> Sequence[int]:
        if request.conversation not in said:
            said[request.conversation] = list(next(left))
        return here.codec.encode(said[request.conversation].pop(0))

    members = await rolled_out(here, index, WAYS, script, protocol_options=OPTIONS)
    rows = [rows_of(one, temperature=1.0) for one in members]
    for way, member, own in zip(WAYS, members, rows, strict=True):
        assert member.stop_reason is StopReason.ANSWERED
        assert len(member.sequences) == 2
        trained = [here.codec.decode(row.tokens[row.target]) for row in own]
        assert trained == [way[0] + way[1], way[2]]
        new = here.codec.decode(member.sequences[1].token_ids)
        assert new.count("<documents>") == 1, "the last ones, which no note is about"
        assert "<memory>A violin is a wooden instrument.</memory>" in new
        assert "<search>" not in new
    assert sequence_stats(members)["forks/full"] == 1.0

    group = Group(id=members[0].group_id, trajectories=tuple(members))
    batch, _ = assigned([row for own in rows for row in own], [group], Advantage(), Credit())
    loss = Loss(aggregation="seq-mean-token-mean")
    weighed = MiniBatch(batch, counts_of(batch, drop_silent=False), loss, all_rows=True).weighed()
    for member in members:
        own = [row.weight * row.count for row in weighed if row.trajectory == member.id]
        assert len(own) == 2
        assert sum(own) == pytest.approx(1 / 2)

    size = {"vocab_size": here.codec.vocab_size, "max_position_embeddings": 1024}
    policy = load_policy(write_model(tmp_path / "model", **size), Optimizer(lr=1e-3), "float32")
    done = improve(
        policy,
        batch,
        PolicyObjective(loss=loss, kl=Kl(), correction="bypass"),
        reference=None,
        updates=1,
        budget=2048,
        step=0,
        steps=1,
        drop_silent=False,
    )
    assert (done.moved, done.dropped) == (1, [])
    assert done.sums["tokens"] == sum(one.response_tokens for one in members)
