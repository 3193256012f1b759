"""Run folders with recorded trajectories, journaled as the engine journals them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.serving.journal import facts, groups
from engine.serving.journal.schema import FILE_NAME, open_database
from toolwright import types as t
from toolwright.model.model_folder import tokenizer_hash
from toolwright.wire import serialize, trajectory_to_proto

VERSION = t.WeightVersion(lineage="ab", step=3)
ANSWER = "<answer> 42</answer>"
CALL = t.CallRecord(
    call_id="g0-0/a/0/0",
    turn=0,
    index=0,
    tool="python",
    action="<python> print(6*7)</python>",
    outcome=t.CallOutcome(observation="42", valid=True, tool="python", queued_s=0.001, run_s=0.25),
    timings=t.CallTimings(stop_read_ns=1_000, dispatched_ns=2_000, result_ns=300_002_000),
)


class Recorded:
    """A run whose tokens are the bytes of a text: `ids` and `trajectory` make them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        final = folder / "final"
        final.mkdir(parents=True, exist_ok=True)
        self._tokenizer = _bytes_tokenizer()
        self._tokenizer.save(str(final / "tokenizer.json"))
        (folder / "engine.jsonl").touch()
        self.hash = tokenizer_hash(final)

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def segment(self, author: t.Author, text: str, turn: int = 0, **more: Any) -> t.Segment:
        ids = self.ids(text)
        if author is t.Author.MODEL:
            chances = [math.log(0.1 + 0.9 * (at % 10) / 10) for at in range(len(ids))]
            more = {"logprobs": chances, "weight_version": VERSION, "trainable": True, **more}
        return t.Segment(author=author, token_ids=t.ids(ids), turn=turn, **more)

    def trajectory(self, name: str = "g0-0", wrote: str = ANSWER, **more: Any) -> t.Trajectory:
        """A question, a call of Python, and an answer."""
        segments = (
            self.segment(t.Author.PROMPT, "<|im_start|>user\nWhat is 6 times 7?<|im_end|>\n"),
            self.segment(t.Author.MODEL, CALL.action),
            self.segment(t.Author.TOOL, "<result> 42</result>"),
            self.segment(t.Author.MODEL, wrote, turn=1),
        )
        fields: dict[str, Any] = {
            "task": t.Task(
                id="task-0",
                messages=({"role": "user", "content": "What is 6 times 7?"},),
                answers=("42",),
            ),
            "sequences": (t.Sequence(id=f"{name}.0", segments=segments),),
            "status": t.Status.COMPLETED,
            "stop_reason": t.StopReason.ANSWERED,
            "calls": (CALL,),
            "reward": 1.0,
            "reward_parts": (t.RewardPart(name="right", value=1.0),),
            "timings": t.TrajectoryTimings(wall_s=1.5, generate_s=1.0, tool_s=0.3),
            "tokenizer_hash": self.hash,
        }
        return t.Trajectory(id=name, group_id=name.rpartition("-")[0], **{**fields, **more})

    def journal(self, *members: Sequence[t.Trajectory], owner: str = "engine") -> None:
        """Adds groups, in one transaction as the engine does."""
        self.journal_bytes(
            *([serialize(trajectory_to_proto(one)) for one in group] for group in members),
            names=[group[0].group_id for group in members],
            owner=owner,
        )

    def journal_bytes(
        self, *members: Sequence[bytes], names: Sequence[str], owner: str = "engine"
    ) -> None:
        db = open_database(self.folder / FILE_NAME)
        db.execute("BEGIN")
        facts.set_fact(db, "owner", owner)
        for name, group in zip(names, members, strict=True):
            groups.add(
                db,
                position=0,
                identity=name,
                members=group,
                attempts=[f"{name}-{number}/a" for number in range(len(group))],
                versions=[VERSION],
            )
        db.execute("COMMIT")
        db.close()

    def rows(self, suite: str, step: int, rows: Iterable[dict[str, Any]]) -> Path:
        """Lines of an evaluation, added to those that are there."""
        file = self.folder / "evaluations" / f"{suite}@ab.{step}.jsonl"
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            for row in rows:
                line = {"suite": suite, "version": f"ab.{step}", "task_id": "e", "reward": 1.0}
                opened.write(json.dumps({**line, "stop_reason": "answered", **row}) + "\n")
        return file

    def sample(self, suite: str, step: int, index: int, *texts: tuple[str, str]) -> None:
        line = {
            "suite": suite, "lineage": "ab", "step": step, "index": index, "reward": 1.0,
            "task_id": "e", "answers": ["42"], "stop_reason": "answered",
            "segments": [{"author": author, "text": text} for author, text in texts],
        }  # fmt: skip
        with (self.folder / "samples.jsonl").open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")


def _bytes_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
