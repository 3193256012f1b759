"""Run folders as engine, learner and console leave them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from console.record.course import Began, CourseLog, ProcessRecord

STEPS = 50
SUITES = ("heldout", "withheld", "unseen-wordings")
BEFORE = {"sampled": 0.2, "greedy": 0.25}
WORDS = {
    "headline": "Held-out success",
    "lead": "A tiny policy learnt from reward alone.",
    "before": "The warm-up taught the tool's format.",
    "note": "An answer is withheld there.",
    "suites": [
        {"name": "heldout", "title": "held out"},
        {"name": "withheld", "title": "tool's answers withheld"},
        {"name": "unseen-wordings", "title": "wordings never trained on"},
    ],
}


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def step(number: int, **more: Any) -> dict[str, Any]:
    """A line of the learner."""
    return {
        "step": number, "version": f"ab.{number}", "lineage": "ab", "groups": 16,
        "trajectories": 128, "masked": 0, "stop/answered": 120, "stop/turns": 8,
        "reward": number / STEPS, "reward/correct": number / STEPS, "reward/format": 0.1,
        "groups_with_signal": 9, "worthless_steps": 0, "response_length": 25.0,
        "total_length": 80.0, "calls": 1.0, "staleness_mean": 0.0, "staleness_max": 0,
        "entropy": 0.4, "kl_reference": 0.01, "gap_max": 1e-6, "gap_mean": 2e-7, "grad_norm": 1.0,
        "learning_rate": 1e-4, "skipped_update": False, "tokens_per_s": 900.0, "step_s": 2.0,
        "lease_s": 1.0, "train_s": 0.7, "publish_s": 0.1, "export_s": 0.1, "wall_s": 0.5,
        "generate_s": 0.3, "tool_s": 0.1, "open_s": 0.05, "reward_s": 0.01, **more,
    }  # fmt: skip


def evaluation(suite: str, at: int, reward: float, **more: Any) -> dict[str, Any]:
    """A line of the engine."""
    heat = 0.0 if suite.endswith("-greedy") else 1.0
    return {
        "suite": suite, "lineage": "ab", "step": at, "asked": 1024, "n": 1024, "reward": reward,
        "stderr": 0.01, "temperature": heat, "seconds": 4.0, **more,
    }  # fmt: skip


def sample(at: int, index: int, *, right: bool, **more: Any) -> dict[str, Any]:
    """A line of the engine."""
    prompt = "<|im_start|>user\nWhat is 6 < 7 times?<|im_end|>\n<|im_start|>assistant\n"
    return {
        "suite": "heldout-sampled", "lineage": "ab", "step": at, "index": index,
        "task_id": f"t{index}", "answers": ["42"], "reward": float(right),
        "stop_reason": "answered",
        "segments": [
            {"author": "prompt", "text": prompt},
            {"author": "model", "text": "<python> print(6*7)</python>"},
            {"author": "tool", "text": "<result> 42</result>"},
            {"author": "model", "text": f"<answer> {42 if right else 13}</answer><|im_end|>"},
        ],
        **more,
    }  # fmt: skip


def resolved(folder: Path, *, seed: int = 1, rate: float = 1e-4, **run: Any) -> None:
    """What engine, learner and console were told."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = {
        "run": {
            "name": "calculator", "seed": seed, "steps": STEPS, "groups_per_step": 16,
            "group_size": 8, "engine": "127.0.0.1:9", **run,
        }
    }  # fmt: skip
    suites = [
        {"name": f"{name}-{way}", "temperature": 1.0 if way == "sampled" else 0.0, "n": 1024}
        for name in (*SUITES, "curve")
        for way in BEFORE
    ]
    tables = {
        "engine": {"evaluation": {"suites": suites}},
        "learner": {"optimizer": {"lr": rate}},
        "console": {"report": WORDS},
    }
    for name, table in tables.items():
        told = {"recipe": "/recipes/recipe.toml", "extends": [], "shared": shared, name: table}
        (folder / f"{name}.resolved.json").write_text(json.dumps(told), encoding="utf-8")


def course(folder: Path, *, ended: int | None = 0) -> None:
    """What `toolwright run` did. ended: its exit status; None: it goes on, or was killed."""
    with CourseLog(folder) as log:
        log.began(
            Began(
                at=1.0,
                pid=2**22 + 1,
                created=1.0,
                argv=("toolwright", "run", "my recipes/recipe.toml"),
                recipe="/recipes/recipe.toml",
                overrides=("run.steps=50",),
                versions={"python": "3.11.7", "cores": "2"},
                cwd="/where you stood",
            )
        )
        log.stage("learn", "reinforcement learning")
        log.process(
            ProcessRecord(
                name="sampler",
                what="streams tokens",
                command="engine serve '<model>'",
                state="started",
            )
        )
        log.process(
            ProcessRecord(
                name="conversations",
                what="makes the conversations",
                command="/opt/python/bin/python 'write them.py'",
                state="started",
            )
        )
        log.memory(3 << 30)
        if ended is not None:
            log.ended(ended, "the policy is in final" if not ended else "the learner failed")


def whole(folder: Path, *, after: float = 0.9, seed: int = 1, rate: float = 1e-4) -> Path:
    """A run that is over, evaluated at both ends and in the middle, with a console's files."""
    resolved(folder, seed=seed, rate=rate)
    lines(folder / "learner.jsonl", (step(n) for n in range(1, STEPS + 1)))
    measured = [
        evaluation(f"{suite}-{way}", at, BEFORE[way] if at == 0 else after)
        for at in (0, STEPS)
        for suite in SUITES
        for way in BEFORE
    ]
    measured += [evaluation("curve-sampled", at, 0.2 + at / 100, n=192) for at in (0, 25, STEPS)]
    lines(folder / "evaluations.jsonl", measured)
    samples = [sample(at, index, right=at > 0) for at in (0, STEPS) for index in range(3)]
    lines(folder / "samples.jsonl", samples)
    lines(folder / "sft/sft.jsonl", ({"step": n, "loss": 2 / n, "step_s": 1.0} for n in (1, 2, 3)))
    course(folder)
    return folder
