"""A run folder with many trajectories, in a journal as the engine writes it.

A group has eight trajectories, and each of them three actions and two calls. Words are drawn as in
a language, a few often and most seldom. The folder holds the tokenizer of their vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from engine.serving.journal import facts, groups
from engine.serving.journal.schema import FILE_NAME, open_database
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2 as pb
from toolwright.model.model_folder import tokenizer_hash
from toolwright.types import WeightVersion

WORDS = 20_000
GROUP = 8
GROUPS_A_STEP = 16
GROUPS_A_COMMIT = 64
ACTION, ANSWER = 60, 120
"""Words of an action and of an answer."""
SOURCES = ("search", "mathematics", "code", "tables", "letters", "dates", "maps", "music")
STEP_S = 60.0
BEGAN = 1.8e9
"""Unix seconds of the first step."""
NS = 1_000_000_000
SEED = 1


def make_run(run: Path, trajectories: int) -> None:
    """Writes a run folder whose journal holds so many trajectories, in whole groups."""
    made = MadeRun(run)
    count = trajectories // GROUP
    for first in range(0, count, GROUPS_A_COMMIT):
        made.grow(min(GROUPS_A_COMMIT, count - first))
    made.close()


class MadeRun:
    """A run folder that grows by groups, without any at first."""

    def __init__(self, run: Path) -> None:
        final = run / "final"
        final.mkdir(parents=True)
        vocabulary = {f"word{number}": number for number in range(WORDS)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word0"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(final / "tokenizer.json"))
        (run / "engine.jsonl").touch()
        self._digest = tokenizer_hash(final)
        self._chance = np.random.default_rng(SEED)
        self._db = open_database(run / FILE_NAME)
        facts.set_fact(self._db, "owner", "bench")
        self.groups = 0

    def grow(self, groups_more: int) -> None:
        """Adds so many groups in one transaction."""
        self._db.execute("BEGIN")
        for number in range(self.groups, self.groups + groups_more):
            version = WeightVersion(lineage="bench", step=number // GROUPS_A_STEP)
            groups.add(
                self._db,
                position=number,
                identity=f"g{number:07}",
                members=[
                    _member(self._chance, number, i, version, self._digest) for i in range(GROUP)
                ],
                attempts=[f"g{number:07}-{i}/a" for i in range(GROUP)],
                versions=[version],
            )
        self._db.execute("COMMIT")
        self.groups += groups_more

    def close(self) -> None:
        self._db.close()


def _member(
    chance: np.random.Generator, number: int, index: int, version: WeightVersion, digest: str
) -> bytes:
    name = f"g{number:07}-{index}"
    message = pb.Trajectory(
        id=name,
        group_id=f"g{number:07}",
        index=index,
        task=_task(number),
        reward=float(chance.random()),
        status=pb.TRAJECTORY_STATUS_COMPLETED,
        stop_reason=(reasons.STOP_REASON_ANSWERED if index % 5 else reasons.STOP_REASON_MAX_TURNS),
        timings=pb.TrajectoryTimings(wall_s=float(chance.exponential(3.0))),
        tokenizer_hash=digest,
    )
    at = _clock(message, version.step, chance)
    sequence = message.sequences.add(id=f"{name}.0")
    for turn in range(3):
        words = _words(chance, ACTION)
        sequence.segments.add(
            author=pb.AUTHOR_MODEL,
            token_ids=words.tobytes(),
            token_count=ACTION,
            logprobs=(-chance.exponential(0.3, ACTION)).astype("<f4").tobytes(),
            weight_version=pb.WeightVersion(lineage=version.lineage, step=version.step),
            turn=turn,
            trainable=True,
        )
        written = at + int(chance.exponential(4.0) * NS)
        message.action_timings.add(
            turn=turn, asked_ns=at, first_ns=at + NS // 20, acted_ns=written + NS // 10
        )
        if turn == 2:
            break
        at = written + int(chance.exponential(2.0) * NS)
        answer = _words(chance, ANSWER)
        sequence.segments.add(
            author=pb.AUTHOR_TOOL, token_ids=answer.tobytes(), token_count=ANSWER, turn=turn
        )
        message.calls.add(
            call_id=f"{name}/a/{turn}/0",
            turn=turn,
            tool=("search", "python", "bash")[(index + turn) % 3],
            action=_text(words),
            observation=_text(answer),
            valid=True,
            timings=pb.CallTimings(
                stop_read_ns=written, dispatched_ns=written, result_ns=at, queued_s=0.01
            ),
        )
    return message.SerializeToString()


def _task(number: int) -> pb.Task:
    """A task of one of eight data sources, at one of five levels, with an index of its own."""
    task = pb.Task(
        id=f"task-{number}",
        prompt=f"question {number} of word{number % WORDS}",
        data_source=SOURCES[number % len(SOURCES)],
    )
    task.metadata.update({"level": number % 5, "index": number})
    return task


def _clock(message: pb.Trajectory, step: int, chance: np.random.Generator) -> int:
    """Nanoseconds at which the engine requests the first action of a trajectory of this step."""
    message.timings.clock_s = BEGAN
    message.timings.open_s = 0.01
    return 1 + int((step + chance.random() / 2) * STEP_S * NS)


def _words(chance: np.random.Generator, count: int) -> Any:
    """Ids of words; low ids are frequent."""
    return (np.minimum(chance.zipf(1.3, count), WORDS) - 1).astype("<i4")


def _text(words: Any) -> str:
    return " ".join(f"word{word}" for word in words)
