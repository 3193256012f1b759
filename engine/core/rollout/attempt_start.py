"""How an attempt begins: its sessions, opened or found again, its prompt, and its images.

Invariants
- Sessions of an earlier life are gone on with only where the log knows every call that they ran.
- What no attempt could render is the task's fault (TaskUnfit), whoever tries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.core.images.media import Media
from engine.core.images.picture import UnfitImage, check_picture
from engine.core.images.placeholders import visible
from engine.core.rollout.assignment import Assignment
from engine.core.rollout.decide import Rules
from engine.core.rollout.view import prompt_ids
from engine.core.tools.services import ToolServices
from engine.core.tools.tool_sessions import Environment
from engine.core.trajectory.events import Opened
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.errors import SessionLost, TaskUnfit
from toolwright.types import Ids, ids


async def sessions_of(
    tools: ToolServices, assignment: Assignment, log: AttemptLog, *, replaced: int
) -> Environment:
    """The attempt's sessions: opened, or found again. SessionLost where an earlier life's are gone,
    or have run what the log does not know.

    replaced: how many sessions without state the attempt has lost since it began.
    """
    state, task, media = log.state, assignment.task, assignment.media
    if replaced:  # the lost session's id is used up
        return await tools.open_session(f"{log.attempt}~{replaced}", task, media)
    if not state.opened:
        return await tools.open_session(log.attempt, task, media)
    try:
        environment, ran = await tools.adopt(log.attempt, task, state.sessions)
    except SessionLost:
        if any(tool.stateful for tool in state.tools):
            raise
        return await tools.open_session(log.attempt, task, media)
    unknown = [call_id for call_id in ran if not _is_logged(call_id, state)]
    if unknown:
        environment.close()
        raise SessionLost(
            f"session {log.attempt} ran {unknown[0]}, which the log does not know: its tokens were "
            "not durable yet"
        )
    return environment


def _is_logged(call_id: str, state: State) -> bool:
    """The log holds the action that made the call, so that it is made again under its id."""
    turn = call_id.rsplit("/", 2)[1]
    return turn.isdecimal() and int(turn) < len(state.actions)


def opened(
    environment: Environment, rules: Rules, assignment: Assignment, seconds: float
) -> tuple[Opened, Sequence[Media]]:
    """The event of an attempt whose sessions took `seconds` to open, and the images of its prompt.
    TaskUnfit for a task that does not fit the recipe."""
    images = visible(assignment.media) if rules.codec.image_mark else []
    prompt = assignment.prompts.of(environment.tools)
    if prompt is None:
        prompt = _prompt(environment, rules, assignment, images)
        assignment.prompts.keep(environment.tools, prompt)
    event = Opened(
        sessions=environment.refs,
        prompt=ids(prompt),
        sampling=assignment.sampling,
        images=tuple(image.blob for image in images),
        seconds=seconds,
        clock_s=time.time() - time.monotonic(),
        iteration=assignment.iteration,
    )
    return event, images


async def recall_images(log: AttemptLog, assignment: Assignment, media: dict[str, Media]) -> None:
    """Adds images that an earlier life showed. SessionLost where nobody has their bytes."""
    for slot in log.state.images:
        name = slot.blob.sha256
        if name not in media:
            data = await assignment.stored(name)
            if data is None:
                raise SessionLost(f"image {name} of {log.attempt} is not stored")
            media[name] = Media(blob=slot.blob, data=data)


def _prompt(
    environment: Environment, rules: Rules, assignment: Assignment, images: Sequence[Media]
) -> Ids:
    task = assignment.task
    try:
        prompt = ids(prompt_ids(rules.protocol, task, environment.tools, rules.codec))
    except ValueError as error:
        raise TaskUnfit(f"task {task.id}: {error}") from error
    for image in images:
        try:
            check_picture(image.data)
        except UnfitImage as error:
            raise TaskUnfit(f"task {task.id}: it shows {error}") from error
    size, most = sum(image.blob.size for image in images), rules.limits.image_bytes
    if size > most:
        raise TaskUnfit(
            f"task {task.id}: its images have {size} bytes, task.limits.image_bytes is {most}: "
            "raise it, or shrink them"
        )
    return prompt
