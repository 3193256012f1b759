"""The loads allow what they promise, and a loop with barriers plays turn by turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.engine.loads import LOADS
from bench.engine.plan import (
    END_ID,
    Lognormal,
    Mix,
    TrajectoryPlan,
    Turn,
    Work,
    barrier_makespan,
    ideal_makespan,
    make_plan,
)
from bench.engine.processes.bare import LoopWithBarriers
from bench.engine.processes.sampler import PlannedScript
from bench.scripted import ScriptedSampler, Timing
from bench.scripted.types import GenerateRequest
from engine.offline.reference import find

PAPER = {"math": (87, 66), "sql": (111, 91), "deepsearch": (193, 98)}
TWO = TrajectoryPlan(
    number=0,
    turns=(Turn(action_tokens=16, tool_ms=3000, answer_tokens=5), Turn(action_tokens=8)),
    seconds=6.0,
)
OTHER = TrajectoryPlan(
    number=1,
    turns=(Turn(action_tokens=8, tool_ms=1000, answer_tokens=5), Turn(action_tokens=24)),
    seconds=5.0,
)
LONE = TrajectoryPlan(number=2, turns=(Turn(action_tokens=40),), seconds=5.0)
WORK = Work(trajectories=3, mix=LOADS["mixed"].mix, chunk=8, rate=8.0)


def work_of(name: str, *, trajectories: int = 128, pace: float = 1.0, seed: int = 0) -> Work:
    load = LOADS[name]
    return load.work(
        trajectories=trajectories, chunk=load.chunk, rate=load.rate, pace=pace, seed=seed, jitter=0
    )


@pytest.mark.parametrize("name", PAPER)
def test_a_scenario_has_the_papers_seconds_and_allows_a_little_more_than_its_speed_up(
    name: str,
) -> None:
    work = work_of(name)
    plans = work.plans()
    before, after = PAPER[name]
    synchronous = barrier_makespan(work, plans)
    assert synchronous == pytest.approx(before, rel=0.02)
    assert 1.02 < synchronous / ideal_makespan(plans, 128) / (before / after) < 1.07


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_figures_are_those_of_the_reference(name: str) -> None:
    _, table = find("verltool:T2")
    cells = [row.cells[LOADS[name].column] for row in table.rows]
    assert tuple(cells) == PAPER[name]


@pytest.mark.parametrize("name", PAPER)
def test_the_pace_shortens_tokens_and_tools_alike(name: str) -> None:
    one, four = (work_of(name, trajectories=32, pace=pace, seed=3) for pace in (1.0, 4.0))
    slow, fast = ideal_makespan(one.plans(), 32), ideal_makespan(four.plans(), 32)
    assert slow == pytest.approx(4 * fast, rel=0.001)
    assert barrier_makespan(one, one.plans()) == pytest.approx(
        4 * barrier_makespan(four, four.plans()), rel=0.001
    )


@pytest.mark.parametrize("name", PAPER)
def test_no_plan_is_longer_than_its_scenario_says(name: str) -> None:
    mix = LOADS[name].mix
    for plan in work_of(name, trajectories=200, seed=1).plans():
        assert mix.turns[0] <= len(plan.turns) <= mix.turns[1]
        for turn in plan.turns:
            assert mix.action.least <= turn.action_tokens <= mix.action.most
            assert turn.tool_ms <= 1000 * mix.tool_s.most


def test_who_shares_a_factor_is_slow_in_every_turn() -> None:
    same = Lognormal(median=100, sigma=0.0, least=1, most=10**6, shared=0.5)
    flat = Lognormal(median=1.0, sigma=0.0, least=0.0, most=9.0)
    mix = Mix(turns=(3, 3), action=same, tool_s=flat, answer=replace(flat, median=40))
    plans = [make_plan(Work(trajectories=9, mix=mix, rate=25.0), number) for number in range(9)]
    lengths = [{turn.action_tokens for turn in plan.turns} for plan in plans]
    assert all(len(own) == 1 for own in lengths)
    assert len(set.union(*lengths)) > 5


def test_barriers_cost_the_longest_action_and_the_longest_call_of_every_turn() -> None:
    assert barrier_makespan(WORK, [TWO, OTHER, LONE]) == 5.0 + 3.0 + 3.0
    assert barrier_makespan(WORK, [LONE]) == 5.0
    assert barrier_makespan(WORK, []) == 0.0


async def test_with_barriers_no_tool_begins_before_all_have_written() -> None:
    work = work_of("sql", trajectories=6, pace=400.0, seed=1)
    plans = work.plans()
    written: list[float] = []

    class Watch:
        def asked(self, request: GenerateRequest) -> None:
            pass

        def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
            written.append(written_ns / 1e9)

    async with ScriptedSampler(
        script=PlannedScript(plans),
        timing=Timing(tokens_per_second=work.rate, tokens_per_chunk=work.chunk),
        eos=(END_ID,),
        record=0,
        watch=Watch(),
    ) as sampler:
        player = LoopWithBarriers(work, sampler.url, 6)
        figures = await player.play()
    assert figures["wrong_tokens"] == 0
    tools = figures["tools"]
    assert len(tools) == sum(len(plan.turns) - 1 for plan in plans) > 0
    first = [one for one in tools if one[1] == 0]
    later = [one for one in tools if one[1] == 1]
    assert max(ended for *_, ended in first) <= min(began for _, _, began, _ in later)
    assert max(written[: len(plans)]) <= min(began for _, _, began, _ in first)
