"""What `test_ranks` looks at: pairs of ranks that wait for each other for a few seconds at most.

`python -m tests.integration.learner.ranks_main FOLDER` imports once and forks the ranks, since an
import costs far more than what a rank does here. In each pair rank 0 has its value after three
times the longest wait; it is `patient`, and says so on the way, or `hung`. What the other rank got
of it, or how it gave up, is in FOLDER/patient and FOLDER/hung. In two more pairs rank 0 sums with
rank 1, which is `asleep` or `gone`; the error of its group is in FOLDER/asleep and FOLDER/gone.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

from learner.ranks import device

device.install()

import torch  # noqa: E402

from console.machine.ready import free_ports  # noqa: E402
from learner.errors import RanksError  # noqa: E402
from learner.ranks import lost, parallel  # noqa: E402
from tests.integration.learner.forked import together  # noqa: E402

WAIT_S = 4
MISSING = ("asleep", "gone")


def have(kind: str, given_up: Path) -> None:
    for _ in range(6):
        time.sleep(WAIT_S / 2)
        if given_up.exists():
            return  # nobody waits any more
        if kind == "patient":
            parallel.still_waiting()
    parallel.from_first("the groups")


def wait(output: Path) -> None:
    begun = time.monotonic()
    try:
        got = parallel.from_first(None)
    except RuntimeError as error:
        got = f"{type(error).__name__} after {time.monotonic() - begun:.0f} s: {error}"
    put(output, got)


def put(output: Path, text: str) -> None:
    output.with_suffix(".part").write_text(text, encoding="utf-8")
    output.with_suffix(".part").rename(output)


def miss(kind: str, rank: int, output: Path) -> None:
    """Rank 0 waits in a sum for rank 1."""
    lost.MARKS_S = 1.0
    try:
        with parallel.ranks(wait=timedelta(seconds=WAIT_S)):
            if rank == 0:
                parallel.reduce_over_all(torch.ones(2), "sum")
            elif kind == "gone":
                os._exit(0)
            while not output.exists():
                time.sleep(0.2)
    except RanksError as error:
        put(output, str(error))


def live(kind: str, rank: int, port: int, output: Path) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    if kind in MISSING:
        miss(kind, rank, output)
        return
    with parallel.ranks(wait=timedelta(seconds=WAIT_S)):
        if parallel.is_first():
            have(kind, output)
        else:
            wait(output)


def main(folder: Path) -> None:
    kinds = ("patient", "hung", *MISSING)
    together(
        [
            partial(live, kind, rank, port, folder / kind)
            for kind, port in zip(kinds, free_ports(len(kinds)), strict=True)
            for rank in (0, 1)
        ]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
