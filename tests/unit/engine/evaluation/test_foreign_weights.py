"""A row in which other weights wrote does not count; it is rolled out again.

The sampler client refuses such tokens first (`test_evaluation_faults.py`). Here they get through.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import Suite
from engine.core.protocols.tagged import Tagged
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.assignment import RolloutContext
from engine.core.rollout.decide import Rules
from engine.core.trajectory.events import Ended
from engine.core.trajectory.log import AttemptLog
from engine.serving.admission.places import Places
from engine.serving.crew import in_process as module
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.evaluation.results import Results
from engine.serving.evaluation.suite import SuiteContext, SuiteRun
from engine.serving.evaluation.suite_tasks import SuiteTasks
from tests.support.codecs import END, ToyCodec
from tests.support.written_logs import act, opened
from toolwright.recipe import Limits
from toolwright.types import SamplingParams, StopReason, WeightVersion

VERSION = WeightVersion(lineage="run", step=4)


@pytest.mark.parametrize(
    "foreign",
    [WeightVersion(lineage="fork", step=4), WeightVersion(lineage="run", step=3)],
    ids=["another lineage", "another step"],
)
async def test_a_row_with_foreign_tokens_is_rolled_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: WeightVersion
) -> None:
    writers = [foreign, VERSION]

    async def rolled_out(*_: object, name: str, **__: object) -> tuple[AttemptLog, int]:
        log = opened(attempt=name)
        act(log, f"<answer>2</answer>{END}", END, versions=[(writers.pop(0), 2)])
        log.append(Ended(reason=StopReason.ANSWERED))
        return log, 0

    monkeypatch.setattr(module, "roll_out", rolled_out)
    (tmp_path / "heldout.jsonl").write_text('{"question": "q"}\n', encoding="utf-8")
    (tmp_path / "code.py").write_text("one = lambda t: {'right': 1.0}\n", encoding="utf-8")
    suite = Suite(name="heldout", source="heldout.jsonl", n=1)
    tasks = SuiteTasks(suite, tmp_path, max_bad_rows=0)
    await tasks.open()
    nothing: Any = None
    rules = Rules(protocol=Tagged(), codec=ToyCodec(), limits=Limits(), observation_keep="middle")
    crew = InProcessCrew(
        rollout_context=RolloutContext(
            rules=rules, pool=nothing, tools=nothing, tokenizer_hash="toy"
        ),
        rewards=Rewards("./code.py:one", tmp_path, per_group=False, seconds=5.0, threads=1),
        places=Places(0), life="b1", patience=0.0,
    )  # fmt: skip
    context = SuiteContext(
        sampling=SamplingParams(), results=Results(tmp_path), slots=asyncio.Semaphore(1), samples=0
    )
    run = SuiteRun(context, crew, suite, VERSION, tasks, settings="s")
    assert await run.run()
    assert writers == []
    (file,) = (tmp_path / "evaluations").glob("heldout@*.jsonl")
    (row,) = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert row["versions"] == [str(VERSION)]
