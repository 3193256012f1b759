"""A rank that ends as its first argument says: for `test_launch`. `ending_main.py HOW [FOLDER]`

taken: rank 0 does, while the others wait for it. killed: rank 0 dies without a word. stopped: all
do when they are told to; FOLDER/RANK is there once a rank listens.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from learner.ending import finish, is_rank_0, listening
from learner.errors import TakenError
from learner.stop import Interrupted


def work() -> str:
    how = sys.argv[1]
    if how == "taken" and is_rank_0():
        raise TakenError("another learner has the run:\nsince \N{GREEK SMALL LETTER BETA}")
    if how == "killed" and is_rank_0():
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stopped":
        stop.begin_saving()
        Path(sys.argv[2], os.environ["RANK"]).touch()
        with suppress(Interrupted), stop.interruptible():
            signal.pause()
        raise stop.error(3)
    signal.pause()
    return "the final folder"


with listening() as stop:
    finish(work)
