"""`toolwright ablate` from its first line to its exit code: one run of the ladder after the other.

Exit codes: 0 every run that is shown is done; 1 one of them failed, or something else; 2 recipe or
arguments refused, and nothing was run; 5 another ladder works in the folder; 128 + the signal.
A run that fails ends only itself: the others go on, and its row says so. Page and figures are
written after each run, so that they tell of what there is.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from console.ablate import begun
from console.ablate.ladder import Ladder, LadderOptions, Rung, ladder_of
from console.ablate.results.writing import Written, write
from console.ablate.standing import SIGNALLED, Standing, has_to_run, standing
from console.asked.setup import set_up
from console.config import BASE
from console.course.commands import Commands
from console.course.course import Ending
from console.course.lock import only_console
from console.course.session import new_screen
from console.course.session import run as start
from console.errors import ConsoleError, NothingStarted, ProcessFailed, fail
from console.machine.processes import Processes
from console.record.course import LOGS
from console.watch.screen import Screen
from toolwright.process.run_folder import folder_fault
from toolwright.recipe import RecipeError

FAILED = 1
WARNING = "warning: "


def ablate(asked: LadderOptions) -> int:
    """The whole of it; returns the exit code."""
    try:
        return _ablate(asked, new_screen())
    except ConsoleError as error:
        return fail(str(error), error.status)
    except RecipeError as error:
        return fail(str(error), NothingStarted.status)


def _ablate(asked: LadderOptions, screen: Screen) -> int:
    ladder = ladder_of(asked)
    with only_console(ladder.folder, _taken):
        for rung in ladder.to_run:
            begun.check(rung)
        left = [rung for rung in ladder.to_run if has_to_run(rung)]
        screen.say(
            f"{len(ladder.to_run)} runs of {ladder.steps} steps in {ladder.folder}, "
            f"{len(ladder.to_run) - len(left)} of them done"
        )
        for sentence in ladder.overruled:
            screen.say(sentence)
        asyncio.run(_checked(ladder, left, screen))
        heard: dict[Path, Ending] = {}
        for number, rung in enumerate(left, 1):
            screen.say(f"run {number} of {len(left)}: {rung.name}, in {rung.folder}")
            ending = heard[rung.folder] = _climb(rung)
            written = _write(ladder, heard)
            if ending.status > SIGNALLED:
                screen.say(f"the runs so far: {written.page}")
                return ending.status
            if ending.status == NothingStarted.status and rung.variation.name == BASE:
                return ending.status  # what refuses the recipe itself refuses every variation
        written = _write(ladder, heard)
        for line in ("", *written.lines, "", f"page:    {written.page}", "figures:"):
            screen.say(line)
        screen.say(str(written.figures))
        return FAILED if written.failed else 0


def _climb(rung: Rung) -> Ending:
    """One run, by the machinery of `toolwright run`."""
    if why := rung.awaits():
        return Ending(status=fail(why, FAILED), sentence=why)
    begun.note(rung)
    return start(rung.options, words_of(rung))


def words_of(rung: Rung) -> list[str]:
    """The command that would do the same."""
    options = rung.options
    sets = [part for text in options.overrides for part in ("--set", text)]
    place = ["--seed", str(options.seed), "--folder", str(options.folder)]
    return ["toolwright", "run", str(options.recipe), *place, *sets]


async def _checked(ladder: Ladder, left: Iterable[Rung], screen: Screen) -> None:
    """NothingStarted with what `engine check` says of a variation that has runs to go: a reward
    that takes no such option is found out here, and not after the runs before it."""
    first = {rung.variation.name: rung for rung in reversed([*left])}
    known: set[str] = set()
    async with Processes(ladder.folder / LOGS) as processes:
        for name, rung in reversed(first.items()):
            setup = set_up(rung.in_place)
            if folder_fault(setup.run):
                continue  # each run checks itself, in a folder of its own
            command = replace(Commands(setup).look(), name=f"check {name}")
            try:
                done = await processes.run(command)
            except ProcessFailed as failed:
                if failed.exit_code == 1 and (sentence := failed.sentence("engine")):
                    raise NothingStarted(f"{rung.variation}: {sentence}") from failed
                raise
            for line in done.said:
                if line.startswith(WARNING) and line not in known:
                    known.add(line)
                    screen.say(f"{rung.variation}: {line}")


def _write(ladder: Ladder, heard: Mapping[Path, Ending]) -> Written:
    runs: dict[str, Sequence[Standing]] = {}
    for variation in ladder.variations:
        rungs = [rung for rung in ladder.rungs if rung.variation is variation]
        runs[variation.name] = [standing(rung, heard.get(rung.folder)) for rung in rungs]
    return write(ladder, runs)


def _taken(folder: Path, who: str) -> str:
    return (
        f"another `toolwright ablate` works in {folder}{who}: Ctrl-C there stops it, another "
        f"--folder is another ladder, and `toolwright status {shlex.quote(str(folder))}/"
        "NAME/seed-N` tells of a run"
    )
