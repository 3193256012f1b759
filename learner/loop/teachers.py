"""Teachers of a distillation: frozen models that score the policy's own tokens.

Invariants
- A teacher has the policy's token ids. Ids of another tokenizer may be valid ids of it too, so no
  later check would notice.
- Tasks that name one folder share one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from learner.config.tables import LearnerTable
from learner.errors import ModelError
from learner.model.policy import Model, Policy, load_frozen
from learner.training.batch import Row
from learner.training.step import score
from toolwright.model.model_folder import ModelFolderError, ids_hash
from toolwright.recipe import Recipe


def load_teachers(recipe: Recipe, table: LearnerTable, policy: Policy) -> tuple[Model, ...]:
    """The teacher of each task, in the recipe's order; empty without distillation.

    Raises ModelError if a task has no teacher, or if a teacher cannot score the policy's tokens.
    """
    distill = table.distillation
    if distill is None:
        return ()
    tasks = list(recipe.shared.each_task)
    if fault := distill.fault(tasks):
        raise ModelError(fault)
    folders = [recipe.resolve(folder) for folder in map(distill.folder, tasks) if folder]
    loaded = {folder: _load(folder, table.precision, policy) for folder in dict.fromkeys(folders)}
    return tuple(loaded[folder] for folder in folders)


def _load(folder: Path, precision: str, policy: Policy) -> Model:
    try:
        same = ids_hash(folder) == ids_hash(policy.source)
    except ModelFolderError as error:
        raise ModelError(f"token ids of the teacher cannot be compared: {error}") from error
    if not same:
        raise ModelError(
            f"the teacher {folder} has other token ids than {policy.source}: name a teacher with "
            "the policy's tokenizer in [learner.distill]"
        )
    teacher = load_frozen(folder, precision)
    known, needed = (int(model.shape["vocabulary"]) for model in (teacher, policy))
    if known < needed:
        raise ModelError(
            f"the teacher {folder} has a vocabulary of {known} ids and the policy one of {needed}: "
            "name a teacher that has all of the policy's ids in [learner.distill]"
        )
    if policy.image_embedding is not None and teacher.image_embedding is None:
        raise ModelError(
            f"the policy reads images and the teacher {folder} does not: name a teacher that does"
        )
    return teacher


def scored_by_teachers(teachers: Sequence[Model], rows: Sequence[Row], budget: int) -> list[Row]:
    """The rows with log-probs of their task's teacher. All ranks call it with the same rows.

    teachers: one for each task. budget: tokens of a micro-batch.
    """
    done = list(rows)
    for teacher in {id(one): one for one in teachers}.values():
        places = [place for place, row in enumerate(rows) if teachers[row.task] is teacher]
        if not places:
            continue
        scored, _ = score(teacher, [rows[place] for place in places], budget, "teacher")
        for place, row in zip(places, scored, strict=True):
            done[place] = row
    return done
