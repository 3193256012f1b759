"""The recipe: what `engine check` says, what is missing and who makes it, what memory it takes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import psutil

from console.asked.needs import goals, makers
from console.asked.plan import plan
from console.asked.ports import settle
from console.doctor.types import Check, Findings, Patient, ok, problem, unknown, warning
from console.errors import ConsoleError
from console.machine.programs import ask, module
from toolwright.model.model_folder import ModelFolderError
from toolwright.model.weights import read_tensors

RECIPE, POLICY, ESTIMATE = "recipe", "policy", "memory of a run"
LEFT_OUT = "left out: "
"""As `engine check` says it."""
LOOK_LATER = "`toolwright run` makes it and checks it before it trains"
LESS_TO_DO = "ask again when this machine has less to do"
GIB = 1 << 30
LEARNER_BYTES = 16
"""Of a parameter in float32: weights, gradients, two moments of Adam."""
SAMPLER_BYTES = 4
REST = 2 * GIB
"""Engine, activations, the cache of keys and values, imported libraries."""


def checked(patient: Patient) -> Findings:
    """What `engine check` says; what it leaves out, because a run makes it first, is a warning."""
    assert patient.recipe is not None, "these checks are for a recipe"
    recipe = patient.recipe
    try:
        plan(goals(recipe), makers(recipe, patient.console), Path.exists)
        settle(recipe, patient.console, itertools.count(1).__next__)
    except ConsoleError as error:
        return [problem(RECIPE, str(error))]
    words = [word for text in patient.overrides for word in ("--set", text)]
    said = ask(module("engine.cli", "check", str(recipe.path), *words), seconds=45.0)
    if said.status is None:
        return [unknown(RECIPE, f"engine check: {said.last_line}, so it is not known", LESS_TO_DO)]
    if said.status != 0:
        return [problem(RECIPE, said.last_line.removeprefix("engine: "))]
    lines = [line for line in said.out.splitlines() if line.strip()]
    found = [
        warning(RECIPE, line.removeprefix("warning: "))
        for line in lines
        if line.startswith("warning: ")
    ]
    found += [
        warning(RECIPE, f"not looked into yet: {line.removeprefix(LEFT_OUT)}", LOOK_LATER)
        for line in lines
        if line.startswith(LEFT_OUT)
    ]
    told = [line for line in lines if line.startswith(("policy: ", "first prompt: "))]
    rest = "the rest " if any(line.startswith(LEFT_OUT) for line in lines) else "it "
    return [*found, ok(RECIPE, "; ".join([f"engine check finds {rest}in order", *told]))]


def estimated(patient: Patient) -> Findings:
    """What learner and sampler take of this machine's memory, by the policy's own files."""
    assert patient.recipe is not None, "these checks are for a recipe"
    folder = patient.recipe.resolve(patient.recipe.shared.policy.model)
    parameters = count_parameters(folder)
    if not parameters or patient.console.sampler.way != "cpu":
        return []
    need = parameters * (LEARNER_BYTES + SAMPLER_BYTES) + REST
    free = psutil.virtual_memory().available
    text = (
        f"{parameters / 1e6:,.1f} million parameters: about {need / GIB:.1f} GiB for learner and "
        f"sampler in float32, {free / GIB:.1f} GiB are free"
    )
    if need > free:
        mend = "take a smaller policy, learner.lora, or a machine with more memory"
        return [warning(ESTIMATE, text, mend)]
    return [ok(ESTIMATE, text)]


def count_parameters(folder: Path) -> int:
    """Numbers in the safetensors files, by their headers alone; 0 where they cannot be read."""
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            tensors = read_tensors(path, whole=False)
        except ModelFolderError:
            return 0
        count += sum(math.prod(tensor.shape) for tensor in tensors.values())
    return count


OF_RECIPE = (
    Check(subject=RECIPE, look=checked, seconds=50.0, needs="engine"),
    Check(subject=ESTIMATE, look=estimated),
)
