"""Whether a first prompt can be made of the recipe's protocol, the policy's template and a task."""

from __future__ import annotations

from engine.core.images.placeholders import ImagesUnplaced
from engine.core.protocols import Protocol
from engine.core.rollout.view import prompt_ids
from engine.core.tasks import DrawnTask, TaskSource
from engine.errors import StartupError
from engine.types import Codec
from toolwright.types import Author, Task

REHEARSED = 10
"""Tasks that are tried before protocol, template and source are said not to fit."""


async def first_that_fits(
    source: TaskSource, protocol: Protocol, codec: Codec
) -> tuple[DrawnTask, int]:
    """The source's first task of which a prompt can be made, and the tokens of that prompt.

    StartupError when the first REHEARSED of them cannot: then it is not the rows.
    """
    refused: StartupError | None = None
    try:
        async for drawn in source.first(REHEARSED):
            try:
                return drawn, rehearse(protocol, codec, drawn.task)
            except StartupError as error:
                refused = refused or error
    except StartupError as error:  # the source has fewer
        refused = refused or error
    raise refused or AssertionError("a task was refused, or none was found")


def rehearse(protocol: Protocol, codec: Codec, task: Task) -> int:
    """Tokens of the first prompt, without tools, an image as one. StartupError when the protocol
    and the policy's chat template do not fit, or the task and its images."""
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
