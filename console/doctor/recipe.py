"""The recipe: what `engine check` says, what is missing and who makes it, what memory it takes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

from console.asked.needs import goals, makers
from console.asked.plan import plan
from console.asked.ports import settle
from console.doctor.types import Check, Findings, Patient, ok, problem, unknown, warning
from console.errors import ConsoleError
from console.machine.programs import ask, module
from toolwright.model.learner_memory import Settings, read_decoder, report
from toolwright.model.model_folder import ModelFolderError
from toolwright.model.weights import read_tensors
from toolwright.process.machine_memory import gpu_bytes, rank_bytes
from toolwright.recipe import tables_in_force

RECIPE, POLICY, ESTIMATE = "recipe", "policy", "memory of a run"
LEFT_OUT = "left out: "
"""As `engine check` says it."""
LOOK_LATER = "`toolwright run` makes it and checks it before it trains"
LESS_TO_DO = "ask again when this machine has less to do"
SAMPLER_BYTES = 4
"""A weight of the sampler on a CPU."""
REST = 2 << 30
"""Engine, the sampler's cache of keys and values, imported libraries; in bytes, without a GPU."""


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
    """Memory of the learner and, on a CPU, of the sampler."""
    assert patient.recipe is not None, "these checks are for a recipe"
    recipe = patient.recipe
    folder = recipe.resolve(recipe.shared.policy.model)
    try:
        decoder = read_decoder(folder)
    except ModelFolderError:
        return []  # `engine check` reports the folder
    found: Findings = []
    for name, table in tables_in_force(recipe):
        if isinstance(table, Settings):
            longest, room = table.longest_row(recipe.shared), rank_bytes()
            if not gpu_bytes():
                room -= REST
                if patient.console.sampler.way == "cpu":
                    room -= SAMPLER_BYTES * count_parameters(folder)
            clause, fix = report(decoder, table, longest, room, name=name, cuda=gpu_bytes())
            line = f"[{name}] {clause}"
            found = [*found, warning(ESTIMATE, line, fix) if fix else ok(ESTIMATE, line)]
    return found


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
