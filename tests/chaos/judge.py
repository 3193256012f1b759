"""What must hold of a crowd when all is over, and the figures of what it cost."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.makespan.wrong import Said
from bench.scripted.script import default_logprob
from engine.core.trajectory.events import Ended
from engine.serving.journal.groups import Fate
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader
from tests.chaos.crowd import Crowd
from tests.chaos.workload import Plan, reward_of
from toolwright.common.v1 import trajectory_pb2
from toolwright.types import Status, Trajectory
from toolwright.wire import trajectory_from_proto


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
    """Asserts what holds whatever was killed; the engine has ended, the sampler lives.

    evaluated: rows of the suite that was evaluated meanwhile."""
    records = _records(crowd)
    _all_are_delivered_once_and_identical(crowd, records)
    tokens = sum(_is_as_planned(crowd, record) for _, record in records.values())
    tokens += sum(
        _evaluation_is_as_planned(crowd, suite, n) for suite, n in (evaluated or {}).items()
    )
    _no_finished_member_ran_again(crowd, records)
    _no_effect_twice(crowd, records)
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
        effects=sum(call.startswith("g") for call, _ in crowd.effects()),
        effects_recorded=sum(len(record.calls) for _, record in records.values()),
        interrupted=interrupted,
        resumed=resumed,
        restarts=dict(Counter(_reason(row["error"]) for row in crowd.logged("attempt_failed"))),
        groups_offered=crowd.consumer.offered,
        seconds=crowd.seconds,
    )


def _evaluation_is_as_planned(crowd: Crowd, suite: str, n: int) -> int:
    """All rows were measured; returns how many tokens the policy wrote."""
    (summary,) = (row for row in _lines(crowd.run_folder / "evaluations.jsonl"))
    assert (summary["suite"], summary["n"]) == (suite, n), summary
    (file,) = (crowd.run_folder / "evaluations").glob(f"{suite}@*.jsonl")
    rows = _lines(file)
    assert len(rows) == n
    tokens = 0
    for row in rows:
        assert not row.get("errored"), row
        plan = crowd.workload.plan(f"e{row['version']}.{suite}-{row['index']}")
        ids = [i for _, run in plan.ids(int(row["task_id"])) for i in run]
        assert (row["reward"], row["masked"]) == (reward_of(ids), False), row
        tokens += plan.tokens
    return tokens


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _records(crowd: Crowd) -> dict[str, tuple[str, Trajectory]]:
    """By trajectory: its attempt, and its record."""
    found: dict[str, tuple[str, Trajectory]] = {}
    with closing(JournalReader(crowd.run_folder)) as reader:
        for group in reader.groups():
            for member in group:
                record = trajectory_from_proto(trajectory_pb2.Trajectory.FromString(member.data))
                assert record.id not in found, f"{record.id} is in two groups"
                assert member.fate is Fate.OFFERED, member.group
                found[record.id] = member.attempt, record
    return found


def _all_are_delivered_once_and_identical(
    crowd: Crowd, records: dict[str, tuple[str, Trajectory]]
) -> None:
    wanted = {f"g{number:07d}" for number in range(crowd.groups)}
    assert crowd.consumer.conflicts == []
    groups = list(crowd.consumer.groups.values())
    assert sorted(group.id for group in groups) == sorted(wanted)
    assert all(group.members == crowd.size for group in groups)
    assert records.keys() == {f"{g}-{index}" for g in wanted for index in range(crowd.size)}
    for _, record in records.values():
        assert record.status is Status.COMPLETED, (
            f"{record.id}: {record.status} {record.stop_reason}"
        )
        assert not record.masked, record.id


def _is_as_planned(crowd: Crowd, record: Trajectory) -> int:
    """Ids, masks, log-probs are the plan's; returns how many tokens the policy wrote."""
    plan = crowd.workload.plan(record.id)
    said, wanted = Said.of(record), _planned(plan, int(record.task.id))
    for place, (found, planned) in enumerate(zip_longest(_rows(said), _rows(wanted))):
        assert found == planned, f"{record.id}, token {place}: {found} where {planned} is planned"
    assert sum(said.mask) == plan.tokens
    return plan.tokens


def _planned(plan: Plan, question: int) -> Said:
    said = Said()
    for by_policy, ids in plan.ids(question):
        logprobs = [default_logprob(i, place) for place, i in enumerate(ids)]
        said.add(ids, by_policy, logprobs if by_policy else [0.0] * len(ids))
    return said


def _rows(said: Said) -> Iterator[tuple[int, bool, float]]:
    return zip(said.ids, said.mask, array("f", said.logprobs), strict=True)


def _no_finished_member_ran_again(crowd: Crowd, records: dict[str, tuple[str, Trajectory]]) -> None:
    for number, found in enumerate(crowd.found):
        for trajectory, attempt in found.ended.items():
            assert records[trajectory][0] == attempt, f"{attempt} had ended at kill {number}"
    with closing(JournalReader(crowd.run_folder)) as reader:
        attempts = reader.attempts(LogState.OPEN, LogState.GIVEN_UP, LogState.COMPLETE)
        by_trajectory: dict[str, list[str]] = defaultdict(list)
        for one in attempts:
            by_trajectory[one.name.rpartition("/")[0]].append(one.name)
        for trajectory, names in by_trajectory.items():
            assert records[trajectory][0] == names[-1], f"{names} began after the recorded one"
            for name in names[:-1]:
                ended = [e for e in reader.log(name) if isinstance(e, Ended) and not e.error]
                assert not ended, f"{name} had ended, and {names[-1]} ran again"


def _no_effect_twice(crowd: Crowd, records: dict[str, tuple[str, Trajectory]]) -> None:
    effects = [one for one in crowd.effects() if one[0].startswith("g")]
    # A call that keeps no state is asked again in another session, where its own was lost.
    runs = effects if not crowd.workload.stateful else [call for call, _ in effects]
    twice = [run for run, number in Counter(runs).items() if number > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    sessions: dict[str, set[str]] = defaultdict(set)
    ran: dict[str, list[str]] = defaultdict(list)
    for call_id, session in effects:
        attempt = call_id.rsplit("/", 2)[0]
        sessions[attempt].add(session)
        ran[attempt].append(call_id)
    for attempt, record in records.values():
        assert list(dict.fromkeys(ran[attempt])) == [call.call_id for call in record.calls]
        if crowd.workload.stateful:
            assert len(sessions[attempt]) <= 1, f"{attempt} ran in {sessions[attempt]}"


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
