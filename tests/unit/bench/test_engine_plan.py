"""Plans repeat, fit the tokenizer, and show every id that is not planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench.engine.checking import TokenRecord, wrong_tokens
from bench.engine.loads import LOADS, steady
from bench.engine.plan import (
    END_ID,
    SHORTEST_ACTION,
    STOP_ID,
    TrajectoryPlan,
    Turn,
    Work,
    answer_to,
    ideal_makespan,
    number_of,
    read_call,
    text_of,
)
from bench.engine.processes.policy import write_policy
from bench.engine.processes.sampler import PlannedScript
from bench.scripted import ScriptRequest
from bench.scripted.script import default_logprob

MIX = LOADS["mixed"].mix
WORK = Work(trajectories=40, mix=MIX, rate=25.0)
PLANS = WORK.plans()
LONG = max(PLANS, key=lambda plan: len(plan.turns))


def exact(plan: TrajectoryPlan) -> TokenRecord:
    said = TokenRecord()
    for by_policy, ids in plan.runs():
        logprobs = [default_logprob(i, place) for place, i in enumerate(ids)]
        said.add(ids, by_policy, logprobs if by_policy else [0.0] * len(ids))
    return said


def ask(ids: list[int]) -> list[int]:
    request = ScriptRequest(rid="r", conversation="c", turn=0, input_ids=tuple(ids), params={})
    return [token.id for token in PlannedScript(PLANS)(request)]


def test_a_seed_gives_the_same_plans_again_and_another_seed_others() -> None:
    assert WORK.plans() == PLANS
    other = Work(trajectories=40, mix=MIX, rate=25.0, seed=1).plans()
    assert [plan.turns for plan in other] != [plan.turns for plan in PLANS]


def test_work_survives_its_file(tmp_path: Path) -> None:
    work = Work(trajectories=3, mix=MIX, chunk=5, rate=1.5, seed=9, jitter=0.5)
    work.write(tmp_path / "w.json")
    assert Work.read(tmp_path / "w.json") == work


def test_the_tokenizer_numbers_the_tokens_as_the_plan_does(tmp_path: Path) -> None:
    write_policy(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = exact(LONG).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text_of(ids)
    assert tokenizer.encode(text_of(ids), add_special_tokens=False).ids == ids


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"plan{plan.number}")
def test_the_record_is_as_long_as_planned_and_ends_each_action_once(plan: TrajectoryPlan) -> None:
    ids: list[int] = []
    turn = 0
    for by_policy, run in plan.runs():
        if by_policy:
            assert len(ids) == plan.length_before(turn)
            assert len(run) == plan.turns[turn].action_tokens
            last = turn == len(plan.turns) - 1
            assert run[-1] == (END_ID if last else STOP_ID)
            assert not {END_ID, STOP_ID} & set(run[:-1])
            turn += 1
        ids += run
    assert turn == len(plan.turns)
    assert number_of(ids) == plan.number


def test_the_script_says_each_action_to_the_ids_before_it() -> None:
    ids = list(LONG.prompt)
    for turn in range(len(LONG.turns)):
        action = ask(ids)
        assert action == LONG.action(turn, ids)
        assert ask(ids + action[:10]) == action[10:], "a reply that broke goes on where it was"
        ids += action + (LONG.answer(action) if turn < len(LONG.turns) - 1 else [])
    assert ids == exact(LONG).ids


def test_one_other_id_before_an_action_changes_it() -> None:
    ids = exact(LONG).ids[: LONG.length_before(1)]
    ids[40] += 1  # of the prompt
    assert ask(ids)[:2] != LONG.action(1, exact(LONG).ids[: LONG.length_before(1)])[:2]


def test_ids_outside_of_the_plans_are_refused() -> None:
    ids = exact(LONG).ids
    with pytest.raises(ValueError, match="not planned"):
        ask(ids[: LONG.length_before(1) - 1])
    with pytest.raises(ValueError, match="not planned"):
        ask([*ids[: LONG.length_before(1)], 5, 5, 5, 5])
    with pytest.raises(ValueError, match="not with a number"):
        ask(ids[1:])


def test_the_answer_of_the_tool_shows_a_changed_call() -> None:
    call = text_of(LONG.action(0, LONG.prompt))
    assert len(answer_to(call)) == LONG.turns[0].answer_tokens
    assert read_call(call)[:3] == (LONG.number, 0, LONG.turns[0].tool_ms)
    assert answer_to(call[:-12] + "x" + call[-11:]) != answer_to(call)
    for text in ("", "no call", "xx1.2.3/", "xx1.2.3.-4/"):
        with pytest.raises(ValueError, match="no planned call"):
            read_call(text)


def test_what_was_said_as_planned_has_no_wrong_token() -> None:
    assert wrong_tokens(LONG, exact(LONG)) == 0


@pytest.mark.parametrize("place", [0, 256, 300, -1])
def test_one_wrong_id_mask_or_log_prob_is_one_wrong_token(place: int) -> None:
    ids, mask, logprobs = exact(LONG), exact(LONG), exact(LONG)
    ids.ids[place] += 1
    mask.mask[place] = not mask.mask[place]
    logprobs.logprobs[place] -= 0.001
    assert [wrong_tokens(LONG, said) for said in (ids, mask, logprobs)] == [1, 1, 1]


def test_missing_and_additional_tokens_are_wrong() -> None:
    whole = len(exact(LONG).ids)
    assert wrong_tokens(LONG, TokenRecord()) == whole
    short, long = exact(LONG), exact(LONG)
    short.ids, short.mask, short.logprobs = short.ids[:-3], short.mask[:-3], short.logprobs[:-3]
    long.add([5, 5], False, [0.0, 0.0])
    assert [wrong_tokens(LONG, said) for said in (short, long)] == [3, 2]


def test_the_ideal_is_the_longest_trajectory_where_all_have_a_place() -> None:
    turn = (Turn(action_tokens=1),)
    plans = [
        TrajectoryPlan(number=n, turns=turn, seconds=s) for n, s in enumerate((3.0, 1.0, 1.0, 2.0))
    ]
    assert ideal_makespan(plans, 4) == 3.0
    assert ideal_makespan(plans, 2) == 4.0
    assert ideal_makespan(plans, 1) == 7.0


def test_own_time_counts_whole_chunks_and_tools() -> None:
    plan = Work(trajectories=1, mix=MIX, chunk=8, rate=16.0).plans()[0]
    chunks = sum(-(-turn.action_tokens // 8) for turn in plan.turns)
    assert plan.seconds == pytest.approx(chunks / 2 + sum(t.tool_ms for t in plan.turns) / 1000)


def test_a_steady_load_fits_its_calls_into_the_shortest_actions() -> None:
    load = steady(SHORTEST_ACTION)
    work = load.work(trajectories=9, chunk=1, rate=50.0, pace=1.0, seed=0, jitter=0.0)
    plan = max(work.plans(), key=lambda plan: plan.number)
    long = TrajectoryPlan(number=99_999_999, turns=plan.turns, seconds=plan.seconds)
    assert {turn.action_tokens for turn in plan.turns} == {SHORTEST_ACTION}
    assert len(long.action(19, [])) == SHORTEST_ACTION
