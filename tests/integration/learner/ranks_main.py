"""What `test_ranks` looks at: two ranks that may be apart for a few seconds at most, twice.

`python -m tests.integration.learner.ranks_main FOLDER` imports once and forks the ranks, since an
import costs far more than what a rank does here. In each pair rank 0 has its value after three
times the longest wait; it is `patient`, and says so on the way, or `hung`. What the other rank got
of it, or how it gave up, is in FOLDER/patient and FOLDER/hung.
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

from console.machine.ready import free_ports  # noqa: E402
from learner.ranks import parallel  # noqa: E402
from tests.integration.learner.forked import together  # noqa: E402

WAIT_S = 4


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
    output.with_suffix(".part").write_text(got, encoding="utf-8")
    output.with_suffix(".part").rename(output)


def live(kind: str, rank: int, port: int, output: Path) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    with parallel.ranks(wait=timedelta(seconds=WAIT_S)):
        if parallel.is_first():
            have(kind, output)
        else:
            wait(output)


def main(folder: Path) -> None:
    kinds = ("patient", "hung")
    together(
        [
            partial(live, kind, rank, port, folder / kind)
            for kind, port in zip(kinds, free_ports(len(kinds)), strict=True)
            for rank in (0, 1)
        ]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
