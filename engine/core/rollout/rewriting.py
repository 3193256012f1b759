"""A rewrite of the context: the protocol's messages begin a new sequence.

Both contexts share their longest common prefix, so a sampler's cache of it stays of use.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.images.placeholders import visible
from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Rules
from engine.core.rollout.view import prompt_ids
from engine.core.trajectory.chain import common_prefix
from engine.core.trajectory.events import Noted, Rewritten
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.types import End, Rewrite
from toolwright.types import Event, StopReason, ids


def rewrite_context(
    log: AttemptLog, rewrite: Rewrite, rules: Rules, assignment: Assignment
) -> StopReason | None:
    """Appends the rewrite. Returns a reason if that ends the trajectory: protocol or chat template
    does not take the messages, which may hold words of the policy."""
    try:
        log.append(rewritten_event(log.state, rewrite, rules, assignment))
    except ValueError as error:
        data = {"error": str(error)}
        log.append(Noted(note=Event(kind="rewrite_refused", turn=log.state.turn, data=data)))
        return End().reason
    return None


def rewritten_event(
    state: State, rewrite: Rewrite, rules: Rules, assignment: Assignment
) -> Rewritten:
    """The event of a rewrite. The new context shows the task's images, as the first prompt does.
    Raises ValueError for messages that protocol or chat template do not take."""
    task = replace(assignment.task, messages=tuple(rewrite.messages), prompt="")
    new = ids(prompt_ids(rules.protocol, task, state.tools, rules.codec))
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
