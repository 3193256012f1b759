"""A learner in many lives: each is killed by SIGKILL at a named point, the last one ends the run.

`python -m tests.chaos.learner_main RECIPE KEY=VALUE... POINT...` imports once and forks a process
for each life. A point is a function of the learner and how often it has returned.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner.ranks import device

device.install()

from learner import disk  # noqa: E402
from learner import run as loop  # noqa: E402
from learner.intake.client import EngineClient  # noqa: E402
from learner.intake.publishing import GroupPublish  # noqa: E402
from learner.loop import handover, step  # noqa: E402
from learner.model import bridge  # noqa: E402
from learner.model.architectures import read_config  # noqa: E402
from learner.model.policy import Policy  # noqa: E402
from learner.saving import broadcast, checkpoint  # noqa: E402
from learner.saving.attempt import Attempt  # noqa: E402
from learner.training import update  # noqa: E402
from toolwright.model.beginning import first_policy  # noqa: E402
from toolwright.recipe import Recipe, load_recipe  # noqa: E402

POINTS: dict[str, tuple[Any, str, int]] = {
    "its groups are leased": (step, "lease_step", 2),
    "the gradients are there": (update, "finite_gradients", 2),
    "the weights have moved": (Policy, "update", 2),
    "the policy's folder is half written": (bridge, "_save_weights", 2),
    "the policy's folder is written": (Policy, "save", 2),
    "the engine has the version": (EngineClient, "publish", 2),
    "the samplers join the group": (GroupPublish, "begin", 2),
    "samplers have some of the buckets": (Attempt, "send", 9),
    "the samplers go on, there is no folder": (GroupPublish, "commit", 2),
    "the step's line is written": (step, "report_step", 2),
    "the checkpoint is copied": (checkpoint.Checkpoints, "_copied", 1),
    "the checkpoint is half written": (checkpoint, "save_sharded", 1),
    "the checkpoint is flushed and has no name": (disk, "flush_tree", 4),
    "the checkpoint is the newest, the engine does not know": (checkpoint.Checkpoints, "settle", 1),
    "the engine knows the checkpoint": (handover, "acknowledge", 1),
}
"""By what has just happened: whose function returned, and for which time in this life."""


def die_at(point: str) -> None:
    """SIGKILL to this process when the point is reached."""
    owner, name, times = POINTS[point]
    function: Callable[..., Any] = getattr(owner, name)
    reached = 0

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal reached
        result = function(*args, **kwargs)
        reached += 1
        if reached == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def live(recipe: Recipe, point: str | None) -> int:
    """One life in a process of its own; its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        if point is not None:
            die_at(point)
        loop.run(recipe)
        status = 0
    finally:
        os._exit(status)


def warm(recipe: Recipe) -> None:
    """Imports what every life would import. No process group, no thread: it is forked then."""
    import torch._dynamo

    assert torch._dynamo
    read_config(first_policy(recipe))


def main(file: str, *words: str) -> None:
    broadcast.MIB = 8 << 10  # a tiny policy travels in several buckets too
    recipe = load_recipe(Path(file), [word for word in words if "=" in word])
    warm(recipe)
    for point in (word for word in words if "=" not in word):
        status = live(recipe, point)
        if not os.WIFSIGNALED(status):
            sys.exit(f"the learner came to its end (status {status}) before {point!r}")
        print(f"killed: {point}", flush=True)
    sys.exit(os.waitstatus_to_exitcode(live(recipe, None)))


if __name__ == "__main__":
    main(*sys.argv[1:])
