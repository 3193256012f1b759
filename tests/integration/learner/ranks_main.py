"""A process of `test_ranks`: two ranks that may be apart for a few seconds at most.

python ranks_main.py patient|hung OUTPUT, under torchrun.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

from learner.ranks import device

device.install()

from learner.ranks import parallel  # noqa: E402

WAIT_S = 4


def main(kind: str, output: Path) -> None:
    """Rank 0 has its value after three times the longest wait, and says so on the way, or not."""
    with parallel.ranks(wait=timedelta(seconds=WAIT_S)):
        value = None
        if parallel.is_first():
            for _ in range(6):
                time.sleep(WAIT_S / 2)
                if kind == "patient":
                    parallel.still_waiting()
            value = "the groups"
        got = parallel.from_first(value)
        if not parallel.is_first():
            output.write_text(got)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
