"""The verdict on a crowd's run, and the figures of what it cost.

The validator of histories judges the promises. Here is only what the plan alone can know: which ids
each record must have.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.engine.checking import TokenRecord
from bench.history.events import AnyEvent, Effect
from bench.history.stored import write_history
from bench.history.validator import validate
from bench.scripted.script import default_logprob
from engine.serving.journal.reader import JournalReader
from tests.chaos.crowd import Crowd
from tests.chaos.witnesses import history_of
from tests.chaos.workload import Plan, reward_of
from toolwright.types import Status, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """sampled: tokens that the sampler made, all requests together. recorded: those of them that
    are in records. interrupted: attempts in flight at a crash of the engine, each crash counted.
    resumed: those of them that went on. restarts: attempts that were given up, by reason."""

    trajectories: int
    kills: int
    sampled: int
    recorded: int
    effects: int
    effects_recorded: int
    interrupted: int
    resumed: int
    restarts: dict[str, int]
    groups_offered: int
    seconds: float

    @property
    def again_percent(self) -> float:
        """Tokens that were sampled and are in no record, in percent of those in records."""
        return 100 * (self.sampled - self.recorded) / self.recorded

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "again_percent": round(self.again_percent, 2)}


def judge(crowd: Crowd, *, evaluated: Mapping[str, int] | None = None) -> Figures:
    """Asserts what holds whatever was killed; the engine has ended, the samplers live.

    evaluated: rows of the suite that was evaluated meanwhile."""
    events = validated(crowd)
    records = records_of(crowd)
    wanted = {
        f"g{group:07d}-{index}" for group in range(crowd.groups) for index in range(crowd.size)
    }
    assert records.keys() == wanted
    tokens = sum(is_as_planned(crowd, record) for _, record in records.values())
    tokens += sum(
        _evaluation_is_as_planned(crowd, suite, n) for suite, n in (evaluated or {}).items()
    )
    assert "identical" in crowd.replay()
    resumed = interrupted = 0
    for number, found in enumerate(crowd.found):
        for trajectory, attempt in found.in_flight.items():
            interrupted += 1
            later = [*crowd.found[number + 1 :]]
            after = next(
                (
                    one.ended.get(trajectory) or one.in_flight.get(trajectory)
                    for one in later
                    if trajectory in one.ended or trajectory in one.in_flight
                ),
                records[trajectory][0],
            )
            resumed += after == attempt
    return Figures(
        trajectories=len(records),
        kills=crowd.kills,
        sampled=crowd.tokens_sampled(),
        recorded=tokens,
        effects=sum(isinstance(one, Effect) and one.call_id.startswith("g") for one in events),
        effects_recorded=sum(len(record.calls) for _, record in records.values()),
        interrupted=interrupted,
        resumed=resumed,
        restarts=dict(Counter(_reason(row["error"]) for row in crowd.logged("attempt_failed"))),
        groups_offered=len(crowd.offered()),
        seconds=crowd.seconds,
    )


def validated(crowd: Crowd) -> list[AnyEvent]:
    """The run's history. AssertionError with the validator's sentence if it breaks a promise."""
    events = history_of(crowd)
    file = crowd.folder / "history.jsonl"
    write_history(file, events)
    violation = validate(events)
    assert violation is None, f"{violation}\nthe history lies in {file}"
    return events


def records_of(crowd: Crowd) -> dict[str, tuple[str, Trajectory]]:
    """By trajectory: its attempt, and its record."""
    with closing(JournalReader(crowd.run_folder)) as reader:
        found = [(one.attempt, one.trajectory()) for group in reader.groups() for one in group]
    return {record.id: (attempt, record) for attempt, record in found}


def is_as_planned(crowd: Crowd, record: Trajectory) -> int:
    """Status, ids, masks, log-probs are the plan's; returns how many tokens the policy wrote."""
    stop = record.stop_reason
    assert record.status is Status.COMPLETED, f"{record.id}: {record.status} {stop}"
    assert not record.masked, record.id
    plan = crowd.workload.plan(record.id)
    said, wanted = TokenRecord.of(record), _planned(plan, int(record.task.id))
    for place, (found, planned) in enumerate(zip_longest(_rows(said), _rows(wanted))):
        assert found == planned, f"{record.id}, token {place}: {found} where {planned} is planned"
    assert sum(said.mask) == plan.tokens
    return plan.tokens


def _evaluation_is_as_planned(crowd: Crowd, suite: str, n: int) -> int:
    """All rows were measured; returns how many tokens the policy wrote."""
    (summary,) = (row for row in _lines(crowd.run_folder / "evaluations.jsonl"))
    assert (summary["suite"], summary["n"]) == (suite, n), summary
    (file,) = (crowd.run_folder / "evaluations").glob(f"{suite}@*.jsonl")
    rows = _lines(file)
    assert len(rows) == n
    return sum(row_is_as_planned(crowd, suite, row) for row in rows)


def row_is_as_planned(crowd: Crowd, suite: str, row: Mapping[str, Any]) -> int:
    """A measured row has the plan's reward; returns how many tokens the policy wrote."""
    assert not row.get("errored"), row
    plan = crowd.workload.plan(f"e{row['version']}.{suite}-{row['index']}")
    ids = [i for _, run in plan.ids(int(row["task_id"])) for i in run]
    assert (row["reward"], row["masked"]) == (reward_of(ids), False), row
    return plan.tokens


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _planned(plan: Plan, question: int) -> TokenRecord:
    said = TokenRecord()
    for by_policy, ids in plan.ids(question):
        logprobs = [default_logprob(i, place) for place, i in enumerate(ids)]
        said.add(ids, by_policy, logprobs if by_policy else [0.0] * len(ids))
    return said


def _rows(said: TokenRecord) -> Iterator[tuple[int, bool, float]]:
    return zip(said.ids, said.mask, array("f", said.logprobs), strict=True)


def _reason(error: str) -> str:
    """A few words to count by: without the names of sessions and calls."""
    if "which the log does not know" in error:
        return "ran a call that the log does not know"
    if "SESSION_NOT_FOUND" in error or "no session" in error:
        return "the session is gone"
    if "SESSION_CLOSED" in error:
        return "the session was closed after what is durable"
    if "lost" in error:
        return "the session is lost"
    return error[:60]
