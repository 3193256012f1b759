"""`toolwright view`: the live view of a run that another terminal or machine runs. It only reads.

It ends when the run ends, and its status tells how: that of `toolwright run` where that started the
run; 0 for a run by hand whose policy lies in RUN/final and whose engine is gone or done.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path

from console.course.state import how_it_stands
from console.machine import pids
from console.record.course import CourseRecord, Ended
from console.record.run import check_run
from console.watch.follow import INTERVAL_S, Follower
from console.watch.screen import Screen

STOPPED = "; the same command goes on"
"""The end of the sentence of a run that a signal ended."""
QUIET_S = 60.0
"""A start whose process is gone from this machine is over when its files rest for so long: what it
started may outlive it for a moment."""


async def watch(folder: Path, screen: Screen, engine: str = "") -> Ended:
    """Shows the run until it is over. engine: as for `Follower`. Raises RecordBroken if the folder
    is not a run's."""
    check_run(folder)
    follower = Follower(folder, screen.status, engine)
    shown = asyncio.create_task(screen.run())
    try:
        while True:
            await follower.look()
            if (ended := how_it_ended(follower, folder)) is not None:
                return ended
            await asyncio.sleep(INTERVAL_S)
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)


def how_it_ended(follower: Follower, folder: Path) -> Ended | None:
    """None while it goes on, as far as can be told."""
    course, says = follower.course, follower.says
    if course.ended is not None:
        return course.ended
    word, sentence, status = how_it_stands(
        folder,
        course,
        trained=follower.status.last.step >= (follower.resolved.whole("run.steps") or 0),
        here=pids.is_here(course),
        lives=pids.lives_in(course),
        answers=says is not None and not (says.evaluated and not course.starts),
    )
    if word == "done" or (word == "killed" and says is None and _rests(folder)):
        return Ended(at=time.time(), status=status, sentence=sentence)
    return None


def last_words(ended: Ended, course: CourseRecord) -> str:
    """The last line about a finished run, for a console that only watched it."""
    how, stopped, _ = ended.sentence.partition(STOPPED)
    if not stopped or not course.starts:
        return ended.sentence
    return f"the run was {how}; `{shlex.join(course.starts[-1].argv)}` goes on with it"


def _rests(folder: Path) -> bool:
    """No file of the run was written lately. A file of the future was written before the clock was
    set back."""
    files = [*folder.glob("*.jsonl"), *folder.glob("console/*"), *folder.glob("console/logs/*")]
    newest = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    return abs(time.time() - newest) > QUIET_S
