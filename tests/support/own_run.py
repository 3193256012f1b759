"""A recipe folder as a user's own, made small: a tiny policy with real weights, no tool, and the
scripted sampler as a [[console.services]] entry in place of SGLang. Where a file `hopeless` lies
beside the recipe, nothing is rewarded any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.recipes import merged, to_toml

POLICY = Path(__file__).resolve().parents[2] / "recipes/calculator/policy.py"

FILES = """
from pathlib import Path
from zlib import crc32

from toolwright.types import Task


def questions(seed):
    number = 0
    while True:
        yield Task(id=f"q{number}", messages=({"role": "user", "content": f"{number}?"},))
        number += 1


def score(trajectory):
    if Path(__file__).with_name("hopeless").exists():
        return 0.0
    return float(crc32(trajectory.metadata["final_text"].encode()) % 2)


def reply(request):
    number = crc32(f"{request.rid}".encode()) % 1000
    return [ANSWER[0], *(DIGITS[int(d)] for d in f"{number:03d}"), *ANSWER[1:]]
"""

SAMPLER = ("bench", "scripted-sampler", "--script", "task.py:reply", "--port", "{port}")


def write_policy(folder: Path) -> Path:
    """A policy with weights, which takes two seconds."""
    subprocess.run(
        [sys.executable, "-m", "toolwright.script", str(POLICY), "--output", str(folder)],
        check=True,
    )
    return folder


def write_own_run(folder: Path, policy: Path, /, **changes: Any) -> Path:
    """The recipe's file, with `changes` of its tables; four steps of four trajectories."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(_ids(policy) + FILES, encoding="utf-8")
    tables: dict[str, Any] = {
        "run": {
            "name": "own",
            "folder": "run",
            "steps": 3,
            "groups_per_step": 1,
            "group_size": 4,
            "engine": "127.0.0.1:0",
        },
        "policy": {"model": policy},
        "task": {
            "source": "task.py:questions",
            "reward": "./task.py:score",
            "limits": {"turns": 1, "action": 32, "response": 64, "model": 256},
        },
        "sampler": {"endpoints": ["http://127.0.0.1:0"]},
        "engine": {
            "drain_s": 2.0,
            "evaluation": {"suites": [{"name": "heldout", "source": "task.py:questions", "n": 4}]},
        },
        "learner": {"checkpoint_every": 1, "optimizer": {"lr": 1e-4}},
        "console": {
            "sampler": {"way": "none"},
            "services": [{"name": "sampler", "run": SAMPLER, "ready": "http://127.0.0.1:0/health"}],
            "track": [],
        },
    }
    recipe = folder / "recipe.toml"
    recipe.write_text(to_toml(merged(tables, changes)), encoding="utf-8")
    return recipe


def _ids(policy: Path) -> str:
    from engine.core.text.codec import HuggingFaceCodec

    codec = HuggingFaceCodec(policy)
    answer = [*codec.encode("<answer>"), *codec.encode("</answer><|im_end|>")]
    digits = [codec.encode(str(digit))[0] for digit in range(10)]
    return f"ANSWER, DIGITS = {answer}, {digits}\n"
