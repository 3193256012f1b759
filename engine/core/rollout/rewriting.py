"""A rewrite of the context: the protocol's messages become the event that begins a new sequence.

The longest common prefix of both contexts is shared, so a sampler's cache of it stays of use. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.images.placeholders import visible
from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Rules
from engine.core.rollout.view import prompt_ids
from engine.core.trajectory.chain import common_prefix
from engine.core.trajectory.events import Rewritten
from engine.core.trajectory.state import State
from engine.errors import AttemptFailed
from engine.types import Rewrite
from toolwright.types import ids


def rewritten_event(
    state: State, rewrite: Rewrite, rules: Rules, assignment: Assignment
) -> Rewritten:
    """The event of a rewrite. The new context shows the task's images, as the first prompt does.

    Raises AttemptFailed for messages that protocol or chat template do not take.
    """
    task = replace(assignment.task, messages=tuple(rewrite.messages), prompt="")
    try:
        new = ids(prompt_ids(rules.protocol, task, state.tools, rules.codec))
    except ValueError as error:
        raise AttemptFailed(f"task {task.id}: a rewritten context: {error}") from error
    shared = common_prefix(new, state.token_ids)
    mark = rules.codec.image_mark
    shown = new[:shared].count(mark.placeholder) if mark else 0
    images = visible(assignment.media) if mark else []
    return Rewritten(
        shared=shared,
        token_ids=new[shared:],
        shown=shown,
        images=tuple(image.blob for image in images[shown:]),
        cause=rewrite.cause,
    )
