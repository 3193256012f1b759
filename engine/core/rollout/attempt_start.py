"""The start of an attempt: its sessions, opened or adopted, its prompt, and its images.

Invariants
- Sessions of an earlier life are adopted only if the log knows every call that they ran.
- A task that no attempt could render is at fault itself (TaskUnfit), whichever attempt finds it.
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
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.trajectory.events import Opened
from engine.core.trajectory.log import AttemptLog
from engine.core.trajectory.state import State
from engine.errors import SessionLost, TaskUnfit
from toolwright.types import Ids, ids


async def attempt_sessions(
    tools: ToolServices, assignment: Assignment, log: AttemptLog, *, replaced: int
) -> ToolSessions:
    """The attempt's sessions, opened or adopted. Raises SessionLost if an earlier life's sessions
    are gone, or have run a call that the log does not know.

    replaced: number of sessions without state that the attempt has lost since it began.
    """
    state, task, media = log.state, assignment.task, assignment.media
    fence = assignment.fence
    if replaced:  # the lost session's id is used up
        return await tools.open_session(f"{log.attempt}~{replaced}", task, media, fence=fence)
    if not state.opened:
        return await tools.open_session(log.attempt, task, media, fence=fence)
    try:
        tool_sessions, ran = await tools.adopt(log.attempt, task, state.sessions, fence=fence)
    except SessionLost:
        if any(tool.stateful for tool in state.tools):
            raise
        return await tools.open_session(log.attempt, task, media, fence=fence)
    unknown = [call_id for call_id in ran if not _is_logged(call_id, state)]
    if unknown:
        tool_sessions.close()
        raise SessionLost(
            f"session {log.attempt} ran {unknown[0]}, which the log does not know: its tokens were "
            "not durable yet"
        )
    return tool_sessions


def _is_logged(call_id: str, state: State) -> bool:
    """Whether the log holds the action that made the call. Then the call is made again under its
    id."""
    turn = call_id.rsplit("/", 2)[1]
    return turn.isdecimal() and int(turn) < len(state.actions)


def opened_event(
    tool_sessions: ToolSessions, rules: Rules, assignment: Assignment, seconds: float
) -> tuple[Opened, Sequence[Media]]:
    """The event of an attempt whose sessions took `seconds` to open, and the images of its prompt.
    Raises TaskUnfit for a task that does not fit the recipe."""
    images = visible(assignment.media) if rules.codec.image_mark else []
    prompt = assignment.prompts.of(tool_sessions.tools)
    if prompt is None:
        prompt = _prompt(tool_sessions, rules, assignment, images)
        assignment.prompts.keep(tool_sessions.tools, prompt)
    event = Opened(
        sessions=tool_sessions.refs,
        prompt=ids(prompt),
        sampling=assignment.sampling,
        images=tuple(image.blob for image in images),
        seconds=seconds,
        clock_s=time.time() - time.monotonic(),
        iteration=assignment.iteration,
    )
    return event, images


async def restore_images(log: AttemptLog, assignment: Assignment, media: dict[str, Media]) -> None:
    """Adds images that an earlier life showed. Raises SessionLost if their bytes are not stored."""
    for slot in log.state.images:
        name = slot.blob.sha256
        if name not in media:
            data = await assignment.stored(name)
            if data is None:
                raise SessionLost(f"image {name} of {log.attempt} is not stored")
            media[name] = Media(blob=slot.blob, data=data)


def _prompt(
    tool_sessions: ToolSessions, rules: Rules, assignment: Assignment, images: Sequence[Media]
) -> Ids:
    task = assignment.task
    try:
        prompt = ids(prompt_ids(rules.protocol, task, tool_sessions.tools, rules.codec))
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
