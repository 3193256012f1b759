"""A rank that ends as its first argument says: for `test_launch`.

taken: rank 0 does, while the others wait for it. killed: rank 0 dies without a word.
"""

from __future__ import annotations

import os
import signal
import sys

from learner.ending import finish, is_rank_0
from learner.errors import TakenError


def work() -> str:
    how = sys.argv[1]
    if how == "taken" and is_rank_0():
        raise TakenError("another learner has the run:\nsince \N{GREEK SMALL LETTER BETA}")
    if how == "killed" and is_rank_0():
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
    return "the final folder"


finish(work)
