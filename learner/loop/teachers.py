"""Teachers of a distillation: frozen models that score the policy's own tokens. The learner or a
server holds them.

Invariants
- A teacher has the policy's token ids. Ids of another tokenizer may be valid ids of it too, so no
  later check would notice.
- Tasks that name one folder or server share one teacher.
- Rank 0 sends the requests to servers; all ranks get the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from learner.config.tables import LearnerTable
from learner.errors import ModelError
from learner.loop.teacher_server import TeacherServer
from learner.model.policy import Model, Policy, load_frozen
from learner.ranks import parallel
from learner.training.batch import Row
from learner.training.step import score
from toolwright.model.model_folder import ModelFolderError, ids_hash
from toolwright.recipe import Recipe
from toolwright.recipe.models.spelling import is_url

Teacher = Model | TeacherServer


def load_teachers(
    recipe: Recipe, table: LearnerTable, policy: Policy, say: Callable[[str], None]
) -> tuple[Teacher, ...]:
    """The teacher of each task, in the recipe's order; empty without distillation. say: reports a
    wait for a server.

    Raises ModelError if a task has no teacher, or if a teacher cannot score the policy's tokens.
    Raises TeacherError if a server does not answer.
    """
    distill = table.distillation
    if distill is None:
        return ()
    tasks = list(recipe.shared.each_task)
    if fault := distill.fault(tasks):
        raise ModelError(fault)
    named = [name for name in map(distill.of_task, tasks) if name]
    loaded: dict[str, Teacher] = {}
    for name in dict.fromkeys(named):
        if is_url(name):
            loaded[name] = _reach(name, table.engine_patience_s, policy, say)
        else:
            loaded[name] = _load(recipe.resolve(name), table.precision, policy)
    return tuple(loaded[name] for name in named)


def _reach(url: str, patience: float, policy: Policy, say: Callable[[str], None]) -> TeacherServer:
    if policy.image_embedding is not None:
        raise ModelError(
            f"the teacher {url} would not see the policy's images: name a teacher's folder in "
            "[learner.distill]"
        )
    server = TeacherServer(url, patience=patience, say=say)
    if parallel.is_first():
        server.check(policy.source)
    return server


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


def scored_by_teachers(teachers: Sequence[Teacher], rows: Sequence[Row], budget: int) -> list[Row]:
    """The rows with log-probs of their task's teacher. All ranks call it with the same rows.

    teachers: one for each task. budget: tokens of a micro-batch.
    """
    done = list(rows)
    for teacher in {id(one): one for one in teachers}.values():
        places = [place for place, row in enumerate(rows) if teachers[row.task] is teacher]
        if not places:
            continue
        own = [rows[place] for place in places]
        if isinstance(teacher, TeacherServer):
            scored = _scored_there(teacher, own)
        else:
            scored, _ = score(teacher, own, budget, "teacher")
        for place, row in zip(places, scored, strict=True):
            done[place] = row
    return done


def _scored_there(server: TeacherServer, rows: Sequence[Row]) -> list[Row]:
    first = parallel.is_first()
    values = server.logprobs(rows, parallel.still_waiting) if first else None
    given = parallel.from_first(values)
    return [replace(row, teacher=one) for row, one in zip(rows, given, strict=True)]
