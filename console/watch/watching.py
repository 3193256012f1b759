"""`toolwright view`: the live view of a run that another terminal or machine runs. It only reads.

It ends when the run ends, and its status tells how: that of `toolwright run` where that started the
run; 0 for a run by hand whose policy lies in RUN/final and whose engine is gone or done.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path

from console.machine import pids
from console.record.course import CourseRecord, Ended
from console.record.run import check_run
from console.watch.follow import INTERVAL_S, Follower
from console.watch.screen import Screen

FINAL = "final"
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
    if course.starts:
        if course.ended is not None:
            return course.ended
        start = course.starts[-1]
        if says is not None or (here := pids.lives(start)) is None:
            return None  # another machine's process cannot be looked at from here
        if here or not _rests(folder):
            return None
        sentence = "toolwright run was killed: the same command goes on"
        return Ended(at=time.time(), status=1, sentence=sentence)
    if not (folder / FINAL).is_dir() or (says is not None and not says.evaluated):
        return None
    planned = follower.resolved.whole("run.steps") or 0
    if follower.status.last.step < planned:
        return None
    return Ended(at=time.time(), status=0, sentence=f"the run is over: {folder / FINAL}")


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
