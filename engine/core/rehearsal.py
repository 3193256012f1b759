"""Checks that protocol, chat template and task yield a first prompt."""

from __future__ import annotations

from engine.core.images.placeholders import ImagesUnplaced
from engine.core.protocols import Protocol
from engine.core.rollout.view import prompt_ids
from engine.core.tasks import DrawnTask, TaskSource
from engine.errors import StartupError
from engine.types import Codec
from toolwright.types import Author, Task

REHEARSED = 10
"""Number of tasks to try before the protocol, template and source count as incompatible."""


async def first_that_fits(
    source: TaskSource, protocol: Protocol, codec: Codec
) -> tuple[DrawnTask, int]:
    """The first task of the source that yields a prompt, and the number of tokens of that prompt.

    Raises StartupError if the first REHEARSED tasks all fail: then the rows are not at fault.
    """
    refused: StartupError | None = None
    try:
        async for drawn in source.first(REHEARSED):
            try:
                return drawn, rehearse(protocol, codec, drawn.task)
            except StartupError as error:
                refused = refused or error
    except StartupError as error:  # the source has fewer rows
        refused = refused or error
    raise refused or AssertionError("a task was refused, or none was found")


def rehearse(protocol: Protocol, codec: Codec, task: Task) -> int:
    """Number of tokens of the first prompt, without tools, an image counted as one token. Raises
    StartupError if the protocol, the policy's chat template, the task or its images do not fit."""
    try:
        for author in (Author.TOOL, Author.SYSTEM):
            protocol.frame(codec.end_of_turn, codec, author)
        tokens = len(prompt_ids(protocol, task, (), codec))
    except ImagesUnplaced as error:
        raise StartupError(f"task {task.id}: {error}") from error
    except ValueError as error:
        raise StartupError(
            f"task.protocol does not fit policy.model: {error} (task {task.id})"
        ) from error
    if not tokens:
        raise StartupError(
            f"the prompt of task {task.id} has 0 tokens: protocol and chat template write nothing "
            "of it; correct task.protocol, or the chat template of policy.model"
        )
    return tokens
