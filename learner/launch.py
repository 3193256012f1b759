"""torchrun that ends with the learner's own exit status: `python -m learner.launch`.

Takes torchrun's arguments: `python -m learner.launch --nproc-per-node 8 -m learner.cli run RECIPE`.
torchrun runs in this process, so a pod's first process is the same as with torchrun itself. If rank
0 is among its ranks and ended with a sentence, the sentence is the last line. The status is then
rank 0's. Otherwise the status is 1, and the last line names the rank that ended first.

A signal goes to all ranks, which finish their step and write a checkpoint; a second one ends them.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from learner.ending import ENDED, read_ending
from learner.stop import SIGNALLED, SIGNALS

SHUTDOWN_VARIABLE, SHUTDOWN_S = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 3600
"""Timeout of torchrun between a signal to its ranks and their kill. Its default of 30 s is too
short for a step and a checkpoint of a large policy."""


HINTS = {
    "SIGKILL": "the machine may have run out of memory; its kernel's log (dmesg) says so",
    "SIGABRT": "NCCL's watchdog ends a rank that waits too long for another. The lines with "
    "'Watchdog caught collective operation timeout' name the ranks that waited; look at a rank "
    "without such a line",
}
"""Likely reason of a signal."""


def main() -> None:
    """Runs torchrun with this process's arguments."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)  # until torchrun has ranks to signal
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.setdefault(SHUTDOWN_VARIABLE, str(SHUTDOWN_S))
    with tempfile.TemporaryDirectory(prefix="learner-launch-") as folder:
        file = Path(folder) / "ended"
        os.environ[ENDED] = str(file)
        try:
            torchrun.main()
        except (ChildFailedError, SignalException) as error:
            ended = read_ending(file)
            if ended is not None:
                status, sentence = ended
                print(f"learner: {sentence}", file=sys.stderr)
                sys.exit(status)
            print(error, file=sys.stderr)
            if isinstance(error, SignalException):
                sys.exit(SIGNALLED + error.sigval)
            rank, failure = error.get_first_failure()
            print(f"learner: {first_to_end(rank, failure.exitcode)}", file=sys.stderr)
            sys.exit(1)


def first_to_end(rank: int, code: int) -> str:
    """A sentence about the rank that ended first. code: its status, or minus its signal."""
    if code >= 0:
        return f"rank {rank} ended first, with status {code}: look at its last lines"
    name = next((one.name for one in signal.Signals if one == -code), f"signal {-code}")
    return f"rank {rank} ended first, by {name}: {HINTS.get(name, 'look at its last lines')}"


def _leave(number: int, _frame: object) -> NoReturn:
    os.write(sys.stderr.fileno(), b"learner: stopped before it had ranks\n")
    os._exit(SIGNALLED + number)


if __name__ == "__main__":
    main()
