"""`bench rollouts`: what the scenarios allow, the order that barriers force, and the report."""

from __future__ import annotations

import re
from dataclasses import replace

import aiohttp
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.makespan.figures import Bar
from bench.makespan.plan import (
    END_ID,
    Lognormal,
    Mix,
    Plan,
    Turn,
    Workload,
    ideal_makespan,
    make_plan,
)
from bench.makespan.sampler import PlannedScript
from bench.makespan.wrong import wrong_tokens
from bench.rollouts.lockstep import Lockstep, synchronous_makespan
from bench.rollouts.measure import Loop, Report, Row
from bench.rollouts.report import lines, page, remarks
from bench.rollouts.scenarios import SCENARIOS, TRAJECTORIES
from bench.scripted import ScriptedSampler, Timing
from bench.scripted.types import GenerateRequest
from engine.offline.reference import find

PAPER = {"math": (87, 66), "sql": (111, 91), "deepsearch": (193, 98)}
TWO = Plan(
    number=0,
    turns=(Turn(action_tokens=16, tool_ms=3000, answer_tokens=5), Turn(action_tokens=8)),
    seconds=6.0,
)
OTHER = Plan(
    number=1,
    turns=(Turn(action_tokens=8, tool_ms=1000, answer_tokens=5), Turn(action_tokens=24)),
    seconds=5.0,
)
LONE = Plan(number=2, turns=(Turn(action_tokens=40),), seconds=5.0)
WORKLOAD = Workload(trajectories=3, chunk=8, rate=8.0)


