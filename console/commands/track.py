"""`toolwright track RUN`: brings a run's curves to TensorBoard, W&B and MLflow while it goes on.

It ends with the run: when `toolwright run` says so, or when all steps are trained and evaluated, or
by SIGTERM or Ctrl-C, always after a last look. 0: everything arrived; 1: not everything; 2: what
was typed makes no sense.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, get_args

import typer

from console.course.lock import try_lock
from console.errors import RecordBroken
from console.record.course import read_course
from console.track.tracker import FOLDER, Destination
from toolwright.page.text import plain

LOOK_S = 1.0
LAST_LOOK_S = 25.0
LOCK_S = LAST_LOOK_S + 5.0
"""How long the tracker of a run's new start waits for that of a killed one, which sees its
starter's end and has its last look; for all destinations together. One that a user types does not
wait, since his last one ended before he types."""


def track(
    run: Annotated[Path, typer.Argument(help="a run folder, or the recipe of a run")],
    to: Annotated[
        str,
        typer.Option(help="tensorboard, wandb, mlflow, with commas; default: the recipe's"),
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="with a recipe: TABLE.KEY=VALUE")
    ] = None,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", hidden=True, help="end when the starter has ended")
    ] = False,
) -> None:
    """Follow a run folder into TensorBoard, W&B or MLflow until the run ends.

    A second start goes on where the last one was. The folder need not exist yet. A tracker that
    fails is said once and tried again; the run does not notice.
    """
    from console.track.following import Following
    from toolwright.recipe import RecipeError

    try:
        folder, wanted = _what(run, to, settings or [])
    except (RecipeError, ValueError) as error:
        _say(str(error))
        raise typer.Exit(2) from None
    starter = os.getppid()
    with _Stop() as stop, ExitStack() as held:
        while not folder.is_dir():
            if stop.wait(LOOK_S) or (with_parent and os.getppid() != starter):
                raise typer.Exit(0)
        followings = []
        deadline = time.monotonic() + (LOCK_S if with_parent else LOOK_S)
        failed = False
        for name in wanted:
            if held.enter_context(_alone(folder, name, deadline)):
                followings.append(Following(folder, name, _say))
            else:
                _say(
                    f"{name}: another `toolwright track` follows {folder}: this one leaves it alone"
                )
                failed = True
        for following in followings:
            following.start()
        while not stop.wait(LOOK_S):
            if _ended(folder) or (with_parent and os.getppid() != starter):
                break
            if all(following.wait(0) for following in followings):
                break
        for following in followings:
            following.end()
        deadline = time.monotonic() + LAST_LOOK_S
        hung = [f for f in followings if not f.wait(max(0.0, deadline - time.monotonic()))]
        for following in hung:
            _say(f"{following.name}: its library did not end in {LAST_LOOK_S:.0f} s")
    failed = failed or any(following.failed for following in followings)
    if hung:
        # A normal exit would wait for what hangs.
        os._exit(1)
    raise typer.Exit(1 if failed else 0)


def _what(run: Path, to: str, settings: list[str]) -> tuple[Path, list[Destination]]:
    """The run folder and the destinations. RecipeError, ValueError."""
    from console.config import ConsoleTable
    from toolwright.recipe import load_recipe

    folder, default = run, ["tensorboard"]
    if run.suffix == ".toml" and not run.is_dir():
        recipe = load_recipe(run, settings)
        folder = recipe.run_folder
        default = list(recipe.table("console", ConsoleTable).track)
    elif settings:
        raise ValueError(f"--set belongs to a recipe: name RECIPE.toml, not {run}")
    elif run.exists() and not run.is_dir():
        raise ValueError(f"{run} is no folder: name a run folder or RECIPE.toml")
    names = list(dict.fromkeys(name for name in to.split(",") if name)) or default
    known: dict[str, Destination] = {name: name for name in get_args(Destination)}
    for name in names:
        if name not in known:
            raise ValueError(f"--to {name}: there are {', '.join(known)}")
    return folder.resolve(), [known[name] for name in names]


def _ended(run: Path) -> bool:
    """By the course, where `toolwright run` started it; else by what was trained and evaluated."""
    from console.track.facts import is_over

    try:
        course = read_course(run)
    except (OSError, RecordBroken):
        return False
    if course.starts:
        return course.ended is not None
    return is_over(run)


@contextmanager
def _alone(run: Path, name: str, deadline: float) -> Iterator[bool]:
    """Whether this process alone follows the run there, which it waits for until the deadline of
    the monotonic clock; the kernel lets the lock go with it."""
    path = run / FOLDER / f"{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        _say(f"{name}: {path} cannot be written ({error.strerror}): give this user rights there")
        yield False
        return
    with file:
        yield try_lock(file, max(0.0, deadline - time.monotonic()))


class _Stop:
    """Set by SIGTERM and SIGINT, within the context."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __enter__(self) -> _Stop:
        self._before = {n: signal.signal(n, self._set) for n in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self._event.set()


def _say(sentence: str) -> None:
    print(plain(f"track: {sentence}"), file=sys.stderr, flush=True)