def loop(makespan_s: float, allowed_s: float, **changes: object) -> Loop:
    bar = Bar(number=0, generate=((0.0, 1.0),), tool=(), planned_generate_s=1, planned_tool_s=0)
    whole = Loop(
        makespan_s=makespan_s,
        allowed_s=allowed_s,
        wrong_tokens=0,
        not_completed=0,
        load=0.5,
        bars=[bar],
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def row(asynchronous: Loop) -> Row:
    return Row(
        scenario="math",
        trajectories=128,
        pace=4.0,
        seed=0,
        tokens=9,
        calls=7,
        synchronous=loop(20.2, 20.0),
        asynchronous=asynchronous,
        paper={"synchronous": 87, "asynchronous": 66},
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_has_the_papers_seconds_and_allows_a_little_more_than_its_speed_up(
    name: str,
) -> None:
    workload = SCENARIOS[name].workload(trajectories=TRAJECTORIES, pace=1.0, seed=0)
    plans = workload.plans()
    before, after = PAPER[name]
    synchronous = synchronous_makespan(workload, plans)
    assert synchronous == pytest.approx(before, rel=0.02)
    assert 1.02 < synchronous / ideal_makespan(plans, TRAJECTORIES) / (before / after) < 1.07


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_papers_figures_are_those_of_the_reference(name: str) -> None:
    _, table = find("verltool:T2")
    cells = [row.cells[SCENARIOS[name].set] for row in table.rows]
    assert tuple(cells) == PAPER[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_pace_shortens_tokens_and_tools_alike(name: str) -> None:
    one, four = (
        SCENARIOS[name].workload(trajectories=32, pace=pace, seed=3) for pace in (1.0, 4.0)
    )
    slow, fast = ideal_makespan(one.plans(), 32), ideal_makespan(four.plans(), 32)
    assert slow == pytest.approx(4 * fast, rel=0.001)
    assert synchronous_makespan(one, one.plans()) == pytest.approx(
        4 * synchronous_makespan(four, four.plans()), rel=0.001
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_plan_is_longer_than_its_scenario_says(name: str) -> None:
    mix = SCENARIOS[name].mix
    for plan in SCENARIOS[name].workload(trajectories=200, pace=1.0, seed=1).plans():
        assert mix.turns[0] <= len(plan.turns) <= mix.turns[1]
        for turn in plan.turns:
            assert mix.action.least <= turn.action_tokens <= mix.action.most
            assert turn.tool_ms <= 1000 * mix.tool_s.most


def test_who_shares_a_factor_is_slow_in_every_turn() -> None:
    same = Lognormal(median=100, sigma=0.0, least=1, most=10**6, shared=0.5)
    flat = Lognormal(median=1.0, sigma=0.0, least=0.0, most=9.0)
    mix = Mix(turns=(3, 3), action=same, tool_s=flat, answer=replace(flat, median=40))
    plans = [make_plan(Workload(trajectories=9, mix=mix), number) for number in range(9)]
    lengths = [{turn.action_tokens for turn in plan.turns} for plan in plans]
    assert all(len(own) == 1 for own in lengths)
    assert len(set.union(*lengths)) > 5


def test_barriers_cost_the_longest_action_and_the_longest_call_of_every_turn() -> None:
    assert synchronous_makespan(WORKLOAD, [TWO, OTHER, LONE]) == 5.0 + 3.0 + 3.0
    assert synchronous_makespan(WORKLOAD, [LONE]) == 5.0
    assert synchronous_makespan(WORKLOAD, []) == 0.0


async def test_in_lockstep_no_tool_begins_before_all_have_written() -> None:
    workload = SCENARIOS["sql"].workload(trajectories=6, pace=400.0, seed=1)
    plans = workload.plans()
    written: list[float] = []

    class Watch:
        def asked(self, request: GenerateRequest) -> None:
            pass

        def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
            written.append(written_ns / 1e9)

    async with ScriptedSampler(
        script=PlannedScript(plans),
        timing=Timing(tokens_per_second=workload.rate, tokens_per_chunk=workload.chunk),
        eos=(END_ID,),
        record=0,
        watch=Watch(),
    ) as sampler:
        player = Lockstep(workload, sampler.url, 6)
        figures = await player.play()
        async with aiohttp.ClientSession() as session:
            said = await player.all_of(session, plans)
    assert figures["wrong_tokens"] == 0
    assert [wrong_tokens(plan, own) for plan, own in zip(plans, said, strict=True)] == [0] * 6
    calls = sum(len(plan.turns) - 1 for plan in plans)
    tools = figures["tools"]
    assert len(tools) >= calls > 0
    first = [one for one in tools[:calls] if one[1] == 0]
    later = [one for one in tools[:calls] if one[1] == 1]
    assert max(ended for *_, ended in first) <= min(began for _, _, began, _ in later)
    assert max(written[: len(plans)]) <= min(began for _, _, began, _ in first)


def test_the_table_has_ours_beside_what_the_work_allows_and_the_paper() -> None:
    text = list(lines(Report(rows=(row(loop(15.0, 14.9)),), machine="m", versions={})))
    assert text[1].split() == [
        "math", "20.2", "20.0", "15.0", "14.9", "1.35", "1.34", "87", "to", "66", "1.32", "0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asynchronous", "words"),
    [
        (loop(15.5, 14.9), "the engine was late"),
        (loop(15.0, 14.9, not_completed=2), "2 trajectories did not come to their end"),
    ],
)
def test_what_spoils_a_row_is_said(asynchronous: Loop, words: str) -> None:
    assert not any(words in remark for remark in remarks(row(loop(15.0, 14.9))))
    assert any(words in remark for remark in remarks(row(asynchronous)))


def test_the_page_has_both_timelines_and_needs_nothing_else() -> None:
    text = page(Report(rows=(row(loop(15.0, 14.9)),), machine="two cores", versions={"x": "1"}))
    assert text.count("<svg") == 2
    assert not re.search(r"(?:src|href)=", text)


def test_a_scenario_that_is_none_is_named_with_those_that_are() -> None:
    done = CliRunner().invoke(app, ["rollouts", "chess"])
    assert done.exit_code == 2
    assert done.output == "bench: chess is no scenario: there are math, sql, deepsearch\n"


def test_help_says_what_is_compared() -> None:
    text = CliRunner().invoke(app, ["rollouts", "--help"], env={"COLUMNS": "200"}).output
    for word in ("Batch-synchronous", "2509.01055", "--pace", "deepsearch"):
        assert word in text
